"""Every example in a docstring runs as written, and whatever a guest looks up has one."""

from __future__ import annotations

import doctest
import inspect
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import numpy as np
import pytest
import relaqs_bootstrap
import sqlglot
from relaqs_engine.layouts.sampled import shuffle
from relaqs_engine.rewrite import AGGREGATING, LISTING, READING, SAMPLING

import relaqs
import relaqs.dask
import relaqs.dbapi
import relaqs.metrics
import relaqs.pacing
import relaqs.policies
import relaqs.training
from relaqs import OnlineQuery, Session, Snapshot, TrainingRun
from relaqs.policies import POLICIES
from relaqs.training import ALGORITHMS
from tests.docs.pages import DOCS, blocks_of
from tests.engine import example
from tests.test_house import product_files

PROMPT = ">>> "
PARTITIONS = 20  # where an example leaves it open; a hundred files of a thousand rows take most of the time
RULES = dict.fromkeys(each.rule for each in (*READING, *SAMPLING, *AGGREGATING, *LISTING))
GIVEN = {  # as the reference makes them
    "query": 'query = db.online_sql("SELECT sum(x) AS total FROM numbers")',
    "answer": 'answer = db.online_sql("SELECT avg(x) AS mean FROM numbers").result()',
}
EXAMPLES = (example.after, example.refusal, example.planned, example.explained, example.shown)
OF_THE_ENGINE: dict[str, object] = {
    "sqlglot": sqlglot,
    "np": np,
    **{each.__name__: each for each in EXAMPLES},
    "CATALOG": example.CATALOG,
}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

REWRITER = (
    "around.plan_around",
    "render.check_types_travel",
    "split.carve",
    "scalar_subqueries.cross_fit_of",
    "normalize.first_of_each",
    "grouping.group_keys",
    "uncertain_rows.kept_columns",
    "levels.level_of",
    "listed_values.merged_value",
    "listed_values.of_values",
    "statistics.value_of_moments",
    "having_and_limit.near_sql",
    "split.with_one_row_tables",
    "uncertain_rows.refine_rows",
    "render.render",
    "scalar_subqueries.share_values",
    "normalize.shared_columns_as_left",
    "aggregates.first_or_last",
    "aggregates.value_so_far",
    "scalar_subqueries.StageMaker",
    "eager_aggregation.below_union",
)
ENGINE = (
    "sql.expressions.Ranges",
    "sql.expressions.rounded",
    "catalog.Catalog",
    "layouts.sampled.shuffle",
    "layouts.build.add_static",
    "layouts.verification.verify",
    "plans.plan.mini_batches",
    "sql.statements.columns_written_out",
    "sql.parse.check_expansion",
    "sql.functions.guard_functions",
    "sql.columns.names_in",
    "sql.parse.parse_query",
)

# What must have an example, by group: dotted names of functions and classes.
PUBLIC_OF_RELAQS = (
    relaqs,
    relaqs.policies,
    relaqs.training,
    relaqs.pacing,
    relaqs.dbapi,
    relaqs.metrics,
    relaqs.dask,
)
SHOWN: dict[str, tuple[str, ...]] = {
    "rules": tuple(f"{rule.__module__}.{rule.__name__}" for rule in RULES),
    "rewriter": tuple(f"relaqs_engine.rewrite.{name}" for name in REWRITER),
    "engine": tuple(f"relaqs_engine.{name}" for name in ENGINE),
    "estimators": tuple(
        f"relaqs_bootstrap.{name}"
        for name in relaqs_bootstrap.__all__
        if inspect.isfunction(getattr(relaqs_bootstrap, name))
    ),
    "policies": tuple(f"{policy.__module__}.{policy.__name__}" for policy in POLICIES.values()),
    "algorithms": tuple(f"{each.__module__}.{each.__name__}" for each in ALGORITHMS.values()),
    "calls": tuple(
        f"{package.__name__}.{name}"
        for package in PUBLIC_OF_RELAQS
        for name in package.__all__
        if inspect.isfunction(getattr(package, name))
    ),
}
STEERED = (Session, OnlineQuery, Snapshot, TrainingRun)  # every call of these has an example
SHOWN_WITH_ANOTHER = {
    "Handle.start",
    "Handle.pause",
    "Handle.resume",
    "OnlineQuery.resume",
    "OnlineQuery.display",
}


def modules_with_examples() -> list[str]:
    """Return the product's modules with a prompt in their text: no other needs to be imported."""
    return [
        ".".join(path.relative_to(folder_of(package, path)).with_suffix("").parts).removesuffix(".__init__")
        for package, path in product_files()
        if PROMPT in path.read_text(encoding="utf-8")
    ]


def folder_of(package: str, path: Path) -> Path:
    """Return the folder that a package's own folder is in."""
    return next(folder for folder in path.parents if folder.name == package).parent


def named(dotted: str) -> object:
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(module), name)


def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder().find(module) if test.examples]


@contextmanager
def namespace_of(test: doctest.DocTest, tables: Path) -> Iterator[dict[str, object]]:
    """Yield the names that each example has: in the engine those of `tests/engine/example.py` and its tables.

    Elsewhere they are those that the first lines of the reference give, over fresh tables.
    """
    if not test.name.startswith("relaqs."):  # the reference shows the examples of this package alone
        yield OF_THE_ENGINE if test.name.startswith("relaqs_engine.") else {}
        return
    names: dict[str, object] = {"duckdb": duckdb, "relaqs": relaqs}
    text = "".join(example.source for example in test.examples)
    if re.search(r"\b(db|data|run|query|answer)\b", text) is None:
        yield names
        return
    shutil.rmtree("data", ignore_errors=True)
    shutil.copytree(tables, "data", copy_function=os.link)
    if re.search(r"(?<!as )\b(db|run|query|answer)\b(?! =)", text) is None:
        yield names
        return
    with relaqs.connect("data", threads=1) as db:
        names["db"] = db
        if test.name.startswith(f"{TrainingRun.__module__}.TrainingRun.") and "run = " not in text:
            exec(
                "".join(each.source for each in doctest.DocTestParser().get_examples(TrainingRun.__doc__)),
                names,
            )
        for name, line in GIVEN.items():
            if re.search(rf"\b{name}\b", text) and f"{name} = " not in text:
                exec(line, names)
        yield names


@pytest.fixture(scope="session")
def example_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `data` that the first lines of the reference make."""
    folder = tmp_path_factory.mktemp("examples")
    opening = next(
        block for block in blocks_of(DOCS / "reference" / "relaqs.md") if block.language == "python"
    )
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setitem(shuffle.__kwdefaults__, "partitions", PARTITIONS)
        exec(opening.code, names)
    names["db"].close()
    return folder / "data"


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_module_run(
    name: str, example_tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(shuffle.__kwdefaults__, "partitions", PARTITIONS)
    tests = examples_of(import_module(name))
    assert tests, f"{name} has a prompt in its text, and no example in a docstring"
    said: list[str] = []
    for test in tests:
        with namespace_of(test, example_tables) as names:
            test.globs |= names
            doctest.DocTestRunner(optionflags=OPTIONS, verbose=False).run(test, out=said.append)
    assert not said, "".join(said)


@pytest.mark.parametrize("name", [name for names in SHOWN.values() for name in names])
def test_what_is_looked_up_has_an_example(name: str) -> None:
    text = inspect.getdoc(named(name)) or ""
    assert PROMPT in text, f"{name} has no example in its docstring"


@pytest.mark.parametrize("steered", STEERED)
def test_every_call_has_an_example(steered: type) -> None:
    silent = {
        function.__qualname__
        for name, member in inspect.getmembers(steered)
        if not name.startswith("_") and inspect.isfunction(function := getattr(member, "fget", member))
        if PROMPT not in (inspect.getdoc(function) or "")
    }
    assert silent - SHOWN_WITH_ANOTHER == set()
