"""FoldedPlan: what MergePlan and RowsPlan share, a query that each task runs and a state for its results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from relaqs_engine.plans.heavy_groups import HeavyGroups
from relaqs_engine.plans.online_plan import Mode, OnlinePlan


@dataclass(frozen=True, slots=True)
class StreamScan:
    """What a task reads of one stream.

    Attributes:
        table: the name of the layout.
        columns: the columns that the partial query names.
        times: how often the query reads the table, as a self-join reads it twice.
    """

    table: str
    columns: tuple[str, ...]
    times: int = 1


@dataclass(frozen=True, slots=True)
class PartialQuery:
    """The query that a task runs over some partitions. Stream tokens stand in the place of file lists.

    Attributes:
        sql: the query itself.
        by_block_sql: the same, with its groups told apart by block as well; "" where no block is told apart.
        outlier_sql: the same over the outlier index, which the first step reads; `sql` leaves those rows out.
            "" where no index is read.
        heavy: how groups are read from an index of heavy units, by the same query, before their partitions
            are. None where they are not.
        scans: what it reads of each stream.
        is_filtered: whether a condition leaves rows out.
    """

    sql: str
    by_block_sql: str = ""
    outlier_sql: str = ""
    heavy: HeavyGroups | None = None
    scans: tuple[StreamScan, ...] = ()
    is_filtered: bool = False


@dataclass(frozen=True, slots=True)
class ResultShape:
    """How large the partial result over one partition gets, where no condition leaves rows out.

    Attributes:
        columns: how many columns a row of it has.
        lists: how many of them list all values of a group.
        most_rows: how many rows it has at most; None where each row read is one.
    """

    columns: int
    lists: int = 0
    most_rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedPlan(OnlinePlan, ABC):
    """A plan with one partial query, and a state that its results are folded into.

    Attributes:
        partial: the query that a task runs.
    """

    mode = Mode.MERGEABLE
    keeps_state = True

    partial: PartialQuery

    @property
    def task_plans(self) -> tuple[FoldedPlan, ...]:
        """Return the plans with the partial queries that a mini-batch's tasks run: this one."""
        return (self,)

    @property
    def result_shape(self) -> ResultShape | None:
        """Return how large a partial result gets; None where a condition decides that."""
        return None if self.partial.is_filtered else self._unfiltered_shape

    @property
    @abstractmethod
    def _unfiltered_shape(self) -> ResultShape: ...

    @property
    @abstractmethod
    def state_columns(self) -> tuple[str, ...]:
        """Return the columns of the state, by name."""

    @property
    @abstractmethod
    def block_count(self) -> int:
        """Return how many blocks are stored in the data and told apart."""

    @property
    @abstractmethod
    def compact_sql(self) -> str:
        """Return the query that makes one row of each group's; "" where its rows have to stay apart."""
