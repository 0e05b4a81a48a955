"""Sphinx's settings for the book: the stored notebooks as they are, nothing executed, nothing from
other sites.
"""

project = "GRPO Workbook"
author = "the GRPO Workbook's authors"
copyright = "the GRPO Workbook's authors, Apache-2.0"
language = "en"

extensions = ["myst_nb", "sphinx_copybutton"]
nb_execution_mode = "off"  # what is stored is what was executed
nb_merge_streams = True
# no $ for formulas: chapters write them as code, and MathJax would come from another site
myst_enable_extensions = []
myst_heading_anchors = 3
exclude_patterns = ["**/.ipynb_checkpoints"]
suppress_warnings = ["mystnb.unknown_mime_type"]

html_theme = "sphinx_book_theme"
html_title = "GRPO Workbook"
html_static_path = ["_static"]
html_css_files = ["book.css"]
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
