"""What a how-to prints as a file of the repository works there: put in, registered and tried in a copy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, Block, blocks_of

pytestmark = pytest.mark.slow  # a copy of the repository, and its tests for what is added

COPIED = ("relaqs", "engine", "tests", "pyproject.toml")
LINKED = ("bootstrap", "tpch", "dashboards", "benchmarks", "docs", "README.md", "CONTRIBUTING.md")


def printed(page: str) -> Block:
    """Return the page's one block that is a whole module."""
    (block,) = [block for block in blocks_of(DOCS / "howto" / page) if block.module is not None]
    return block


def add(copy: Path, block: Block) -> None:
    assert block.module is not None
    (copy / block.module).write_text(block.code, encoding="utf-8")


def insert(copy: Path, path: str, before: str, text: str) -> None:
    """Write the text before the one place where `before` stands."""
    file = copy / path
    found = file.read_text(encoding="utf-8")
    assert found.count(before) == 1, (path, before)
    file.write_text(found.replace(before, text + before), encoding="utf-8")


def run(copy: Path, *words: str) -> str:
    """Return what a Python module prints in the copy, and nothing of this checkout."""
    path = os.pathsep.join(str(copy / each) for each in ("", "engine", "bootstrap", "tpch", "dashboards"))
    ended = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def run_tests(copy: Path, *words: str) -> str:
    return run(copy, "pytest", "-q", "-p", "no:cacheprovider", *words)


REGISTRIES = (
    "relaqs/policies/registry.py",
    "relaqs/training/algorithms/__init__.py",
    "engine/relaqs_engine/rewrite/__init__.py",
)
PAGES = ("add-a-policy.md", "add-an-algorithm.md", "add-a-rule.md")
CASE = "tests/fixtures/rewrite/exists_order.sql"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with what the pages print: links to the files where nothing is added."""
    folder = tmp_path_factory.mktemp("repository")
    for name in COPIED:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    for page in PAGES:
        add(folder, printed(page))
    _add_policy(folder)
    _add_algorithm(folder)
    _add_rule(folder)
    return folder


def _add_policy(copy: Path) -> None:
    insert(
        copy,
        "relaqs/policies/registry.py",
        "    },\n)\n\nDEFAULT_POLICY",
        '        "queries_first": "relaqs.policies.queries_first:QueriesFirst",\n',
    )
    insert(
        copy,
        "tests/relaqs/policies/test_registry.py",
        "\n    ]\n    assert all",
        '\n        "queries_first",',
    )


def _add_algorithm(copy: Path) -> None:
    insert(
        copy,
        "relaqs/training/algorithms/__init__.py",
        '        "topic_model": ',
        '        "poisson_regression": "relaqs.training.algorithms.poisson_regression:PoissonRegression",\n',
    )


def _add_rule(copy: Path) -> None:
    insert(
        copy,
        "engine/relaqs_engine/rewrite/__init__.py",
        '    Named("normalize:check_shape"),\n',
        '    Named("exists_order:read_no_order_of_exists"),\n',
    )
    (case,) = [each for each in blocks_of(DOCS / "howto" / "add-a-rule.md") if "-- shows:" in each.code]
    (copy / CASE).write_text(case.code, encoding="utf-8")


def test_what_is_printed_is_written_as_the_rest(copy: Path) -> None:
    files = [*REGISTRIES, *(str(printed(page).module) for page in PAGES)]
    run(copy, "ruff", "check", *files)
    run(copy, "ruff", "format", "--check", *files)


# Files of tests, what the names of tests for something that was added have in them, and how many these are.
TRIED = (
    ("tests/relaqs/policies/test_laws.py", "queries_first", 5),
    ("tests/relaqs/policies/test_registry.py", "test_the_policies", 1),
    ("tests/test_examples.py", "queries_first", 2),
    ("tests/test_examples.py", "poisson_regression", 2),
    ("tests/test_examples.py", "exists_order", 2),
)


def test_the_tests_try_what_was_added(copy: Path) -> None:
    files = dict.fromkeys(file for file, _, _ in TRIED)
    said = run_tests(copy, *files, "-rp", "-k", " or ".join({name for _, name, _ in TRIED}))
    passed = re.findall(r"^PASSED (.+)$", said, re.MULTILINE)
    for file, name, count in TRIED:
        found = [each for each in passed if each.startswith(file) and name in each]
        assert len(found) >= count, (file, name, found)


def test_the_rule_is_recorded(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = ("tests/engine/rewrite", "-k", "exists_order")
    monkeypatch.setenv("RELAQS_RECORD", "1")
    run_tests(copy, *cases)
    assert "ORDER" not in (copy / CASE).read_text(encoding="utf-8").partition("-->")[2]
    monkeypatch.delenv("RELAQS_RECORD")
    assert " passed" in run_tests(copy, *cases)
