"""Sphinx's settings for the book: the stored notebooks as they are, nothing executed, nothing from
other sites.
"""

import re

from docutils import nodes
from latex2mathml.converter import convert

project = "GRPO Workbook"
author = "the GRPO Workbook's authors"
copyright = "the GRPO Workbook's authors, Apache-2.0"
language = "en"

extensions = ["myst_nb", "sphinx_copybutton"]
nb_execution_mode = "off"  # what is stored is what was executed
nb_merge_streams = True
nb_render_markdown_format = "myst"  # what a cell displays as Markdown may be a table
nb_code_prompt_show = "Show the code"  # of cells tagged hide-input: those that only draw
nb_code_prompt_hide = "Hide the code"
myst_enable_extensions = ["dollarmath"]
html_math_renderer = "mathml"  # browsers draw it themselves: no script, nothing from another site
myst_heading_anchors = 3
exclude_patterns = ["**/.ipynb_checkpoints"]
suppress_warnings = ["mystnb.unknown_mime_type"]

html_theme = "sphinx_book_theme"
html_title = "GRPO Workbook"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_extra_path = ["llms.txt"]
html_favicon = "_static/favicon.svg"
html_context = {"default_mode": "auto"}
html_copy_source = False
html_use_index = False
html_theme_options = {
    "show_toc_level": 2,
    "navbar_persistent": [],  # the search stands in the sidebar already
    "home_page_in_toc": True,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "navigation_with_keys": True,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def setup(app):
    """Formulas as MathML: `$...$` within a line, `$$...$$` on lines of their own. A number and its
    percent sign on one line.
    """

    def within(writer, node):
        writer.body.append(convert(node.astext()))
        raise nodes.SkipNode

    def alone(writer, node):
        formula = convert(node.astext(), display="block")
        writer.body.append(f'<div class="formula" tabindex="0">{formula}</div>')
        raise nodes.SkipNode

    def keep_together(app, doctree):  # "5 %" is not broken between two lines
        for text in list(doctree.findall(nodes.Text)):
            if not isinstance(text.parent, (nodes.FixedTextElement, nodes.literal, nodes.math)):
                text.parent.replace(text, nodes.Text(re.sub(r"(?<=\d) %", "\u00a0%", text)))

    app.connect("doctree-read", keep_together)
    app.add_html_math_renderer("mathml", (within, None), (alone, None))
