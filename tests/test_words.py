"""The field's words: no word of our own for a thing that has a name, in texts and public names."""

import re

import pytest
from conftest import REPO

FOLDERS = ("grpo_workbook", "templates", "benchmarks", "data", "configs", "book")
KINDS = (".py", ".md", ".toml", ".yaml", ".jinja")
TEXTS = ("*.md", "requirements*.txt", "docs/*.md", "notebooks/source/*.py", "notebooks/build.py")
THING = "(answer|completion|problem|question|sample|token|row|task|batche?)s?"
# What not to write, whole words in any case -> what to write instead.
WORDS = {
    r"silent (group|batche?|step|row)s?|(is|are|stays?) silent|silent_\w+": "zero-variance",
    r"mend(s|ed|ing)?": "fix",
    rf"(draw[sn]?|drew|drawing) ((a|an|the|other|new|more|many|eight|its) )*{THING}": "sample",
    rf"{THING} (are |is |were |was |be )*drawn|drawn from": "sampled",
    r"\w*share_of\w*|\w+_share|(a|the|this|that|what|its|small|large) share|shares? of": "fraction",
    r"(near[- ])?twins?|near[- ](same|copy|copies)": "near-duplicate",
    r"broken (row|line|value)s?": "invalid",
    r"whoever": "anyone who, or: if you",
    r"(nobody|no one) (has|can|knows|looked|says|said|tried|waits)": "not known, not measured",
    r"(is|are|be|was|were|being|been|as) told(?! (apart|from))": "gets a message, is reported",
    r"foretells?|foretold": "predicts",
    r"dear(er|est)": "more, most expensive",
}


def wrong_words(text: str) -> list[str]:
    """Each wrong word with its line; a phrase may go on in the next line, behind its #."""
    found = []
    for pattern, better in WORDS.items():
        spaced = rf"\b(?:{pattern})(?!\w)".replace(" ", r"[\s#]+")
        for match in re.finditer(spaced, text, re.IGNORECASE):
            line, seen = text.count("\n", 0, match.start()) + 1, " ".join(match[0].split())
            found.append(f"line {line}: {seen!r}: write {better}")
    return found


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a silent\ngroup", "line 1: 'silent group'"),
        ("fine\nthen the answers are\n# drawn here", "line 2: 'answers are # drawn'"),
        ("log('empty_share')", "'empty_share'"),
        ("it is drawn, two share a GPU, none is dropped silently, it can be told from it", None),
    ],
)
def test_a_wrong_word_is_found_and_a_right_one_is_not(text, seen):
    assert seen in "".join(wrong_words(text)) if seen else not wrong_words(text)


def test_texts_use_the_words_of_the_field():
    paths = [path for pattern in TEXTS for path in REPO.glob(pattern)]
    paths += [p for f in FOLDERS for p in (REPO / f).rglob("*") if p.suffix in KINDS]
    assert len(paths) > 100
    texts = {path.relative_to(REPO): path.read_text(encoding="utf-8") for path in paths}
    found = [f"{name}, {word}" for name, text in texts.items() for word in wrong_words(text)]
    assert not found, "\n" + "\n".join(found)
