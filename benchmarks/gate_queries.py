"""What the gate asks: each estimated aggregate, each function inside one, and a few around them.

Expressions are packed into queries, so that the partial aggregates of eight are computed at once. Each
column is judged by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.gate_data import Table

Asks = Literal["cells", "headline", "stops"]

COLUMNS = 8  # in one query

# {x}, {y}: numeric columns. {c}: a condition. {d}: a date.
AGGREGATES = (
    "sum({x})",
    "avg({x})",
    "stddev({x})",
    "var_samp({x})",
    "count(*) FILTER (WHERE {c})",
    "sum({x}) / count(*)",
    "sum({x}) FILTER (WHERE {c}) / sum({x})",
    "sum({x}) / sum({y})",
)
MOMENTS = (
    "corr({y}, {x})",
    "covar_samp({y}, {x})",
    "regr_slope({y}, {x})",
    "regr_intercept({y}, {x})",
    "regr_r2({y}, {x})",
    "skewness({x})",
    "kurtosis({x})",
    "sem({x})",
    "skewness(ln(1 + abs({x})))",
    "kurtosis({y})",
    "corr({y}, least({x}, 100))",
)
# Each in the place of the column, in one aggregate that adds up and one that does not.
WRAPPINGS = (
    "CAST({x} AS BIGINT)",
    "CAST({x} AS DOUBLE)",
    "CAST({x} AS DECIMAL(18, 2))",
    "TRY_CAST({x} AS DOUBLE)",
    "{x} / 2.0",
    "{x} * -1",
    "round({x}, 1)",
    "abs({x})",
    "coalesce({x}, 0)",
    "least({x}, 100)",
    "greatest({x}, 1)",
    "sqrt(abs({x}))",
    "ln(1 + abs({x}))",
    "CAST({x} AS DOUBLE) * {x}",
    "power({x}, 2)",
    "CASE WHEN {c} THEN {x} ELSE 0 END",
    "if({c}, {x}, NULL)",
    "nullif({x}, 0)",
    "{x} % 7",
    "month({d})",
)
_ADDING = ("sum({w})", "avg({w})", "sum({w}) FILTER (WHERE {c})", "avg({w}) FILTER (WHERE {c})")
_MOVING = ("stddev({w})", "sum({w}) / count(*)", "var_samp({w})", "sum({w}) / sum({y})")
AROUND = (
    "round(avg({x}), 2)",
    "sqrt(sum(abs({x})))",
    "100.0 * sum({x}) / count(*)",
    "CAST(sum({x}) AS BIGINT)",
)
QUANTILES = ("median({x})", "quantile_cont({x}, 0.9)", "median({x} / 2.0)")
# Of the wrapped expressions, those of the core.
_CORE = (0, 9, 18, 29)


# What the error of a whole answer is asked of, by a key. {k}, {l}: the keys with most and with least groups.
HEADLINES = (
    ("{k}", ("avg({y})",)),
    ("{k}", ("avg({x})",)),
    ("month({d})", ("sum({y})", "count(*) FILTER (WHERE {c})")),
    ("month({d})", ("avg({x})",)),
    ("{l}", ("count(*) FILTER (WHERE {c})",)),
)
# Numbers of distinct values that are stopped at a target, by a key and of some rows. {u}: the cluster key.
STOPS = (
    ("", "{c}", "count(DISTINCT {u})"),
    ("{l}", "", "count(DISTINCT {u})"),
    ("", "", "count(DISTINCT CAST({x} * 10 AS BIGINT))"),
)


@dataclass(frozen=True, slots=True)
class Query:
    """Expressions of one SELECT, asked together. key: what is grouped by, "" for nothing.

    where: which rows count, "" for all. asks: what is judged of the answers: each cell, the one error of each
    snapshot, or that of the snapshot at which a query with a target stops.
    """

    table: Table
    key: str
    expressions: tuple[str, ...]
    where: str = ""
    asks: Asks = "cells"

    @property
    def by(self) -> str:
        """Return what is grouped by and which rows count, for the reader."""
        return f"{self.key} where {self.where}".lstrip() if self.where else self.key

    @property
    def sql(self) -> str:
        """Return the query; its columns are e0, e1, …, the group k."""
        return self.sql_of(range(len(self.expressions)))

    def sql_of(self, places: Iterable[int]) -> str:
        """Return the query with nothing but the expressions at these places."""
        columns = [f"{self.expressions[i]} AS e{i}" for i in places]
        keys = [f"{self.key} AS k"] if self.key else []
        rows = f"{self.table.inner or self.table.name}{self.table.joined}" + (
            f" WHERE {self.where}" if self.where else ""
        )
        grouped = f" GROUP BY {self.key}" if self.key else ""
        return f"SELECT {', '.join(keys + columns)} FROM {rows}{grouped}"


def wrapped() -> Iterator[str]:
    """Yield each wrapping in two aggregates, which change from one wrapping to the next."""
    for i, wrapping in enumerate(WRAPPINGS):
        for around in (_ADDING[i % len(_ADDING)], _MOVING[i // 2 % len(_MOVING)]):
            yield around.replace("{w}", wrapping)


def queries_of(table: Table, *, core: bool = False, containing: Sequence[str] = ()) -> list[Query]:
    """Return the queries over a table: all by its largest key, the aggregates also by others and by none.

    core: the aggregates, two quantiles and a few wrappings alone. containing: only expressions with one of
    these in their text.
    """
    most, *others = table.keys
    around = (*AROUND, *(text for i, text in enumerate(wrapped()) if not core or i in _CORE))
    asked = [(most, "", AGGREGATES), (most, "", MOMENTS), (most, "", around), (most, "", QUANTILES)]
    asked += [] if core else [(key, "", AGGREGATES) for key in others]
    asked += [("", "", AGGREGATES + QUANTILES[:1])]
    asked += [("", where, AGGREGATES) for where in table.where]
    queries = []
    for key, where, templates in asked:
        texts = [_filled(template, table) for template in templates]
        texts = [text for text in texts if not containing or any(part in text for part in containing)]
        packed = (tuple(texts[i : i + COLUMNS]) for i in range(0, len(texts), COLUMNS))
        queries += [Query(table, key, each, where) for each in packed]
    return queries


def questions_of(table: Table) -> list[Query]:
    """Return what the errors of whole answers are asked of."""
    headlines = [
        Query(table, _filled(key, table), tuple(_filled(each, table) for each in texts), asks="headline")
        for key, texts in HEADLINES
    ]
    stops = [
        Query(table, _filled(key, table), (_filled(text, table),), _filled(where, table), "stops")
        for key, where, text in STOPS
    ]
    return [*dict.fromkeys(headlines), *dict.fromkeys(stops)]


def _filled(template: str, table: Table) -> str:
    most, *_, least = (*table.keys, table.keys[-1])
    return template.format(
        x=table.value, y=table.other, c=table.condition, d=table.day, u=table.cluster_key, k=most, l=least
    )
