"""What is asked while faults happen, what the right answers are, and how the answers that came are judged."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from relaqs_tpch.exact import difference
from relaqs_tpch.warehouse import query
from rich.table import Table

import relaqs
from benchmarks.plain_duckdb import PlainDuckDB, files_of_folder
from relaqs.training import KMeans

MIX = {
    "mergeable, Q1": query(1),
    "mergeable, Q6": query(6),
    "mergeable join, Q3": query(3),
    "mergeable join, Q14": query(14),
    "refined": "SELECT count(*) AS n, sum(l_extendedprice) AS price FROM lineitem "
    "WHERE l_quantity < (SELECT avg(l_quantity) FROM lineitem)",
    "refined, in HAVING": "SELECT l_suppkey, sum(l_quantity) AS q FROM lineitem GROUP BY l_suppkey "
    "HAVING sum(l_quantity) > (SELECT 0.0015 * sum(l_quantity) FROM lineitem)",
    "around": "SELECT l_shipmode, n, rank() OVER (ORDER BY n DESC) AS place "
    "FROM (SELECT l_shipmode, count(*) AS n FROM lineitem GROUP BY l_shipmode) AS modes",
    "aggregate of aggregates": "SELECT max(n) AS most, avg(n) AS mean "
    "FROM (SELECT l_suppkey, count(*) AS n FROM lineitem GROUP BY l_suppkey) AS parts",
    "exact": "SELECT length(string_agg(DISTINCT l_shipinstruct, '')) AS n FROM lineitem",
    "rows": "SELECT l_orderkey, l_linenumber, l_quantity FROM lineitem "
    "WHERE l_shipdate = DATE '1995-03-15' AND l_quantity > 40",
    "quantiles": "SELECT l_returnflag, median(l_extendedprice) AS mid, "
    "quantile_cont(l_discount, 0.9) AS high FROM lineitem GROUP BY l_returnflag",
}
TRAINED = KMeans(
    "SELECT l_quantity, l_extendedprice, l_discount, l_tax FROM lineitem", clusters=8, tolerance=0
)
PASSES = 15

EQUAL, CLEAR, UNCLEAR, WRONG, HUNG = "equal", "clear errors", "other errors", "wrong", "hung"
VERDICTS = (EQUAL, CLEAR, UNCLEAR, WRONG, HUNG)
GOOD = (EQUAL, CLEAR)


@dataclass(frozen=True, slots=True)
class Truth:
    """What DuckDB says of the original files, and what a run without faults learns."""

    answers: tuple[pa.Table, ...]
    losses: tuple[float, ...]

    @classmethod
    def of(cls, originals: Path, warehouse: Path) -> Truth:
        with PlainDuckDB(files_of_folder(originals), threads=2) as duckdb:
            answers = tuple(duckdb.table(sql) for sql in MIX.values())
        with relaqs.connect(warehouse) as db:
            run = db.train(TRAINED, max_steps=PASSES)
            run.result()
        return cls(answers, run.losses)

    def verdict(self, number: int, said: Mapping[str, Any] | None) -> tuple[str, str]:
        """Return the verdict on an answer, and why. said: what a client said; None: nothing in time."""
        if said is None:
            return HUNG, "nothing was said in time"
        if "error" in said:
            return (
                CLEAR if said["is_clear"] and said["text"] else UNCLEAR
            ), f"{said['error']}: {said['text']}"
        if "losses" in said:
            return (EQUAL, "") if tuple(said["losses"]) == self.losses else (WRONG, "it has other losses")
        encoded = said["answer"] if "answer" in said else said["served"]
        found = pa.ipc.open_stream(base64.b64decode(encoded)).read_all()
        if "served" in said:  # the types are those of the protocol
            found = found.cast(self.answers[number].schema)
        wrong = difference(self.answers[number], found)
        return (EQUAL, "") if wrong is None else (WRONG, wrong)


@dataclass
class Tally:
    """How often what happened: (kind, verdict) → times.

    longest: after how many seconds the last answer to queries beside a kind came.
    notes: of each verdict that is not `EQUAL`.
    """

    counted: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, kind: str, what: str, verdict: tuple[str, str]) -> None:
        self.counted[kind, verdict[0]] += 1
        if verdict[0] != EQUAL:
            self.notes.append(f"{verdict[0]}, {kind}, {what}: {verdict[1]}")

    @property
    def is_good(self) -> bool:
        return all(verdict in GOOD for _, verdict in self.counted)

    def rows(self, kinds: Sequence[str]) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("fault", "times", *VERDICTS, "longest s")]
        for kind in kinds:
            counts = (str(self.counted[kind, verdict]) for verdict in VERDICTS)
            longest = f"{self.longest[kind]:.1f}" if kind in self.longest else ""
            rows.append((kind, str(self.faults[kind]), *counts, longest))
        return rows

    def table(self, kinds: Sequence[str]) -> Table:
        head, *others = self.rows(kinds)
        table = Table(*head)
        for row in others:
            table.add_row(*row)
        return table
