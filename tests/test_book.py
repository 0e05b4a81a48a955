"""The book: built from the stored notebooks, every link leads somewhere, a browser shows every page
without error.
"""

import functools
import http.server
import re
import shutil
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from conftest import REPO, environment

pytestmark = pytest.mark.extra

pytest.importorskip(
    "sphinx_book_theme", reason="the book's packages are not installed (requirements/book.txt)"
)
BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
OFFLINE = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
)


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    folder = tmp_path_factory.mktemp("book") / "site"
    command = [sys.executable, str(REPO / "docs" / "book" / "build.py"), "--out", str(folder)]
    result = subprocess.run(
        command, capture_output=True, text=True, env=environment(), cwd=folder.parent
    )
    assert result.returncode == 0, result.stderr[-4000:]
    assert result.stdout.strip().endswith("index.html")
    return folder


class Page(HTMLParser):
    """What a page links to, loads and shows."""

    def __init__(self, path: Path):
        super().__init__()
        self.links, self.loads, self.ids, self.pictures = [], [], set(), []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids.add(attrs.get("id"))
        if tag == "a" and "href" in attrs:
            self.links.append(attrs["href"])
        if tag == "img":
            self.pictures.append((attrs.get("src", ""), attrs.get("alt") or ""))
        if tag in ("img", "script") and "src" in attrs:
            self.loads.append(attrs["src"])
        if tag == "link" and attrs.get("rel") in ("stylesheet", "preload", "icon"):
            self.loads.append(attrs["href"])


def pages(book):
    return sorted(p for p in book.rglob("*.html") if "_static" not in p.parts)


def test_every_chapter_and_card_is_a_page(book):
    found = {str(p.relative_to(book).with_suffix("")) for p in pages(book)}
    for path in (*(REPO / "notebooks").glob("[0-9]*.ipynb"), *(REPO / "data").glob("*/README.md")):
        assert str(path.relative_to(REPO).with_suffix("")) in found
    assert {"index", "search"} <= found


def test_no_link_is_broken_and_nothing_comes_from_another_site(book):
    read = {path: Page(path) for path in pages(book)}
    broken = []
    for path, page in read.items():
        for target in page.loads:
            assert not re.match(r"(https?:)?//", target), f"{path.name} loads {target}"
        for target in page.links + page.loads:
            url = urlsplit(target)
            if url.scheme or target.startswith("//") or target == "#":
                continue
            there = (path.parent / unquote(url.path)).resolve() if url.path else path
            known = read.get(there)
            if not there.exists() or (
                url.fragment and known and unquote(url.fragment) not in known.ids
            ):
                broken.append(f"{path.relative_to(book)}: {target}")
    assert broken == []
    assert len(read) > 10


def test_every_figure_has_words(book):
    for path in pages(book):
        for source, words in Page(path).pictures:
            assert len(words) > 40, f"{path.name}: {source[:60]}"


def test_no_formula_stands_in_its_source_form(book):
    for path in pages(book):
        text = path.read_text(encoding="utf-8")
        words = re.sub(r"<(pre|code|script|math)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert re.findall(r"\$\$|\\[a-z]+\{|\\(?:pi|rho|log|beta)\b", words) == [], path.name


def test_the_glossary_and_the_list_for_language_models_lead_to_every_chapter(book):
    chapters = {path.stem for path in (REPO / "notebooks").glob("[0-9]*.ipynb")}
    listed = re.findall(r"\]\((?!http)(.*?)\)", (book / "llms.txt").read_text(encoding="utf-8"))
    assert [target for target in listed if not (book / target).is_file()] == []
    assert {Path(target).stem for target in listed} >= chapters | {"glossary", "install"}
    links = {Path(link).stem for link in Page(book / "docs" / "glossary.html").links}
    assert links >= chapters


def test_a_page_is_for_reading(book):
    """What a cell displays as a table is one; code that only draws is folded; the set-up is out."""
    start = (book / "notebooks" / "00_start_here.html").read_text(encoding="utf-8")
    words = re.sub(r"<(pre|code|script)\b.*?</\1>", "", start, flags=re.DOTALL)
    assert "| chapter |" not in words
    assert re.search(r"<table.*after it you can.*<a [^>]*10_scale_out.html", words, re.DOTALL)
    assert "Show the code" in words
    assert "COLAB_RELEASE_TAG" not in start


@pytest.fixture
def site(book):
    """The address of the book, served on loopback."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(book))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def browser():
    sync = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (requirements/book.txt)"
    )
    if BROWSER is None:
        pytest.skip("no Chromium on this machine (Debian: apt install chromium)")
    with sync.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=list(OFFLINE))
        yield browser
        browser.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_every_page_without_an_error(book, site, browser, width):
    page, trouble = browser.new_page(viewport={"width": width, "height": 844}), []
    page.on("console", lambda m: trouble.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: trouble.append(str(e)))
    page.on("requestfailed", lambda r: trouble.append(r.url[:200]))
    page.on(
        "response",
        lambda r: trouble.append(f"{r.status} {r.url[:200]}") if r.status >= 400 else None,
    )
    for path in pages(book):
        page.goto(f"{site}/{path.relative_to(book)}")
        page.wait_for_load_state("networkidle")
        assert page.locator("h1").first.inner_text().strip()
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{path.name} is {wide} pixels wide on a screen of {width}"
        assert trouble == [], path.name


def test_a_browser_draws_the_formulas(site, browser):
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(f"{site}/notebooks/01_grpo_from_scratch.html")
    fraction = page.locator("div.formula mfrac").first  # the advantage of an answer
    above, below = (fraction.locator(f"> :nth-child({n})").bounding_box() for n in (1, 2))
    assert 0 < above["y"] + above["height"] <= below["y"] + 1
    assert "mean" in fraction.text_content()
    assert "std" in fraction.text_content()


@pytest.mark.parametrize(("width", "said"), [(390, '"Scroll sideways'), (1280, "none")])
def test_a_wide_picture_says_on_a_phone_that_it_scrolls(site, browser, width, said):
    page = browser.new_page(viewport={"width": width, "height": 844})
    page.goto(f"{site}/notebooks/00_start_here.html")
    holder = page.locator(".cell_output .output:has(img)").first
    assert holder.evaluate("e => getComputedStyle(e, '::before').content").startswith(said)


def test_the_first_pages_code_fits_a_laptop_and_its_table_a_phone(site, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 844})
    page.goto(site)
    wide = "all => all.filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent)"
    assert page.locator(".bd-article pre").evaluate_all(wide) == []
    page.set_viewport_size({"width": 390, "height": 844})
    table = page.locator(".bd-article table").first
    assert table.locator("td:nth-child(2)").first.bounding_box()["width"] > 200
    hint = table.evaluate("e => getComputedStyle(e, '::before').content")
    assert hint.startswith('"Scroll sideways')


def test_a_number_and_its_percent_sign_stay_together(book):
    text = (book / "notebooks" / "05_monitoring.html").read_text(encoding="utf-8")
    words = re.sub(r"<(pre|code|script)\b.*?</\1>|<img.*?>", "", text, flags=re.DOTALL)
    assert re.search(r"\d\u00a0%", words)
    assert not re.search(r"\d %", words)


def test_navigation_and_search_find_their_way(site, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(site)
    page.get_by_role("link", name="01 · GRPO from scratch").first.click()
    assert "01 · GRPO from scratch" in page.title()
    page.locator("a.right-next").click()
    assert "02 · Dataset preparation" in page.title()
    page.goto(f"{site}/search.html?q=McNemar")
    page.locator("#search-results li a", has_text="Evaluation").first.wait_for(timeout=20_000)
