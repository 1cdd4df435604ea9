"""What a case is made of, and a covering array: cases in which every pair of values meets, and most triples.

A case has one value of each dimension. The array is made greedily, as AETG does it (Cohen, Dalal, Fredman,
Patton 1997): each case begins with a pair that no case has yet, and each further dimension takes the value
that meets most pairs and triples for the first time.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Case = Mapping[str, str]

LAID_OUT = ("rows", "key", "two", "static", "appended", "compacted", "outliers", "heavy")
FILES = ("parquet", "pyarrow", "polars", "csv", "json", "duckdb", "delta")
IN_MEMORY = ("pandas", "arrow", "relation")

DIMENSIONS: dict[str, tuple[str, ...]] = {
    "table": (*LAID_OUT, *FILES, *IN_MEMORY),
    "second": ("rows", "key", "static", "appended", "parquet", "arrow"),
    "type": (
        *("bool", "tinyint", "integer", "bigint", "hugeint", "ubigint", "decimal", "decimal38", "float"),
        *("double", "date", "time", "timestamp", "timestamp_ns", "timestamptz", "interval", "text", "blob"),
        *("enum", "uuid", "struct", "list", "map", "rare"),
    ),
    "odd": ("plain", "nulls", "null_alone", "ends", "nan", "infinite"),
    "join": (
        *("one", "inner", "left", "right", "full", "semi", "anti", "cross", "asof", "natural", "using"),
        *("brackets", "self", "comma", "derived", "cte", "lateral", "three"),
    ),
    "subquery": (
        *("none", "scalar", "unnamed", "exists", "not_exists", "in", "not_in", "correlated", "correlated_in"),
        "any",
    ),
    "place": ("select", "where", "having", "group_by"),
    "predicate": ("none", "compare", "null", "among", "between", "either", "false", "number", "parameter"),
    "grouping": (
        *("none", "key", "two_keys", "expression", "value", "rollup", "cube", "sets", "rollup_expression"),
        *("all", "distinct", "distinct_on"),
    ),
    "aggregate": (
        *(
            "none",
            "count",
            "sum",
            "average",
            "extremes",
            "extremes_n",
            "arg",
            "spread",
            "moments",
            "regression",
        ),
        *("quantile", "sketch", "bits", "truth", "lists", "first", "histogram", "several"),
    ),
    "inside": ("plain", "distinct", "filter", "order", "distinct_filter"),
    "tail": ("none", "having", "order", "limit", "top", "offset"),
    "around": (
        *("none", "window", "window_over", "qualify", "union", "union_all", "except", "intersect", "pivot"),
        *("unpivot", "recursive", "nested", "with"),
    ),
    "door": ("one_thread", "threads", "result", "cluster", "csv", "jsonl", "terminal", "serve"),
    "zone": ("UTC", "America/New_York"),
    "options": ("usual", "seed", "one_batch", "batches", "anytime", "soon", "little_memory", "confidence"),
}

FORBIDDEN: tuple[tuple[str, tuple[str, ...], str, tuple[str, ...]], ...] = (
    # dimension, values, and what they never meet: the other dimension's values
    ("table", IN_MEMORY, "door", ("csv", "jsonl", "terminal")),  # the program opens folders and files
    ("grouping", ("distinct_on",), "aggregate", DIMENSIONS["aggregate"][1:]),  # it picks rows
    ("grouping", ("distinct_on",), "place", ("having", "group_by")),
    ("grouping", ("distinct_on",), "tail", ("having",)),
    ("grouping", ("rollup", "cube", "sets", "rollup_expression"), "place", ("group_by",)),
    ("door", ("cluster",), "options", ("little_memory",)),  # Dask's workers have the limit of their own
)


def by_every_door(case: Case) -> list[Case]:
    """Return a case once for each door that it may be asked by."""
    never = {
        each
        for first, some, second, others in FORBIDDEN
        for each in (others if second == "door" and case[first] in some else ())
    } | {
        each
        for first, some, second, others in FORBIDDEN
        for each in (some if first == "door" and case[second] in others else ())
    }
    return [{**case, "door": door} for door in DIMENSIONS["door"] if door not in never]


def _may_be(name: str, value: str, only: Mapping[str, str]) -> bool:
    """Return whether a case may have a value of a dimension, where some dimensions have one value alone."""
    return only.get(name, value) == value and not any(
        (name == second and value in others and only.get(first) in some)
        or (name == first and value in some and only.get(second) in others)
        for first, some, second, others in FORBIDDEN
    )


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many pairs or triples there are, and how many of them some case has."""

    met: int
    all: int

    def __str__(self) -> str:
        return f"{self.met:,} of {self.all:,} ({self.met / self.all:.1%})"


class CoveringArray:
    """Cases one after another, the same for the same seed. `pairs` and `triples` say what they cover so far.

    Args:
        seed: of all that is drawn.
        only: dimension → the one value that it may have.
    """

    def __init__(self, seed: int, only: Mapping[str, str] | None = None) -> None:
        self._random, self._only = random.Random(seed), only
        self._values = {
            name: tuple(each for each in values if _may_be(name, each, only or {}))
            for name, values in DIMENSIONS.items()
        }
        for name, value in (only or {}).items():
            if name not in DIMENSIONS or value not in DIMENSIONS[name]:
                known = DIMENSIONS.get(name, tuple(DIMENSIONS))
                raise SystemExit(f"there is no {name}={value}; choose one of {', '.join(known)}")
        self._names = tuple(self._values)
        self._allowed = self._pairs_allowed()
        self._pairs_left = {each: allowed.copy() for each, allowed in self._allowed.items()}
        self._triples_left = {
            (a, b, c): self._allowed[a, b][:, :, None]
            & self._allowed[a, c][:, None, :]
            & self._allowed[b, c][None, :, :]
            for a, b, c in combinations(range(len(self._names)), 3)
        }
        self._all = self._left()

    def _pairs_allowed(self) -> dict[tuple[int, int], NDArray[np.bool_]]:
        allowed = {}
        for a, b in combinations(range(len(self._names)), 2):
            names = self._names[a], self._names[b]
            table = np.ones((len(self._values[names[0]]), len(self._values[names[1]])), bool)
            for first, some, second, others in FORBIDDEN:
                for i, j in np.ndindex(table.shape):
                    met = {names[0]: self._values[names[0]][i], names[1]: self._values[names[1]][j]}
                    table[i, j] &= not (met.get(first) in some and met.get(second) in others)
            allowed[a, b] = table
        return allowed

    def __iter__(self) -> Iterator[Case]:
        """Yield cases that cover what is left, for ever: what is covered is then drawn again."""
        while True:
            chosen = self._begun()
            order = [d for d in range(len(self._names)) if d not in chosen]
            self._random.shuffle(order)
            for dimension in order:
                chosen[dimension] = self._best(dimension, chosen)
            self._mark(chosen)
            yield {self._names[d]: self._values[self._names[d]][chosen[d]] for d in range(len(self._names))}

    def _begun(self) -> dict[int, int]:
        """Return a pair that no case has, two dimensions with their values; or one that leaves triples."""
        left = [(key, table) for key, table in self._pairs_left.items() if table.any()]
        if not left:
            triples = [(key, table) for key, table in self._triples_left.items() if table.any()]
            if not triples:
                return {}
            key3, table3 = self._random.choices(triples, [int(t.sum()) for _, t in triples])[0]
            return dict(zip(key3, map(int, self._random.choice(np.argwhere(table3))), strict=True))
        key, table = self._random.choices(left, [int(table.sum()) for _, table in left])[0]
        return dict(zip(key, map(int, self._random.choice(np.argwhere(table))), strict=True))

    def _best(self, dimension: int, chosen: Mapping[int, int]) -> int:
        """Return the value that meets most of what is left, of those that may meet what is chosen."""
        count = len(self._values[self._names[dimension]])
        score = np.zeros(count)
        allowed = np.ones(count, bool)
        for other, value in chosen.items():
            allowed &= _row(self._allowed, (other, dimension), (value,))
            score += 100 * _row(self._pairs_left, (other, dimension), (value,))
        for (a, i), (b, j) in combinations(sorted(chosen.items()), 2):
            score += _row(self._triples_left, (a, b, dimension), (i, j))
        if not allowed.any():
            raise AssertionError(f"no value of {self._names[dimension]} is allowed beside {chosen}")
        best = np.flatnonzero(allowed & (score == score[allowed].max()))
        return int(self._random.choice(best))

    def _mark(self, chosen: Mapping[int, int]) -> None:
        for key in self._pairs_left:
            self._pairs_left[key][tuple(chosen[d] for d in key)] = False
        for key3 in self._triples_left:
            self._triples_left[key3][tuple(chosen[d] for d in key3)] = False

    def _left(self) -> tuple[int, int]:
        return (
            sum(int(table.sum()) for table in self._pairs_left.values()),
            sum(int(table.sum()) for table in self._triples_left.values()),
        )

    def covered_by(self, cases: Iterable[Case]) -> tuple[Coverage, Coverage]:
        """Return how many pairs and triples these cases have."""
        fresh = CoveringArray(0, self._only)
        for case in cases:
            fresh._mark({d: fresh._values[name].index(case[name]) for d, name in enumerate(fresh._names)})
        return fresh.coverage

    @property
    def coverage(self) -> tuple[Coverage, Coverage]:
        """The pairs and the triples that the cases so far have."""
        pairs, triples = (
            Coverage(all - left, all) for all, left in zip(self._all, self._left(), strict=True)
        )
        return pairs, triples


def _row(
    tables: Mapping[Any, NDArray[np.bool_]], key: tuple[int, ...], values: tuple[int, ...]
) -> NDArray[np.bool_]:
    """Return what a table says of each value of the key's last dimension, given values of the others."""
    order = sorted(range(len(key)), key=key.__getitem__)
    index = tuple(values[place] if place < len(values) else slice(None) for place in order)
    return tables[tuple(sorted(key))][index]
