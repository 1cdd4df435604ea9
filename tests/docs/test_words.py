"""What docs/ names exists: files, functions, classes. No decision is missing; all have the same headings."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, all_pages, blocks_of

FOLDERS = ("bootstrap", "engine", "relaqs", "tpch", "dashboards", "benchmarks", "tests", "docs")
PATH = re.compile(rf"(?<![\w./@-])((?:{'|'.join(FOLDERS)})/[\w./-]*\w)")
PLACEHOLDER = "NAME"  # of a file that a how-to asks its reader to write
WALKS = sorted((DOCS / "internals").glob("*.md"))
NAME_IN_CODE = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)(?:\([^`]*\))?`(?!`)")
DECISIONS = sorted((DOCS / "decisions").glob("0*.md"))
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


def test_no_decision_is_missing() -> None:
    assert [int(page.name[:4]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name)
def test_a_decision_has_its_number_the_headings_and_a_place_in_the_index(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    number, title = re.match(r"# (\d+)\. (.+)\n", text).groups()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert int(number) == int(page.name[:4])
    assert [heading for heading in headings if heading in HEADINGS] == HEADINGS
    index = (DOCS / "decisions" / "index.md").read_text(encoding="utf-8")
    assert f"| {number} | [{title}]({page.name}) |" in index
