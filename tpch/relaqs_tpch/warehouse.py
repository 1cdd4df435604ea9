"""A warehouse with TPC-H in it, and what is asked of it: 22 queries and nine trainings.

- The queries have the substitution parameters that the specification validates answers with.
- SLAQ's nine training algorithms run on tables of TPC-H, in a unit each that makes their features
  comparable.
- A warehouse knows its scale, its queries that can be estimated, and opens sessions.
- The words of `relaqs tpch` become queries, algorithms and folders, and what is wrong with one is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from relaqs_engine.catalog import Catalog
from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts import Layout
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.plan import OnlinePlan
from relaqs_engine.sql.binder import Binder

from relaqs.executors import Executor
from relaqs.memory import machine_memory_bytes
from relaqs.session import Session
from relaqs_tpch.data import TABLES, read_record

if TYPE_CHECKING:
    from relaqs.training import MiniBatchTraining, TrainingJob

QUERIES: tuple[int, ...] = tuple(range(1, 23))


def query(number: int) -> str:
    """Return the SQL text of one query, in the dialect of DuckDB.

    Q15's view is a common table expression, and Q11 keeps scale 1's fraction at every scale.
    Raises ValueError if there is no query of that number.
    Source: TPC Benchmark H Standard Specification 3.0.1, clause 2.4.
    """
    if number not in QUERIES:
        raise ValueError(f"there is no TPC-H query {number!r}; the queries are {QUERIES[0]} to {QUERIES[-1]}")
    return files("relaqs_tpch").joinpath("sql", f"{number:02}.sql").read_text(encoding="utf-8")


FEATURES = """\
l_quantity / 50 AS quantity, l_extendedprice / 100000 AS price, l_discount * 10 AS discount,
l_tax * 10 AS tax,
(l_commitdate - DATE '1995-06-17') / 1000.0 AS due, (l_receiptdate - l_shipdate) / 30.0 AS days"""
ROWS = "FROM lineitem WHERE l_orderkey % 16 = 0"
OPEN_LINES = f"SELECT {FEATURES}, l_linestatus = 'O' AS is_open {ROWS}"
PRICED = f"SELECT {FEATURES}, l_extendedprice * (1 - l_discount) / 100000 AS net {ROWS}"
COUNTS = """\
SELECT l_quantity AS pieces, l_linenumber AS line, l_discount * 100 AS discount, l_tax * 100 AS tax,
l_receiptdate - l_shipdate AS days, month(l_shipdate) AS month FROM lineitem WHERE l_orderkey % 256 = 0"""
MOST_STEPS = 40  # passes over the data: losses are flat before

# By the name in records: the algorithm's name in `relaqs.training`, the rows, and the parameters.
_JOBS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "K-Means": ("k_means", f"SELECT {FEATURES} {ROWS}", {"clusters": 12}),
    "logistic regression": ("logistic_regression", OPEN_LINES, {"target": "is_open"}),
    "linear SVM": ("linear_svm", OPEN_LINES, {"target": "is_open"}),
    "polynomial SVM": ("polynomial_svm", OPEN_LINES, {"target": "is_open", "landmarks": 30}),
    "boosted trees, classes": (
        "boosted_classifier",
        OPEN_LINES,
        {"target": "is_open", "trees": 12, "depth": 4},
    ),
    "boosted trees, regression": ("boosted_regressor", PRICED, {"target": "net", "trees": 12, "depth": 4}),
    "perceptron": ("perceptron", OPEN_LINES, {"target": "is_open", "hidden": (8,)}),
    "LDA": ("topic_model", COUNTS, {"topics": 5}),
    "linear regression": ("linear_regression", PRICED, {"target": "net"}),
}
ALGORITHMS = tuple(_JOBS)


def can_train() -> bool:
    """Whether the packages of the extra `train` are installed."""
    return all(find_spec(name) is not None for name in ("scipy", "sklearn", "threadpoolctl", "xgboost"))


def training_job(algorithm: str, seed: int = 0) -> TrainingJob | MiniBatchTraining:
    """Return one of ALGORITHMS, on a part of lineitem. Raises KeyError for another name."""
    from relaqs import training

    name, sql, parameters = _JOBS[algorithm]
    if "seed" in signature(training.ALGORITHMS[name]).parameters:
        parameters = {**parameters, "seed": seed}
    return training.make_training_job(name, sql, **parameters)


MEMORY_SHARE = 0.5  # of the machine's, for all sessions of a process together


@dataclass(frozen=True, slots=True)
class Warehouse:
    """A folder of TPC-H tables. scale: NaN where `relaqs tpch generate` did not make it."""

    folder: Path
    catalog: Catalog
    scale: float

    @classmethod
    def open(cls, folder: Path) -> Warehouse:
        """Return the warehouse. Raises LayoutError if tables of TPC-H are missing, or half made."""
        catalog = Catalog.open(folder)
        missing = [table.name for table in TABLES if table.name not in catalog.tables]
        if missing:
            raise LayoutError(
                f"{folder} has no {', '.join(missing)}; make the tables with "
                f"`relaqs tpch generate --scale 1 --into {folder}`"
            )
        made = read_record(folder)
        return cls(folder, catalog, math.nan if made is None else made.recipe.scale)

    @property
    def label(self) -> str:
        return self.folder.name if math.isnan(self.scale) else f"scale {self.scale:g}"

    @property
    def contents(self) -> str:
        """Which data this is, and how it is laid out, in words: where they are equal, so are the answers."""
        alike: dict[tuple[int, int], list[str]] = {}
        for layout in self.catalog.layouts:
            if isinstance(layout, Layout) and layout.is_sampled:
                alike.setdefault((len(layout.partitions), layout.seed), []).append(layout.table)
        sampled = [
            f"{', '.join(tables)} in {partitions} partitions of seed {seed}"
            for (partitions, seed), tables in alike.items()
        ]
        return f"{self.label} with {' and '.join(sampled) or 'nothing sampled'}"

    def plans(self, numbers: tuple[int, ...] = QUERIES) -> dict[int, OnlinePlan]:
        """Return how each of these queries is answered here."""
        binder = Binder(self.catalog)
        return {number: plan_query(query(number), self.catalog, binder) for number in numbers}

    def progressive_queries(self) -> list[int]:
        """Return the queries that have estimates before the end."""
        return [number for number, plan in self.plans().items() if plan.is_estimated]

    def session(self, executor: Executor, *, is_embedded: bool, of: int = 1) -> Session:
        """Return a session over it. of: how many sessions share the process's memory."""
        share = MEMORY_SHARE if is_embedded else MEMORY_SHARE / 2
        return Session(
            self.catalog,
            {},
            executor,
            memory_limit_bytes=int(machine_memory_bytes() * share / of),
            exact_threads=executor.capacity if is_embedded else 1,
        )


DEFAULT_OUT = Path("tpch-results")

out_option = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_OUT,
    show_default=True,
    metavar="DIR",
    help="Where records are kept; what they hold already is not measured again.",
)


def query_numbers(text: str) -> list[int]:
    """Return the queries of a comma-separated list, each once; empty for an empty text."""
    numbers = []
    for word in filter(None, (each.strip().lstrip("qQ") for each in text.split(","))):
        if not word.isdigit() or int(word) not in QUERIES:
            raise click.BadParameter(
                f"there is no TPC-H query {word!r}; the queries are {QUERIES[0]} to {QUERIES[-1]}, e.g. 1,6",
                param_hint="--queries",
            )
        numbers.append(int(word))
    return list(dict.fromkeys(numbers))


def algorithms(text: str | None, *, is_default: bool) -> list[str]:
    """Return the training algorithms of a semicolon-separated list; `all`, `none`, or all where default.

    Raises UsageError if the packages to train are missing and algorithms were asked for by name.
    """
    if text == "none" or (text is None and not is_default):
        return []
    if not can_train():
        if text is None:
            click.echo("Training is left out; to measure it, too: pip install 'relaqs[train]'", err=True)
            return []
        raise click.UsageError("training needs more packages: pip install 'relaqs[train]'")
    if text in (None, "all"):
        return list(ALGORITHMS)
    names = [name.strip() for name in str(text).split(";") if name.strip()]
    for name in names:
        if name not in ALGORITHMS:
            near = get_close_matches(name, ALGORITHMS, n=2, cutoff=0.3)
            hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
            raise click.BadParameter(
                f"there is no algorithm {name!r}; {hint}They are: {'; '.join(ALGORITHMS)}",
                param_hint="--training",
            )
    return names


def listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))
