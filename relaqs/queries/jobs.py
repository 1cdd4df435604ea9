"""What the jobs of all queries share, and the job of a query that runs as a whole.

All jobs are asked for the same things (`Asked`), give results as Arrow, and report a fold alike (`Reporter`).

| job | a step's tasks | fold | in |
|---|---|---|---|
| `WholeQueryJob` | the query itself, one task | its answer | this file |
| `WorthwhileJob` | those of another job | the other's; it gives up where the whole is sooner | this file |
| `MergeableQueryJob` | the partial query over files | merged; estimates have error bars | `folded.py` |
| `RowsQueryJob` | the query over files | rows are appended, up to the LIMIT | `folded.py` |
| `AroundQueryJob`, `RefinedQueryJob` | those of other jobs | an outer query | `composite.py` |
| `SampledThenExactJob` | a sample, then the query | the last is exact | `sampled_then_exact.py` |

Each is in a module that is loaded with the first plan of its kind, so that an exact answer loads no
estimator.

**Checkpoints.** The state of a folded query can be kept in a file, so that it goes on from there after its
process died (`relaqs/jobs/checkpoint.py`). A file belongs to one query over one state of the data: what it
was made for is in it, and anything else is not taken.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import DUCKDB_VERSION, Cursor, DatabaseConfig
from relaqs_engine.errors import RelaqsError, WholeIsSoonerError
from relaqs_engine.execution.estimate import DEFAULT_JUDGE, Estimate, Judge, present_exact
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plans.plan import IntervalRequest, OnlinePlan, WholePlan

from relaqs.executors.duck_process import QueryWork
from relaqs.jobs.checkpoint import StatePace, check_is_of_no_run, checked_path, read_content, write_content
from relaqs.jobs.job import Job, Step, StepReport, Task, TaskKey, TaskResult
from relaqs.progress import ResultDelta, cells_of
from relaqs.queries.options import QueryOptions

if TYPE_CHECKING:
    from relaqs_engine.execution.state import EstimateCosts

MOST_CELLS = 2_000  # whose moves are followed, 3 ms a snapshot; of larger answers the error must tell


@dataclass(frozen=True, slots=True)
class Asked:
    """What a query's job is asked for.

    Attributes:
        database_config: of the database that its tasks run on.
        request: which intervals.
        seed: of the order of partitions.
        batches: so many equal mini-batches, instead of growing ones.
        watch: the columns whose error counts, None for all.
        judge: how their cells' errors become one.
        may_run_whole: whether it may give up after an estimate, where the whole query costs less than more.
        state_bytes: what is kept to estimate from may take these; beyond them the query runs as a whole.
        target: the error at which it stops, where one is asked for; inf: none.
    """

    database_config: DatabaseConfig
    request: IntervalRequest = field(default_factory=IntervalRequest)
    seed: int = 0
    batches: int | None = None
    watch: tuple[str, ...] | None = None
    judge: Judge = DEFAULT_JUDGE
    may_run_whole: bool = False
    state_bytes: float = math.inf
    target: float = math.inf


@dataclass(frozen=True, slots=True)
class JobSetting:
    """What a job with estimates has beside its plan.

    Attributes:
        id: of the job.
        catalog: the tables that it reads.
        asked: what it is asked for.
        state_cursor: a cursor of the job's own, where its state is kept; it is closed with the last fold.
        exact_config: of the database that reads row groups, and runs what is not estimated.
    """

    id: str
    catalog: Catalog
    asked: Asked
    state_cursor: Cursor
    exact_config: DatabaseConfig


def arrow_of(result: TaskResult) -> pa.Table:
    assert isinstance(result.value, pa.Table), result
    return result.value


def own_columns(estimate: Estimate) -> pa.Table:
    """Return the columns of the query, without those of its intervals."""
    return estimate.table.select(list(range(len(estimate.columns))))


class Reporter:
    """Reports what a query's folds gave.

    watch: the columns that define its error and its progress. judge: what makes one error of theirs.
    """

    def __init__(self, watch: tuple[str, ...] | None, judge: Judge = DEFAULT_JUDGE) -> None:
        self._watch = watch
        self._judge = judge
        self._moved = ResultDelta()
        self._waiting: tuple[Estimate, ...] | None = None  # the first one, until there is a second
        self._quality = math.inf

    def report(
        self, step: Step, results: Sequence[TaskResult], estimate: Estimate | None, fraction: float = 0.0
    ) -> StepReport:
        """Report a fold. Where no estimate was made after it, the error is still that of the last one.

        fraction: the share of the rows that was scanned, where no estimate tells it.
        """
        if estimate is not None:
            self._quality, fraction = estimate.relative_error(self._watch, self._judge), estimate.fraction
        return StepReport(
            step=step.index,
            quality=self._quality,
            work_done=fraction,
            core_seconds=sum(result.core_seconds for result in results),
            is_final=estimate is not None and estimate.is_exact,
            progress=math.nan if estimate is None else self.progress(estimate),
        )

    def progress(self, estimate: Estimate) -> float:
        """Return how far the watched cells moved since the last estimate; call it once for each.

        NaN where they are too many to follow, or none, and at the end, which is no estimate. While none is
        certified, as in answers without error bars, all count. The first is new as a whole, whatever it has.
        """
        if estimate.is_exact or not 0 < estimate.values.size <= MOST_CELLS:
            return math.nan
        if self._waiting is None:
            self._waiting = (estimate,)
            return 1.0 if np.isfinite(estimate.values).any() else math.nan
        newest, self._waiting = (*self._waiting, estimate), ()
        for cells in (cells_of(each, self._watch) for each in newest):
            if not cells.counts.any():
                cells = replace(cells, counts=np.isfinite(cells.values))
            moved = self._moved.update(cells) if cells.counts.any() else math.nan
        return moved


class EstimatingJob(Job, Protocol):
    """A job whose steps give estimates of one query's answer."""

    @property
    def latest(self) -> Estimate | None:
        """The newest estimate, None before the first."""
        ...

    @property
    def folded(self) -> int:
        """How many mini-batches it holds."""
        ...

    @property
    def batch_count(self) -> int: ...

    @property
    def fractions(self) -> tuple[float, ...]:
        """The share of the rows that has been scanned after each mini-batch."""
        ...

    def close(self) -> None:
        """Give back the merged state. Safe to call twice."""
        ...


LEAST_OVERDUE_SECONDS = 0.5
OVERDUE = 2.0
"""So many times as long as predicted a query may run as a whole, and for the least time, before estimates."""


class WholeQueryJob:
    """Runs the query once, whole, as one task: for queries without a sound approximation.

    Where its plan says how it would be estimated otherwise, it ends with an OverdueError if it takes much
    longer than predicted.
    """

    batch_count = 1
    fractions = (1.0,)
    gives_up = None

    def __init__(
        self,
        id: str,
        plan: WholePlan,
        *,
        database_config: DatabaseConfig,
        core_seconds: float = math.inf,
        is_seen: bool = False,
    ) -> None:
        """Make a job.

        Args:
            database_config: of the database that it runs in.
            core_seconds: what reading its tables is predicted to take; inf: unknown.
            is_seen: whether there was an estimate, so that it may take twice as long at least.
        """
        self.id = id
        self.latest: Estimate | None = None
        self._plan = plan
        self._config = database_config
        self._core_seconds = core_seconds
        self._least_overdue_seconds = LEAST_OVERDUE_SECONDS * (2 if is_seen else 1)
        self._is_issued = False

    @property
    def folded(self) -> int:
        return 0 if self.latest is None else 1

    def next_step(self, index: int = 0) -> Step | None:
        """Return its only step. index: that of the step, where it ends a job that has others before it."""
        if self._is_issued:
            return None
        self._is_issued = True
        work = QueryWork(
            self._config,
            (),
            self._plan.exact_sql,
            self._plan.whole_reads,
            longest_seconds=self._longest_seconds(),
        )
        key, cores = TaskKey(self.id, index, 0), self._config.threads
        return Step(index, (Task(key, work, cores, whole_seconds=self._core_seconds),))

    def _longest_seconds(self) -> float:
        if self._plan.if_overdue is None:
            return math.inf
        return max(self._least_overdue_seconds, OVERDUE * self._core_seconds)

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        self.fold_state(step, results)
        return Reporter(None).report(step, results, self.latest)

    def close(self) -> None:
        """Do nothing: there is no state."""

    def fold_state(self, step: Step, results: Sequence[TaskResult]) -> bool:
        self.latest = present_exact(self._plan, arrow_of(results[0]))
        return True

    @property
    def population_rows(self) -> int:
        return 0

    def scanned_fraction(self) -> float:
        return 1.0

    def source(self) -> pa.Table:
        assert self.latest is not None  # one step, which is the first of all parts'
        return own_columns(self.latest)


_SOON = "it takes about {:.2g} s of a core, and more estimates would not be there much sooner"
_HOPELESS = "no number was certified after {:.0%} of the rows"
_EMPTY = "no row met its conditions among the first {:.2g} % of the rows"


class WorthwhileJob:
    """Estimates for as long as that is worth its cost, and then gives up: the query runs as a whole.

    Args:
        job: gives the estimates.
        costs: says until when they are worth their cost.
        ends_soon: whether nothing is asked for that needs estimates before the end.
        target: the relative error that is enough.
        has_intervals: whether there are numbers to be certified.
        has_only_totals: whether the answer has totals alone, and no row means that none was found.
    """

    def __init__(
        self,
        job: EstimatingJob,
        costs: EstimateCosts,
        *,
        ends_soon: bool,
        target: float | None,
        has_intervals: bool,
        has_only_totals: bool = False,
    ) -> None:
        self.id = job.id
        self._job = job
        self._costs = costs
        self._target = target
        self._has_intervals = has_intervals
        self._has_only_totals = has_only_totals
        self._last = costs.last_before_soon(job.fractions) if ends_soon else None
        self._issued = 0

    @property
    def latest(self) -> Estimate | None:
        return self._job.latest

    @property
    def folded(self) -> int:
        return self._job.folded

    @property
    def batch_count(self) -> int:
        return len(self.fractions)

    @property
    def fractions(self) -> tuple[float, ...]:
        """The share of the rows that has been scanned after each mini-batch."""
        fractions = self._job.fractions
        return fractions if self._last is None else (*fractions[: self._last + 1], 1.0)

    def next_step(self) -> Step | None:
        if self._last is not None and self._issued > self._last:
            return None
        if (step := self._job.next_step()) is None:
            return None
        self._issued += 1
        return step

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        report = self._job.fold(step, results)
        if report.is_final or report.gives_up is not None:
            return report
        return replace(report, gives_up=self._why_not(report))

    def _why_not(self, report: StepReport) -> WholeIsSoonerError | None:
        """Return why no more is estimated; None where it goes on."""
        if report.step == self._last:
            return WholeIsSoonerError(_SOON.format(self._costs.scan_seconds), self._costs.scan_seconds)
        newest = self.latest if self._has_intervals else None
        if newest is None:
            return None
        counted = newest.group_rows if self._has_only_totals else None
        rows = math.inf if counted is None else float(counted.sum())
        if not self._costs.are_hopeless(int(newest.certified.sum()), rows, newest.fraction, self._target):
            return None
        if not rows:
            return WholeIsSoonerError(_EMPTY.format(100 * newest.fraction), self._costs.scan_seconds)
        return WholeIsSoonerError(_HOPELESS.format(newest.fraction))

    def close(self) -> None:
        """Give back the merged state. Safe to call twice."""
        self._job.close()


FORMAT = 2  # 2: a checksum before the state
SECONDS_BETWEEN = 2.0
LARGEST_BYTES = 64 << 20  # of partial rows: a larger state is not kept, reading again is about as fast
_KEY = b"relaqs"
_ARROW = b"ARROW1"  # the content begins with it, and a file of format 1


@dataclass(frozen=True, slots=True)
class SavedState:
    """Where a job stands. folded: mini-batches in it. rows: its partial rows. block_rows: shape (blocks,)."""

    folded: int
    rows: pa.Table
    block_rows: NDArray[np.int64]


class ResumableJob(ABC):
    """A job whose state can be kept in a file, so that another process goes on from it."""

    @abstractmethod
    def saved(self) -> SavedState | None:
        """Return what `restore` goes on from; None before the first mini-batch and after the last."""

    @abstractmethod
    def restore(self, saved: SavedState) -> None:
        """Go on from a state that a job of the same query over the same data saved. Only at the beginning."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a checkpoint holds. elapsed_seconds: that the query had run."""

    state: SavedState
    elapsed_seconds: float


class Checkpoint:
    """Keeps the state of one query. identity: of the query and its data, see `query_identity`.

    clock: in seconds. Used by one thread at a time.
    """

    def __init__(self, path: Path, identity: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._identity = identity
        self._pace = StatePace(SECONDS_BETWEEN, clock)

    def load(self) -> Resumed | None:
        """Return what was kept; None where nothing was, or it is of another query, data or version.

        A damaged file is not taken either, and a warning names it.
        """
        try:
            content = read_content(self._path)
        except RelaqsError:
            if not self._path.read_bytes().startswith(_ARROW):  # format 1 had no checksum
                warnings.warn(f"{self._path} is a damaged checkpoint; the query begins anew", stacklevel=2)
            return None
        if content is None or not content.startswith(_ARROW):
            return None
        with pa.ipc.open_file(content) as reader:
            rows = reader.read_all()
        entries = json.loads(rows.schema.metadata[_KEY])
        if entries.get("format") != FORMAT or entries.get("identity") != self._identity:
            return None
        state = SavedState(
            entries["folded"],
            rows.replace_schema_metadata(None),
            np.array(entries["block_rows"], dtype=np.int64),
        )
        return Resumed(state, entries["elapsed_seconds"])

    def is_due(self) -> bool:
        return self._pace.is_due()

    def save(self, state: SavedState | None, elapsed_seconds: float) -> None:
        """Keep the state, unless there is none, it is too large, or the disk does not take it."""
        if state is None or state.rows.nbytes > LARGEST_BYTES:
            return
        entries = {
            "format": FORMAT,
            "identity": self._identity,
            "folded": state.folded,
            "block_rows": state.block_rows.tolist(),
            "elapsed_seconds": elapsed_seconds,
        }
        rows = state.rows.replace_schema_metadata({_KEY: json.dumps(entries).encode()})
        with self._pace.spending(), contextlib.suppress(OSError):  # a query is not to fail because of it
            sink = pa.BufferOutputStream()
            with pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows)
            write_content(self._path, memoryview(sink.getvalue()))


class Keeper:
    """Keeps a job's state in a checkpoint while it runs; does nothing where there is no state or no file."""

    def __init__(self, job: ResumableJob | None, checkpoint: Checkpoint | None) -> None:
        self._job = job
        self._checkpoint = checkpoint

    @classmethod
    def of(
        cls, job: Job, plan: OnlinePlan, catalog: Catalog, options: QueryOptions, path: str | Path | None
    ) -> Keeper:
        """Return the keeper of a job's state.

        Raises RelaqsError if the file's folder is not there, or the file is that of a run.
        """
        if path is None:
            return cls(None, None)
        check_is_of_no_run(Path(path))
        if not isinstance(job, ResumableJob):
            return cls(None, None)
        identity = query_identity(plan, catalog, options.seed, options.batches)
        return cls(job, Checkpoint(checked_path(path), identity))

    def resume(self) -> float:
        """Let the job go on from what was kept; return the seconds that it had run."""
        if self._checkpoint is None or self._job is None or (kept := self._checkpoint.load()) is None:
            return 0.0
        self._job.restore(kept.state)
        return kept.elapsed_seconds

    def keep_if_due(self, elapsed_seconds: float) -> None:
        if self._checkpoint is not None and self._checkpoint.is_due():
            self.keep(elapsed_seconds)

    def keep(self, elapsed_seconds: float) -> None:
        if self._checkpoint is not None and self._job is not None:
            with contextlib.suppress(RelaqsError):  # a query is not to fail because it cannot be saved
                self._checkpoint.save(self._job.saved(), elapsed_seconds)


def query_identity(plan: OnlinePlan, catalog: Catalog, seed: int, batches: int | None) -> str:
    """Return what tells a query over this state of its data from any other.

    The files of static tables are in the plan, in folders whose names are drawn anew at each write.
    """
    streams = sorted({stream.table for stream in plan.streams})
    tables = {name: catalog.table(name) for name in streams}
    files = [
        (
            name,
            [each.contents for each in table.partitions]
            if isinstance(table, Layout)
            else table.whole_read(None),
        )
        for name, table in tables.items()
    ]
    what = (replace(plan, sql=""), files, seed, batches, DUCKDB_VERSION)
    return hashlib.sha256(repr(what).encode()).hexdigest()
