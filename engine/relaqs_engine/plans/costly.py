"""The plan of a query that calls costly functions: rows that may count, questions, and sums of answers.

`relaqs_engine/rewrite/costly_calls.py` makes it, and has an example.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaqs_engine.plans.plan import Mode, OnlinePlan, WholePlan

FRAME = "frame"
"""The name of the table of rows that calls are for, in the SQL of a `CostlyQuery`."""
ROWS = "rows"
"""The name of the table of those rows with their answers."""
SUMS = "sums"
"""The name of the table of groups with their sums."""


@dataclass(frozen=True, slots=True)
class CostlyCall:
    """One call in a query.

    Attributes:
        arguments: the columns of the frame that it is given.
        answer: the column of its answers, beside those of the frame.
    """

    function: str
    arguments: tuple[str, ...]
    answer: str


@dataclass(frozen=True, slots=True)
class CostlyOutput:
    """A column of the answer.

    Attributes:
        name: as the query calls it.
        type: DuckDB's own.
        sql: over the keys and sums of a group.
        is_key: whether it is a function of the keys alone.
        total: the position of its sum, where it is one sum and nothing else. None for all others.
    """

    name: str
    type: str
    sql: str
    is_key: bool
    total: int | None = None


@dataclass(frozen=True, slots=True)
class CostlyRows:
    """Which rows a query lists, where it lists rows and sums nothing.

    Attributes:
        deciding: the answers that decide whether a row is listed, and where.
        order: by what, over columns of the frame and answers; "" where any order is right.
        most: how many of them are needed at most, those that OFFSET leaves out too; None: all.
    """

    deciding: tuple[str, ...]
    order: str
    most: int | None

    @property
    def is_ordered_by_answers(self) -> bool:
        """Whether all rows must be asked before one is known to be listed."""
        return any(answer in self.order for answer in self.deciding)


@dataclass(frozen=True, slots=True)
class CostlyQuery:
    """A query with costly calls, cut at the calls. All SQL but the frame's is over tables named here.

    Attributes:
        frame_sql: the rows that calls are for, from the user's tables.
        columns: of the frame, but for the arguments of calls.
        calls: what is asked of each row.
        condition: which rows count, by their answers.
        keys: of the groups, over columns of the frame and answers.
        sums: what each row adds to each sum, over columns of the frame and answers.
        is_grouped: whether there is a GROUP BY; without one the answer has one row.
        having: which groups are shown, over keys and sums.
        order: by what, and which of them are shown.
        answer_sql: the whole query over the rows with their answers.
        rows: which rows are listed; None where the query groups or sums.
    """

    frame_sql: str
    columns: tuple[str, ...]
    calls: tuple[CostlyCall, ...]
    condition: str
    outputs: tuple[CostlyOutput, ...]
    order: str
    answer_sql: str
    keys: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    is_grouped: bool = False
    having: str = "TRUE"
    rows: CostlyRows | None = None

    @property
    def asks_for_keys(self) -> bool:
        """Whether groups depend on answers."""
        return any(call.answer in key for call in self.calls for key in self.keys)

    @property
    def chooses_groups(self) -> bool:
        """Whether HAVING or LIMIT leaves groups out."""
        return self.having != "TRUE" or self.cuts

    @property
    def cuts(self) -> bool:
        """Whether LIMIT or OFFSET leaves groups out."""
        return any(word in self.order.upper() for word in ("LIMIT", "OFFSET"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CostlyPlan(OnlinePlan):
    """How a query with costly calls is answered: the rows that may count are read, and some of them asked.

    Attributes:
        query: cut at its calls.
        frame: how those rows are read.
    """

    mode = Mode.COSTLY
    may_run_whole = False
    calls_functions = True

    query: CostlyQuery
    frame: WholePlan

    @property
    def plain_tables(self) -> tuple[str, ...]:
        return self.frame.plain_tables

    @property
    def has_one_row(self) -> bool:
        return not self.query.is_grouped and self.query.rows is None

    @property
    def shows_every_group(self) -> bool:
        return not self.query.chooses_groups
