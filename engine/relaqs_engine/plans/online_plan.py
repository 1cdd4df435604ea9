"""OnlinePlan: what the plans of all queries share. There are eight kinds, each in a module beside this one.

    MergePlan      one aggregation: partial results merge, and every mini-batch gives an estimate
    RowsPlan       no aggregates: the rows found so far are the answer so far
    AroundPlan     SQL around the answers of other plans, its parts
    RefinedPlan    an aggregate over all rows stands inside: it is estimated first, as a stage
    RowGroupPlan   estimates from row groups of plain files, then the query as a whole
    FirstPartPlan  estimates from the first part of a layout that is being made, then the query as a whole
    SummaryPlan    SUMMARIZE: estimates from the first partitions, then the statement as a whole
    WholePlan      no sound estimate is known: the query runs once, exactly

A query's plan is one of these, and `relaqs/queries/start.py` has one job for each. What the rest of the code
wants to know of a plan, it asks by the properties below.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from relaqs_engine.duck import CivilTime
from relaqs_engine.layouts.reads import Read, plain_tables
from relaqs_engine.plans.error_bars import Method
from relaqs_engine.plans.outputs import OutputColumn
from relaqs_engine.plans.streams import Hoist, Stream


class Mode(StrEnum):
    """How a query is answered (see ARCHITECTURE.md)."""

    MERGEABLE = "mergeable"
    REFINED = "refined"
    EXACT = "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlinePlan:
    """How one query is answered, and why in this way.

    Attributes:
        sql: the query.
        outputs: the columns of its answer, in order.
        reasons: why it is answered in this way, for people.
        streams: the layouts that it samples.
        hoists: the static sides that workers prepare for it.
        warnings: what every answer before the end says.
        measured_by: the streamed tables whose rows measure what was scanned: "10 %" is a tenth of them. Each
            unit that the query has rows of has rows there. None where no table is streamed.
        is_ordered: whether the query has an ORDER BY of its own.
        civil_time: the time zone and calendar that its statements run with. None: those of the process.

    >>> from relaqs_engine.planning.example import planned
    >>> plan = planned("SELECT zone, avg(fare) AS mean FROM trips GROUP BY zone")
    >>> plan.mode.value, [(output.name, output.kind.value) for output in plan.outputs]
    ('mergeable', [('zone', 'key'), ('mean', 'estimate')])
    """

    # How the query is answered, in a word.
    mode: ClassVar[Mode]
    # Whether there are estimates before the end.
    is_estimated: ClassVar[bool] = True
    # Whether it is computed from other answers so far, or from rows that they decide about.
    is_two_level: ClassVar[bool] = False
    # Whether a mini-batch costs more the more was read before.
    costs_grow: ClassVar[bool] = False
    # Whether one state holds all that was read, so that a checkpoint can keep it.
    keeps_state: ClassVar[bool] = False
    # Whether the query may run as a whole where its state does not fit into memory.
    may_run_whole: ClassVar[bool] = True
    # Whether an answer so far says of each of its rows if it is certain to stay.
    tells_certain_rows: ClassVar[bool] = False
    # Whether the files that it samples may go while it runs, and its tables stay.
    sample_may_go: ClassVar[bool] = False

    sql: str
    outputs: tuple[OutputColumn, ...]
    reasons: tuple[str, ...]
    streams: tuple[Stream, ...] = ()
    hoists: tuple[Hoist, ...] = ()
    warnings: tuple[str, ...] = ()
    measured_by: tuple[str, ...] = ()
    is_ordered: bool = False
    civil_time: CivilTime | None = None

    @property
    def why_whole(self) -> tuple[str, ...]:
        """Return why it runs as a whole; nothing where it does not."""
        return ()

    @property
    def leading(self) -> str:
        """Return the streamed table whose rows measure what was scanned, the first one of several."""
        return self.measured_by[0] if self.measured_by else ""

    @property
    def whole_reads(self) -> tuple[Read, ...]:
        """Return what is read where it runs as a whole; nothing where it does not."""
        return ()

    @property
    def plain_tables(self) -> tuple[str, ...]:
        """Return the plain tables that it reads whole."""
        return plain_tables(read for hoist in self.hoists for read in hoist.reads)

    @property
    def method(self) -> Method:
        """Return where its error bars come from."""
        return Method.NONE

    @property
    def expected_groups(self) -> int:
        """Return about how many groups there are at most."""
        return 1

    @property
    def is_undecided(self) -> bool:
        """Whether answers so far decide which rows there are, so that few of them are certain early."""
        return False

    @property
    def ranks_groups(self) -> bool:
        """Whether the answer is the first groups by a number that is estimated."""
        return False

    @property
    def joined(self) -> tuple[str, ...]:
        """Return the streamed tables of which a unit's rows are joined, each as often as it is joined."""
        return ()

    @property
    def groups_are_local(self) -> bool:
        """Whether each group's rows lie in one partition, so that a group seen is complete."""
        return False

    @property
    def groups_are_final(self) -> bool:
        """Whether a group's values are final once it is seen: its rows are all there, and all count."""
        return False

    @property
    def reads_outliers(self) -> bool:
        """Whether part of its totals is known, since an outlier index is read."""
        return False

    @property
    def leaves_units_out(self) -> bool:
        """Whether outlier units are counted apart, so that other units alone are sampled."""
        return False

    @property
    def has_one_row(self) -> bool:
        """Whether its answer has one row, whatever is read: aggregates without groups."""
        return False

    @property
    def groups_of_a_row(self) -> int | None:
        """Return into how many groups a sampled row may fall, but for the total of all. None: not known."""
        return None

    @property
    def shows_every_group(self) -> bool:
        """Whether no HAVING and no LIMIT leaves groups or rows out."""
        return True
