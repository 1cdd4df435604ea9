"""Question and answer: what a query may be asked for, and one answer so far.

`QueryOptions` are checked before anything starts. An `AskingUser` is who asks, and what all the queries of
one user may use together. A server says so with `asked_by` around what it submits. Logs, metrics and the
status of jobs have the name.

A `Snapshot` is immutable, backed by Arrow, at home in a terminal and in a notebook.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_engine.arrow_arrays import arrow_booleans
from relaqs_engine.errors import SqlError
from relaqs_engine.execution.estimate import ApproximateColumn, Estimate, Judge, Weighting
from relaqs_engine.plans.plan import OnlinePlan, OutputKind

from relaqs.arguments import (
    ArgumentError,
    check_budget,
    check_count,
    check_priority,
    check_seconds,
    is_number,
    is_whole,
    refusal,
    relative_error,
    share_of_weight,
)
from relaqs.memory import memory_bytes
from relaqs.plugins import needed
from relaqs.prediction.ahead import REACHED, Course, Expected, expected
from relaqs.python_values import python_values

if TYPE_CHECKING:
    import pandas
    import polars
    from matplotlib.axes import Axes
    from rich.console import Console, ConsoleOptions, RenderResult

Interval = Literal["pointwise", "anytime"]
ConfidenceFor = Literal["cell", "table"]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Snapshot:
    """One answer so far, and how sure it is.

    Attributes:
        table: the query's columns in order, then `x_low`, `x_high` and `x_certified` for every approximate
            column `x`. low or high is null where nothing bounds the value.
        columns: the approximate columns, and the names that their intervals have in `table`. The names differ
            from the above where the query itself has a column called `x_low`.
        fraction: the share of the streamed rows that was folded, in (0, 1].
        error: groups with 95 % of the rows are within it, relative to their numbers. `Session.online_sql`
            says which groups, and what else may be chosen. It is 0.0 when exact, and inf while too little is
            certified.
        not_judged: the approximate columns that `error` says nothing of: those that `watch` leaves out, and
            those whose numbers have no error before the end, as a MAX.
        confidence: of the intervals.
        interval: "pointwise" or "anytime".
        confidence_for: "cell" or "table".
        batch: how many mini-batches were folded so far.
        batches: how many mini-batches there are.
        elapsed_seconds: since the query was submitted.
        is_exact: whether this is the exact answer.
        mode: how the query is answered.
        unseen_groups: how many groups were probably not seen yet. None where their number is unknown.
        warnings: what the reader of the answer should know.
        certain_rows: for each row whether it is certain, at this confidence, to be in the final answer. In a
            top ten these are the rows that stay among the ten:
            `snapshot.table.filter(snapshot.certain_rows)`. A row that may still leave has no certified
            number.
        target: the error to stop at. None without one.
        widths: the error of each number in the watched columns, shape (rows, columns). It is inf where a
            number is not certified, and NaN where there is no number.
        reasons: why numbers are not certified, in words and with what would help.
        doubts: for each number the reason that it has, shape (rows, `columns`): 0 where it is certified, else
            i for `reasons[i - 1]`.
        course: what `expected` is computed from. None where nothing is known.
        calls: rows that costly functions were asked about for this answer; those in the cache do not count.
        cost: of these calls, by the `cost` of each function.

    >>> import duckdb, relaqs
    >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
    >>> db = relaqs.connect("data", threads=1)
    >>> first = next(iter(db.online_sql("SELECT avg(x) AS mean FROM numbers", batches=5)))
    >>> first.table.column_names
    ['mean', 'mean_low', 'mean_high', 'mean_certified']
    """

    table: pa.Table
    columns: tuple[ApproximateColumn, ...]
    fraction: float
    error: float
    confidence: float
    interval: Interval
    batch: int
    batches: int
    elapsed_seconds: float
    is_exact: bool
    mode: str
    unseen_groups: int | None = None
    warnings: tuple[str, ...] = ()
    certain_rows: pa.BooleanArray | None = None
    target: float | None = None
    widths: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    course: Course | None = None
    not_judged: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    doubts: IntArray = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    confidence_for: ConfidenceFor = "cell"
    calls: int = 0
    cost: float = 0.0

    def within(self, error: float | str) -> tuple[int, int]:
        """Return how many of the answer's numbers are within this relative error, and how many there are.

        (195, 229) for 0.05 or "5%" means: the watched columns have 229 numbers, and 195 of them are certified
        to be within 5 % of the final ones. Groups that have not been seen yet do not count.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> answer = db.online_sql("SELECT avg(x) AS mean FROM numbers").result()
        >>> answer.within("5%")
        (1, 1)
        """
        most = relative_error(error, "error", most=math.inf)
        assert most is not None, "only None stands for no error"
        return int((self.widths <= most).sum()), int((~np.isnan(self.widths)).sum())

    def expected(self, target: float | str) -> Expected:
        """Return the seconds still needed until the error is the target, and where they lie: low, high.

        In nine of ten cases it takes from low to high, at the pace so far. A pause does not count. It is 0
        where the target is reached. The exact answer reaches every target, because its error is 0.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> answer = db.online_sql("SELECT avg(x) AS mean FROM numbers").result()
        >>> answer.expected("1%").seconds
        0.0
        """
        wanted = relative_error(target)
        assert wanted is not None, "only None stands for no error"
        return REACHED if self.course is None else expected(self.course, wanted)

    @property
    def estimate(self) -> pa.Table:
        """The query's own columns, in its order.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> answer = db.online_sql("SELECT avg(x) AS mean FROM numbers").result()
        >>> answer.estimate.to_pydict()
        {'mean': [499.5]}
        """
        return self.table.select(list(range(self.table.num_columns - 3 * len(self.columns))))

    def to_arrow(self) -> pa.Table:
        """Return the table with its intervals, as pyarrow has it.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> answer = db.online_sql("SELECT avg(x) AS mean FROM numbers").result()
        >>> answer.to_arrow().num_rows
        1
        """
        return self.table

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table with its intervals, as pandas has it. Needs `relaqs[pandas]`.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> answer = db.online_sql("SELECT avg(x) AS mean FROM numbers").result()
        >>> answer.to_pandas()["mean"].tolist()
        [499.5]
        """
        return _pandas(self.table, "to_pandas")

    def to_polars(self) -> polars.DataFrame:
        """Return the table with its intervals, as polars has it. Needs `relaqs[polars]`.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> answer = db.online_sql("SELECT avg(x) AS mean FROM numbers").result()
        >>> answer.to_polars()["mean"].to_list()
        [499.5]
        """
        return _polars(self.table, "to_polars")

    def df(self) -> pandas.DataFrame:
        """Return the query's own columns as pandas has them, without intervals. Needs `relaqs[pandas]`.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> answer = db.sql("SELECT avg(x) AS mean FROM numbers")
        >>> answer.df().columns.tolist()
        ['mean']
        """
        return _pandas(self.estimate, "df")

    def pl(self) -> polars.DataFrame:
        """Return the query's own columns as polars has them, without intervals. Needs `relaqs[polars]`.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> answer = db.sql("SELECT avg(x) AS mean FROM numbers")
        >>> answer.pl().columns
        ['mean']
        """
        return _polars(self.estimate, "pl")

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows of the query's own columns, as Python's values.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> db.online_sql("SELECT avg(x) AS mean, count(*) AS n FROM numbers").result().fetchall()
        [(499.5, 1000)]
        """
        return list(zip(*map(python_values, self.estimate.columns), strict=True))

    def plot(
        self,
        ax: Axes | None = None,
        *,
        x: str | None = None,
        y: str | None = None,
        series: str | None = None,
    ) -> Axes:
        """Return a chart with error bars, drawn by matplotlib. Needs the extra `relaqs[plot]`.

        Numbers and days along x give lines, and names give bars. What is not certified is drawn hollow, and
        the chart says so.

        Args:
            ax: the axes to draw into. By default a new figure's.
            x: the column along the chart. By default the first that is no estimate.
            y: the column that is drawn. By default the first estimate, or the last number.
            series: the column whose values have a line or a colour each.

        Raises:
            ArgumentError: there is no such column, or it is no number.
            MissingPackageError: matplotlib is not installed.

        >>> import duckdb, matplotlib, relaqs
        >>> matplotlib.use("agg")
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> sql = "SELECT x % 3 AS rest, avg(x) AS mean FROM numbers GROUP BY rest"
        >>> db.online_sql(sql).result().plot().get_ylabel()
        'mean'
        """
        from relaqs.rendering.plot import plot

        return plot(self, ax, x=x, y=y, series=series)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.table.schema.__arrow_c_schema__()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __bool__(self) -> bool:
        return True  # an answer without rows is still an answer

    def __repr__(self) -> str:
        from relaqs.rendering.view import heading

        rows = "1 row" if len(self) == 1 else f"{len(self):,} rows"
        return f"<Snapshot #{self.batch}: {rows} · {heading(self)}>"

    def __str__(self) -> str:
        from relaqs.rendering.terminal import plain_text

        return plain_text(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from relaqs.rendering.terminal import render

        yield from render(self, options)

    def _repr_html_(self) -> str:
        from relaqs.rendering.html import render

        return render(self)


def _pandas(table: pa.Table, by: str) -> pandas.DataFrame:
    if find_spec("pandas") is None:
        raise needed("pandas", by, "pandas")
    return table.to_pandas()


def _polars(table: pa.Table, by: str) -> polars.DataFrame:
    if find_spec("polars") is None:
        raise needed("polars", by, "polars")
    import polars

    return polars.DataFrame(table)


def _certain(estimate: Estimate) -> BoolArray:
    known = estimate.certain_rows
    return np.ones(estimate.table.num_rows, dtype=bool) if known is None else known


def snapshot_of(estimate: Estimate, **circumstances: Any) -> Snapshot:
    """Return the estimate as a snapshot; `circumstances` are the attributes an estimate does not know."""
    reasons, doubts = estimate.reasons()
    return Snapshot(
        reasons=reasons,
        doubts=doubts,
        table=estimate.table,
        columns=estimate.approximate,
        fraction=estimate.fraction,
        is_exact=estimate.is_exact,
        unseen_groups=estimate.unseen_groups,
        certain_rows=arrow_booleans(_certain(estimate)),
        calls=estimate.calls,
        cost=estimate.cost,
        **circumstances,
    )


SMALLEST_CORES = 0.1


@dataclass(frozen=True, slots=True)
class AskingUser:
    """A user who asks.

    Attributes:
        name: "" where nobody was named.
        cores_most: what all their queries may use together.
        memory_bytes: of the databases that answer them, apart from those of others. None: they share these.
    """

    name: str = ""
    cores_most: float = math.inf
    memory_bytes: int | None = None


_ASKER: ContextVar[AskingUser] = ContextVar("relaqs-asker", default=AskingUser())  # noqa: B039 - it is frozen


def asking_user() -> AskingUser:
    """Return who asks now: the innermost `asked_by` of this thread or task says so."""
    return _ASKER.get()


@contextmanager
def asked_by(who: str, *, cores: float | None = None, memory: int | str | None = None) -> Iterator[None]:
    """Say who asks the queries that are submitted inside the block, for logs, metrics, traces and status.

    A server says so of its users. Without it, the process is named.

    Args:
        who: their name.
        cores: how many cores all their queries may use together. On threads of this process they have no
            more at once, rounded up. On a cluster they still have what nobody else asks for.
        memory: of the databases in which their queries run, apart from those of other users; in bytes or as
            "1GB". A query that needs more spills to disk, or fails. Without it they share the session's.

    Raises:
        ArgumentError: cores or memory is not accepted.

    >>> import duckdb, relaqs
    >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
    >>> with relaqs.connect("data", threads=1) as db, relaqs.metrics.asked_by("ann", cores=0.5):
    ...     db.online_sql("SELECT sum(x) AS total FROM numbers").result().is_exact
    True
    """
    asker = AskingUser(who, checked_cores(cores), None if memory is None else memory_bytes(memory))
    before = _ASKER.set(asker)
    try:
        yield
    finally:
        _ASKER.reset(before)


def checked_cores(cores: float | None) -> float:
    """Return how many cores a user may have, inf for None. Raises ArgumentError for what is no number."""
    if cores is None:
        return math.inf
    if isinstance(cores, bool) or not isinstance(cores, int | float) or not cores >= SMALLEST_CORES:
        raise refusal("cores", cores, f"a number of at least {SMALLEST_CORES}, such as 2 or 0.5")
    return float(cores)


Fallback = Literal["exact", "error"]
ErrorFunction = Callable[[Snapshot, Snapshot], float]
Watch = str | Sequence[str] | ErrorFunction
_CHOICES = {
    "interval": Interval,
    "confidence_for": ConfidenceFor,
    "fallback": Fallback,
    "judged_by": Weighting,
}


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """The keyword arguments of `Session.online_sql`, which describes them. They are checked when it is made.

    Raises:
        ArgumentError: naming the first argument that is not accepted.

    >>> QueryOptions(confidence=1.5)
    Traceback (most recent call last):
        ...
    relaqs.arguments.ArgumentError: confidence is 1.5; it must be a number between 0.5 and 1, such as 0.95
    """

    target: float | None = None
    confidence: float = 0.95
    interval: Interval = "pointwise"
    priority: float = 1.0
    watch: tuple[str, ...] | ErrorFunction | None = None
    timeout: float | None = None
    seed: int = 0
    batches: int | None = None
    fallback: Fallback = "exact"
    chart_pixels: int | None = None
    judged_by: Weighting = "rows"
    share: float = 0.95
    within: float | None = None
    confidence_for: ConfidenceFor = "cell"
    budget: float | str | None = None

    @property
    def judge(self) -> Judge:
        """How the cells' errors become one."""
        return Judge(self.judged_by, self.share, together=self.confidence_for == "table")

    @property
    def wants_the_end_only(self) -> bool:
        """Whether nothing is asked that estimates before the exact answer are needed for."""
        asked = (self.target, self.within, self.watch, self.timeout, self.batches, self.chart_pixels)
        usual = (self.interval, self.confidence_for, self.fallback) == ("pointwise", "cell", "exact")
        return usual and all(each is None for each in asked)

    def __post_init__(self) -> None:
        if not is_number(self.confidence) or not 0.5 < self.confidence < 1:
            raise refusal("confidence", self.confidence, "a number between 0.5 and 1, such as 0.95")
        share_of_weight(self.share)
        for name, kind in _CHOICES.items():
            choices = get_args(kind)
            if getattr(self, name) not in choices:
                raise refusal(name, getattr(self, name), " or ".join(map(repr, choices)))
        check_priority(self.priority)
        for name in ("timeout", "within"):
            if getattr(self, name) is not None:
                check_seconds(name, getattr(self, name))
        if self.within is not None and self.target is None:
            raise ArgumentError(
                f"within is {self.within!r}, but there is no target to reach by then; give target=0.01, "
                f"or timeout={self.within!r} to stop with the best answer there is"
            )
        check_budget(self.budget)
        if not is_whole(self.seed) or self.seed < 0:
            raise refusal("seed", self.seed, "a whole number from 0 on")
        for name in ("batches", "chart_pixels"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))


def watched(watch: Watch | None) -> tuple[str, ...] | ErrorFunction | None:
    """Return column names as a tuple (one name stands for itself); a function and None as they are."""
    if watch is None or callable(watch):
        return watch
    names = (watch,) if isinstance(watch, str) else tuple(watch)
    if not names or not all(isinstance(name, str) for name in names):
        raise refusal("watch", watch, "names of approximate columns, or a function of two snapshots")
    return names


def watched_columns(
    plan: OnlinePlan, watch: tuple[str, ...] | ErrorFunction | None
) -> tuple[str, ...] | None:
    """Return the names as the answer has them; None where all columns or a function are watched."""
    if watch is None or callable(watch):
        return None
    known = {
        output.name.lower(): output.name
        for output in plan.outputs
        if not plan.is_estimated or output.kind is not OutputKind.KEY
    }
    for name in watch:
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), known, cutoff=0.5)
            raise SqlError(
                f"watch names {name!r}; the approximate columns are {', '.join(known.values()) or 'none'}",
                candidates=tuple(known[each] for each in near),
            )
    return tuple(known[name.lower()] for name in watch)
