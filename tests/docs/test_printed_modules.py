"""What a how-to prints as a file of the repository works there: put in, registered and tried in a copy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, Block, blocks_of

pytestmark = pytest.mark.slow  # half a minute each: a copy of the repository, and its tests for what is added

COPIED = ("relaqs", "engine", "tests", "pyproject.toml")
LINKED = ("bootstrap", "tpch", "dashboards", "benchmarks", "docs", "README.md", "CONTRIBUTING.md")


def printed(page: str) -> Block:
    """Return the page's one block that is a whole module."""
    (block,) = [block for block in blocks_of(DOCS / "howto" / page) if block.module is not None]
    return block


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the repository: files of its own where something is added, links to the others."""
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in COPIED:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    return folder


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


def test_the_policy_keeps_the_laws_once_it_is_in_the_package(copy: Path) -> None:
    block = printed("add-a-policy.md")
    add(copy, block)
    registry = "relaqs/policies/registry.py"
    insert(
        copy,
        registry,
        "    },\n)\n\nDEFAULT_POLICY",
        '        "queries_first": "relaqs.policies.queries_first:QueriesFirst",\n',
    )
    insert(
        copy,
        "tests/relaqs/policies/test_registry.py",
        "\n    ]\n    assert all",
        '\n        "queries_first",',
    )
    run(copy, "ruff", "check", block.module, registry)
    run(copy, "ruff", "format", "--check", block.module, registry)
    tests = ("tests/relaqs/policies/test_laws.py", "tests/relaqs/policies/test_registry.py")
    named = ("-k", "queries_first or test_the_policies")
    assert " passed" in run_tests(copy, *tests, "tests/test_examples.py", *named)


def test_the_algorithm_is_trained_once_it_is_in_the_package(copy: Path) -> None:
    block = printed("add-an-algorithm.md")
    add(copy, block)
    registry = "relaqs/training/registry.py"
    insert(
        copy,
        registry,
        '        "topic_model": ',
        '        "poisson_regression": "relaqs.training.algorithms.poisson_regression:PoissonRegression",\n',
    )
    run(copy, "ruff", "check", block.module, registry)
    run(copy, "ruff", "format", "--check", block.module, registry)
    assert "2 passed" in run_tests(copy, "tests/test_examples.py", "-k", "poisson_regression")


def test_the_rule_is_recorded_once_it_is_in_the_package(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = printed("add-a-rule.md")
    add(copy, block)
    rules = "engine/relaqs_engine/rewrite/__init__.py"
    insert(
        copy,
        rules,
        "from relaqs_engine.rewrite.flatten",
        "from relaqs_engine.rewrite.exists_order import read_no_order_of_exists\n",
    )
    insert(copy, rules, ", check_shape)", ", read_no_order_of_exists")
    (case,) = [each for each in blocks_of(DOCS / "howto" / "add-a-rule.md") if "-- shows:" in each.code]
    fixture = copy / "tests" / "fixtures" / "rewrite" / "exists_order.sql"
    fixture.write_text(case.code, encoding="utf-8")
    run(copy, "ruff", "check", block.module, rules)
    run(copy, "ruff", "format", "--check", block.module, rules)
    assert " passed" in run_tests(copy, "tests/test_examples.py", "-k", "exists_order")
    cases = ("tests/engine/rewrite", "-k", "exists_order")
    monkeypatch.setenv("RELAQS_RECORD", "1")
    run_tests(copy, *cases)
    assert "ORDER" not in fixture.read_text(encoding="utf-8").partition("-->")[2]
    monkeypatch.delenv("RELAQS_RECORD")
    assert " passed" in run_tests(copy, *cases)
