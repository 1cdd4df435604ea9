"""What docs/ names exists: files, functions, classes. No decision is missing; all have the same headings."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ARCHIVE, DOCS, ROOT, all_pages, blocks_of

FOLDERS = ("bootstrap", "engine", "relaqs", "tpch", "dashboards", "benchmarks", "tests", "docs")
PATH = re.compile(rf"(?<![\w./@-])((?:{'|'.join(FOLDERS)})/[\w./-]*\w)")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")
PLACEHOLDER = "NAME"  # of a file that a how-to asks its reader to write
WALKS = sorted((DOCS / "internals").glob("*.md"))
NAME_IN_CODE = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)(?:\([^`]*\))?`(?!`)")
BINDING = sorted((DOCS / "decisions").glob("0*.md"))
DECISIONS = sorted([*BINDING, *ARCHIVE.glob("0*.md")], key=lambda page: page.name)
MOST_BINDING = 40
HEADINGS = ["Context", "Choice", "Measured", "What would change it"]


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: str(page.relative_to(DOCS)))
def test_every_path_named_exists(page: Path) -> None:
    named = set(PATH.findall(page.read_text(encoding="utf-8")))
    printed = {block.module for block in blocks_of(page)}  # files that a how-to asks its reader to add
    missing = {path for path in named - printed if not (ROOT / path).exists()}
    assert {path for path in missing if PLACEHOLDER not in path} == set()


@pytest.mark.parametrize("page", WALKS, ids=lambda page: page.name)
def test_a_walk_names_what_the_code_has(page: Path) -> None:
    """Names with a dot or an underscore, and names of classes; `k0` or `planes` may be anything."""
    spans = set(NAME_IN_CODE.findall(page.read_text(encoding="utf-8")))
    names = {part for span in spans if re.search(r"[._]|^[A-Z][a-z]", span) for part in span.split(".")}
    assert {name for name in names if name not in words_of_code()} == set()


@cache
def words_of_code() -> frozenset[str]:
    """Return every word in the product's Python files, and the names of its files."""
    files = [path for folder in FOLDERS[:5] for path in (ROOT / folder).rglob("*.py")]
    words = (re.findall(r"\w+", path.read_text(encoding="utf-8")) for path in files)
    return frozenset(word for each in words for word in each) | {path.stem for path in files} | {"py"}


def test_a_guide_has_a_picture_or_a_drawing() -> None:
    """`python -m benchmarks.guide_pictures docs/pictures` takes them anew."""
    drawn = {"cluster", "serve", "training-on-a-cluster"}  # in text
    guides = {page.stem: page.read_text(encoding="utf-8") for page in (DOCS / "guide").glob("*.md")}
    without = {name for name, text in guides.items() if "![" not in text}
    assert without <= drawn


def test_every_picture_can_be_seen_and_none_fetches_anything() -> None:
    for picture in (DOCS / "pictures").iterdir():
        assert picture.suffix in (".svg", ".png")
        assert picture.stat().st_size < 200_000, picture.name
        if picture.suffix == ".svg":
            text = picture.read_text(encoding="utf-8")
            assert not re.findall(r"@import|<script|(?:href|src)=[\"']https?:", text), picture.name
            assert "/tmp/" not in text, picture.name


def test_no_decision_is_missing() -> None:
    assert [int(page.name[:4]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_few_decisions_bind() -> None:
    assert len(BINDING) <= MOST_BINDING, "merge neighbours, and move what no longer binds to the archive"


@pytest.mark.parametrize("page", sorted(ARCHIVE.glob("*.md")), ids=lambda page: page.name)
def test_the_archive_links_to_what_exists(page: Path) -> None:
    """The site's build looks at the links of all other pages."""
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name)
def test_a_decision_has_its_number_the_headings_and_a_place_in_the_index(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    number, title = re.match(r"# (\d+)\. (.+)\n", text).groups()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert int(number) == int(page.name[:4])
    assert [heading for heading in headings if heading in HEADINGS] == HEADINGS
    index = (page.parent / "index.md").read_text(encoding="utf-8")
    assert f"| {number} | [{title}]({page.name}) |" in index
