"""The record of one job run alone: a query or a training run, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.sharing.view import Kind
from relaqs_lab.records.store import column, number
from relaqs_lab.records.trace import Pipeline, Trace

LEAST_CORE_SECONDS = 1e-9  # of a step too quick to measure

_ADDED = ("tasks", "held_seconds", "queued_seconds", "fold_seconds")  # later than the first records


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """What each step gave. Every array has shape (steps,).

    The last four are NaN in records of earlier versions.

    Attributes:
        work_done: the share of the rows that was read, or the number of passes over them.
        quality: the error that the step claimed (`Snapshot.error`), or the loss. It is inf while unknown.
        half_width: the mean relative half-width of the certified cells.
        true_error: how far the estimates were from the exact answer, or how far the loss was above the
            lowest one.
        progress: the result-delta metric.
        elapsed_seconds: since the job was submitted.
        core_seconds: what the step's tasks used.
        cells: the number of cells in the exact answer.
        certified: how many of these cells were certified at this step.
        held: how many of the certified cells had an interval with the true value in it.
        tasks: how many cores the step could use.
        held_seconds: how long the step's tasks held cores, all together.
        queued_seconds: when its tasks were queued, since the job was submitted.
        fold_seconds: the time between the end of its last task and its result.
    """

    work_done: FloatArray
    quality: FloatArray
    half_width: FloatArray
    true_error: FloatArray
    progress: FloatArray
    elapsed_seconds: FloatArray
    core_seconds: FloatArray
    cells: FloatArray
    certified: FloatArray
    held: FloatArray
    tasks: FloatArray
    held_seconds: FloatArray
    queued_seconds: FloatArray
    fold_seconds: FloatArray

    @classmethod
    def of_record(cls, content: Mapping[str, Any]) -> Steps:
        unknown = {name: [None] * len(content["work_done"]) for name in _ADDED}
        known = {**unknown, **content}
        steps = cls(
            **{
                each.name: column(known, each.name, np.inf if each.name == "quality" else np.nan)
                for each in fields(cls)
            }
        )
        if len({len(getattr(steps, each.name)) for each in fields(cls)}) != 1 or not len(steps.work_done):
            raise ValueError("the columns of the steps have different lengths, or none")
        return steps

    def as_record(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def trace(self, name: str, kind: Kind, other_core_seconds: float = 0.0) -> Trace:
        """Return what a simulator replays: steps cost what their tasks held cores for.

        other_core_seconds: what the process used besides. In a record that does not tell what was held and
        how many tasks there were, steps cost what they computed and an equal part of this, and bound nothing.
        """
        is_known = bool(np.isfinite(self.held_seconds).all() and np.isfinite(self.fold_seconds).all())
        computed = self.core_seconds + max(other_core_seconds, 0.0) / len(self.core_seconds)
        return Trace(
            name=name,
            kind=kind,
            work_done=self.work_done,
            quality=self.quality,
            true_error=self.true_error,
            core_seconds=np.maximum(self.held_seconds if is_known else computed, LEAST_CORE_SECONDS),
            progress=self.progress,
            pipeline=self._pipeline() if is_known else None,
        )

    def _pipeline(self) -> Pipeline:
        return Pipeline(
            tasks=np.maximum(self.tasks, 1.0),
            fold_seconds=self.fold_seconds,
            start_seconds=float(self.queued_seconds[0]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class QueryRun:
    """One job, alone on its cores, to its end.

    Attributes:
        name: e.g. Q6.
        kind: query, exact or training.
        data: which, and how it is laid out, in words.
        scale: of TPC-H data. NaN if it is unknown.
        run: which repetition.
        mode: see `Snapshot.mode`.
        core_seconds: of the whole process meanwhile.
        duckdb_seconds: plain DuckDB on the same files with as many threads, just before or after; NaN for
            training.
        equals_duckdb: whether the last answer is DuckDB's.
    """

    kind_of_record: ClassVar[str] = "query run"

    name: str
    kind: Kind
    data: str
    scale: float
    seed: int
    run: int
    threads: int
    mode: str
    steps: Steps
    core_seconds: float
    duckdb_seconds: float
    equals_duckdb: bool
    circumstances: Mapping[str, Any]

    @property
    def key(self) -> tuple[object, ...]:
        """What two runs of one measurement have in common; one of them is enough."""
        return (self.name, self.data, self.seed, self.run, self.threads)

    @property
    def trace(self) -> Trace:
        """The run for a simulator."""
        other = self.core_seconds - float(self.steps.core_seconds.sum())
        return self.steps.trace(self.name, self.kind, other)

    @property
    def first_seconds(self) -> float:
        return float(self.steps.elapsed_seconds[0])

    @property
    def exact_seconds(self) -> float:
        return float(self.steps.elapsed_seconds[-1])

    def seconds_within(self, error: float) -> float:
        """Return the time of the first snapshot that claims at most this error; the exact one does."""
        at = np.flatnonzero(self.steps.quality <= error)
        return float(self.steps.elapsed_seconds[at[0]]) if len(at) else self.exact_seconds

    @property
    def coverage(self) -> float:
        """The share of certified cells, over all snapshots but the exact one, whose intervals held."""
        certified, held = self.steps.certified[:-1].sum(), self.steps.held[:-1].sum()
        return float(held / certified) if certified else np.nan

    @classmethod
    def of_record(cls, content: Mapping[str, Any]) -> QueryRun:
        """Return the run of a record. Raises KeyError, TypeError or ValueError for one that is broken."""
        run = cls(
            name=str(content["name"]),
            kind=Kind[str(content["kind"]).upper()],
            data=str(content["data"]),
            scale=number(content, "scale"),
            seed=int(content["seed"]),
            run=int(content["run"]),
            threads=int(content["threads"]),
            mode=str(content["mode"]),
            steps=Steps.of_record(content["steps"]),
            core_seconds=number(content, "core_seconds"),
            duckdb_seconds=number(content, "duckdb_seconds"),
            equals_duckdb=bool(content["equals_duckdb"]),
            circumstances=dict(content["circumstances"]),
        )
        _ = run.trace  # raises for steps that are no trace
        return run

    def as_record(self) -> dict[str, Any]:
        record = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**record, "kind": self.kind.name.lower(), "steps": self.steps.as_record()}
