"""Snapshot: one answer so far. Immutable, backed by Arrow, at home in a terminal and in a notebook."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_engine.arrow_arrays import arrow_booleans
from relaqs_engine.duck import pandas_frame
from relaqs_engine.execution.estimate import ApproximateColumn, Estimate

from relaqs.arguments import check_whole, relative_error
from relaqs.plugins import needed
from relaqs.prediction.ahead import REACHED, Course, Expected, expected
from relaqs.python_values import fetched_rows

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
        measures: positions of the columns that are computed from rows, such as a sum. Others name their row.

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
    measures: tuple[int, ...] = ()
    _fetched: int = field(default=0, init=False, repr=False, compare=False)  # rows, by `fetchmany`

    def within(self, error: float | str) -> tuple[int, int]:
        """Return how many of the answer's numbers are within this relative error, and how many there are.

        (195, 229) for 0.05 or "5%" means: the watched columns have 229 numbers, and 195 of them are certified
        to be within 5 % of the final ones. Groups that have not been seen yet do not count.

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

        >>> answer.expected("1%").seconds
        0.0
        """
        wanted = relative_error(target)
        assert wanted is not None, "only None stands for no error"
        return REACHED if self.course is None else expected(self.course, wanted)

    @property
    def estimate(self) -> pa.Table:
        """The query's own columns, in its order.

        >>> answer.estimate.to_pydict()
        {'mean': [499.5]}
        """
        return self.table.select(list(range(self.table.num_columns - 3 * len(self.columns))))

    def to_arrow(self) -> pa.Table:
        """Return the table with its intervals, as pyarrow has it.

        >>> answer.to_arrow().num_rows
        1
        """
        return self.table

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table with its intervals, as pandas has it. Needs `relaqs[pandas]`.

        >>> answer.to_pandas()["mean"].tolist()
        [499.5]
        """
        _check_pandas("to_pandas")
        return _pandas(self.table)

    def to_polars(self) -> polars.DataFrame:
        """Return the table with its intervals, as polars has it. Needs `relaqs[polars]`.

        >>> answer.to_polars()["mean"].to_list()
        [499.5]
        """
        return _polars(self.table, "to_polars")

    def df(self) -> pandas.DataFrame:
        """Return the query's own columns with the types of DuckDB's `df`, without intervals.

        A DECIMAL is a float, unlike in `to_pandas`, and the second of two columns n is n_1. Needs
        `relaqs[pandas]`.

        >>> answer = db.sql("SELECT avg(x) AS mean FROM numbers")
        >>> answer.df().columns.tolist()
        ['mean']
        """
        _check_pandas("df")
        frame = pandas_frame(self.estimate)
        for name, column in zip(frame.columns, self.estimate.columns, strict=True):
            if getattr(column.type, "tz", None) is not None:
                frame[name] = frame[name].dt.tz_convert(column.type.tz)
        return frame

    fetchdf = df

    def pl(self) -> polars.DataFrame:
        """Return the query's own columns as polars has them, without intervals. Needs `relaqs[polars]`.

        >>> answer = db.sql("SELECT avg(x) AS mean FROM numbers")
        >>> answer.pl().columns
        ['mean']
        """
        return _polars(self.estimate, "pl")

    def arrow(self) -> pa.RecordBatchReader:
        """Return a reader of the query's own columns, without intervals, as DuckDB's `arrow` does.

        >>> db.sql("SELECT avg(x) AS mean FROM numbers").arrow().read_all().num_rows
        1
        """
        return self.estimate.to_reader()

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows of the query's own columns, as Python's values.

        After `fetchone` or `fetchmany` these are the rows that are left.

        >>> db.online_sql("SELECT avg(x) AS mean, count(*) AS n FROM numbers").result().fetchall()
        [(499.5, 1000)]
        """
        if self._fetched:
            return self.fetchmany(len(self))
        return fetched_rows(self.estimate)

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """Return the next rows, as Python's values. After the last one there are none.

        >>> db.sql("SELECT x FROM numbers ORDER BY x").fetchmany(2)
        [(0,), (1,)]
        """
        rows = self.estimate.slice(self._fetched, min(check_whole("size", size, least=0), len(self)))
        object.__setattr__(self, "_fetched", self._fetched + rows.num_rows)
        return fetched_rows(rows)

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, as Python's values, and None after the last one.

        >>> db.sql("SELECT max(x) FROM numbers").fetchone()
        (999,)
        """
        return next(iter(self.fetchmany()), None)

    def show(self) -> None:
        """Print the answer.

        >>> db.sql("SELECT max(x) AS most FROM numbers").show()
        Exact · ...
        """
        print(self)

    def plot(
        self, ax: Axes | None = None, *, x: str | None = None, y: str | None = None, series: str | None = None
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

        >>> import matplotlib
        >>> matplotlib.use("agg")
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
        """The table, as at the prompt of DuckDB."""
        from relaqs.rendering.terminal import plain_text

        return plain_text(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from relaqs.rendering.terminal import render

        yield from render(self, options)

    def _repr_html_(self) -> str:
        from relaqs.rendering.html import render

        return render(self)


def _check_pandas(by: str) -> None:
    if find_spec("pandas") is None:
        raise needed("pandas", by, "pandas")


def _pandas(table: pa.Table) -> pandas.DataFrame:
    """Return a table as Arrow has it for pandas, but whole numbers beside a NULL as such."""
    frame = table.to_pandas()
    for place, column in enumerate(table.columns):
        if pa.types.is_integer(column.type) and column.null_count:
            kind = str(column.type).replace("u", "U").replace("i", "I")  # uint8 is UInt8
            frame.isetitem(place, column.to_pandas(integer_object_nulls=True).astype(kind))
    return frame


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
