"""The site of docs/: it builds without a warning and works offline; every page and public name is in it."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ARCHIVE, DOCS, ROOT, all_pages

pytestmark = pytest.mark.slow  # the whole site is built

PUBLIC = ("relaqs", "relaqs.training", "relaqs.policies", "relaqs.pacing", "relaqs_bootstrap")
FETCHED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^"'>]*""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site's folder. A warning, such as a link to nowhere or a page in no list, fails the build."""
    folder = tmp_path_factory.mktemp("site")
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--builder", "html"]
    command = [sys.executable, "-m", "sphinx", *options, "--doctree-dir", str(folder / "trees")]
    ended = subprocess.run(
        [*command, str(DOCS), str(folder / "html")], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder / "html"


def test_every_page_is_in_it_but_the_archive(site: Path) -> None:
    there = {page for page in all_pages() if (site / page.relative_to(DOCS)).with_suffix(".html").exists()}
    assert there == {page for page in all_pages() if ARCHIVE not in page.parents}


def test_the_search_finds_the_guide_and_neither_the_lab_nor_decisions(site: Path) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    found = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))
    pages = {
        page for where in found["terms"].values() for page in (where if isinstance(where, list) else [where])
    }
    folders = {found["docnames"][page].partition("/")[0] for page in pages}
    assert "guide" in folders
    assert not folders & {"lab", "decisions"}


def test_it_fetches_nothing(site: Path) -> None:
    found = {
        f"{page.name}: {match[0]}"
        for page in site.rglob("*.html")
        for match in FETCHED.finditer(page.read_text(encoding="utf-8"))
        if 'rel="canonical"' not in match[0]
    }
    assert found == set()


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_is_described(site: Path, package: str) -> None:
    described = "".join(page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html"))
    names = importlib.import_module(package).__all__
    missing = [name for name in names if not re.search(rf'id="relaqs[\w.]*\.{name}"', described)]
    assert missing == []


def test_make_docs_builds_it_where_git_does_not_look() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^docs: .*\n\t.*-m sphinx --fail-on-warning .* docs site$", makefile, re.MULTILINE)
    assert "/site/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
