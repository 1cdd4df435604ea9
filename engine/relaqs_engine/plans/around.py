"""AroundPlan: SQL around the answers of other plans, such as a window over aggregates or a set operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from relaqs_engine.plans.error_bars import Method
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.online_plan import Mode, OnlinePlan
from relaqs_engine.plans.rows import RowsPlan
from relaqs_engine.plans.whole import WholePlan

# A plan with an answer that SQL can stand around.
PartPlan: TypeAlias = MergePlan | RowsPlan | WholePlan


@dataclass(frozen=True, slots=True)
class AroundTexts:
    """The SQL over the answers of the parts. It reads them as tables part_0, part_1, …

    Such a table has the columns c0, c1, …, GROUP and GROUP_ROWS.

    Attributes:
        final: the parts' final answers to the query's own, o0, …
        estimate: the same over answers so far. It also has v0, … for outputs that are estimated, then GROUP
            and GROUP_ROWS if its rows can be told apart.
        replicate: `estimate` for every variant of the part that varies, each without one block. "" where no
            error bar is made of variants.
    """

    final: str
    estimate: str
    replicate: str


@dataclass(frozen=True, slots=True)
class AroundRows:
    """What is known of the rows of an answer that is computed from others (see `rewrite/levels.py`).

    Attributes:
        have_identity: they can be told apart, each by the row of a part that it comes from.
        are_certain: which rows there are depends on no estimate.
        keep_groups: each row is a group of a part's answer.
        so_far: some outputs are values so far. They are computed from groups that are not scaled while the
            groups are tiny.
    """

    have_identity: bool
    are_certain: bool
    keep_groups: bool
    so_far: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AroundPlan(OnlinePlan):
    """How a query over the answers of others is answered.

    Attributes:
        parts: the plans of those answers.
        varied: the part, by position, that leaves out a block at a time for the error bars.
        texts: the SQL around the answers.
        rows: what is known of its rows.
        sources: sources[i] are the (part, output) from which output i takes its interval.
        whole: whole[i]: output i stays uncertified until the end, because groups not yet seen can change it.
    """

    mode = Mode.MERGEABLE
    is_two_level = True

    parts: tuple[PartPlan, ...]
    varied: int
    texts: AroundTexts
    rows: AroundRows
    sources: tuple[tuple[tuple[int, int], ...], ...]
    whole: tuple[bool, ...]

    @property
    def method(self) -> Method:
        return self.parts[self.varied].method

    @property
    def expected_groups(self) -> int:
        return max(part.expected_groups for part in self.parts)
