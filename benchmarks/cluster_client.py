"""A client process of `benchmarks.cluster_shares`: three queries and a training job, again and again.

    python -m benchmarks.cluster_client ADDRESS WAREHOUSE POLICY SLOT,SLOT,…

A slot is a number of a query of the benchmark, or of its training job. It reads lines of JSON from stdin,
{"slot": weight}, and writes one for each answer: {"slot": …, "answer": …}. It ends when stdin does.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from relaqs_tpch import query

import relaqs
from relaqs.queries.online_query import OnlineQuery
from relaqs.training import KMeans
from relaqs.training.run import TrainingRun

QUERIES = (
    1,
    3,
    5,
    6,
    12,
    14,
)  # each with an estimate, over the layouts of a warehouse with one layout a table
TRAININGS = (
    KMeans("SELECT l_quantity, l_extendedprice, l_discount, l_tax FROM lineitem", clusters=8, tolerance=0),
    KMeans("SELECT l_extendedprice, l_discount, l_tax FROM lineitem", clusters=5, tolerance=0),
)
SLOTS = len(QUERIES) + len(TRAININGS)
PASSES = 200  # of a training run, before the next one


def fingerprint(answer: pa.Table) -> str:
    """Return what two answers have in common if and only if they are the same, bit for bit."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, answer.schema) as writer:
        writer.write_table(answer.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()


class Slot:
    """One job after another of the same kind, on a thread, until it is told to end."""

    def __init__(self, db: relaqs.Session, number: int) -> None:
        self._db = db
        self._number = number
        self._changed = threading.Lock()
        self._weight = 1.0
        self._is_over = False
        self._job: OnlineQuery | TrainingRun | None = None
        self._thread = threading.Thread(target=self._run, name=f"slot-{number}")

    def start(self) -> None:
        self._thread.start()

    def set_weight(self, weight: float) -> None:
        with self._changed:
            self._weight = weight
            if self._job is not None:
                self._job.priority = weight

    def end(self) -> None:
        with self._changed:
            self._is_over = True
            if self._job is not None:
                self._job.stop()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            job.wait()
            if isinstance(job, OnlineQuery) and job.state == "exact" and job.latest is not None:
                line = {"slot": self._number, "answer": fingerprint(job.latest.estimate)}
                print(json.dumps(line), flush=True)

    def _next(self) -> OnlineQuery | TrainingRun | None:
        with self._changed:
            if self._is_over:
                return None
            if self._number < len(QUERIES):
                self._job = self._db.online_sql(query(QUERIES[self._number]), priority=self._weight)
            else:
                training = TRAININGS[self._number - len(QUERIES)]
                self._job = self._db.train(training, priority=self._weight, max_steps=PASSES)
            return self._job


def main(words: Sequence[str]) -> None:
    address, warehouse, policy, numbers = words
    with relaqs.connect(Path(warehouse), cluster=address, policy=policy) as db:
        slots = {number: Slot(db, number) for number in map(int, numbers.split(","))}
        for slot in slots.values():
            slot.start()
        for line in sys.stdin:
            for number, weight in json.loads(line).items():
                if int(number) in slots:
                    slots[int(number)].set_weight(weight)
        for slot in slots.values():
            slot.end()
        for slot in slots.values():
            slot.join()


if __name__ == "__main__":
    main(sys.argv[1:])
