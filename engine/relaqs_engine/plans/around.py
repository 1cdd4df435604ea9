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

    Such a table has the part's outputs as c0, c1, … An answer so far has two more columns (`plans/names.py`):
    `relaqs_group` numbers its rows, through all parts, and `relaqs_rows` counts the joined rows behind each.

    Attributes:
        final: makes the query's answer, with the columns o0, o1, …, of the final answers of the parts.
        estimate: makes the answer so far of the parts' answers so far. The outputs that are estimated stand
            in it once more, as DOUBLE, named v0, v1, … after their positions. If its rows can be told apart,
            `relaqs_group` and `relaqs_rows` follow.
        moves: the most that one sampled row could move each estimated output, in the same names, for each
            `place` of the table shown. The parts have it as relaqs_moves_0, … beside c0, …. It is infinite
            where it is not known. "" where it is known of no output.
    """

    final: str
    estimate: str
    moves: str = ""


@dataclass(frozen=True, slots=True)
class Draw:
    """Parts whose rows are sampled together, so that what they miss is not independent.

    Attributes:
        parts: their positions. They leave out the same block together.
        replicate: the SQL of the estimated outputs, once for each variant of these parts. A variant is their
            answers without one block.
    """

    parts: tuple[int, ...]
    replicate: str


@dataclass(frozen=True, slots=True)
class Margin:
    """A number by which an answer chooses. In the texts it is an estimated output after the last one.

    Attributes:
        output: which output depends on it, None where the row does.
        is_compared: it is how far apart the two sides of a comparison are. As long as that is far from zero,
            nothing changes. False: it is what COALESCE takes unless it is NULL, and it must be certified.
    """

    output: int | None
    is_compared: bool = True


@dataclass(frozen=True, slots=True)
class Ranking:
    """LIMIT behind an ORDER BY whose first term is an estimate.

    Attributes:
        output: the estimated output.
        descends: whether the largest comes first.
        shown: how many rows LIMIT lets through. The estimate's SQL gives RIVALS more.
    """

    output: int
    descends: bool
    shown: int


@dataclass(frozen=True, slots=True)
class AroundRows:
    """What is known of the rows of an answer that is computed from others (see `rewrite/levels.py`).

    Attributes:
        have_identity: they can be told apart, each by the row of a part that it comes from.
        are_certain: which rows there are depends on no estimate, LIMIT left aside.
        most: how many rows LIMIT lets through, None where it cannot leave any out. 0 where an OFFSET may.
        keep_groups: each row is a group of a part's answer.
        sets: into how many rows one row that is sampled may fall, the total of all left aside. Tables of
            different seeds are sampled independently and count apart. 0 where that is not known, or where
            none is sampled.
        so_far: some outputs are values so far, without an interval, as a rank is. While the groups of the
            parts have few rows, they are computed from totals that are not scaled.
        have_margins: which rows there are depends on no estimate but the margins. False where LIMIT picks
            among them.
        margins: of each comparison of estimates, and of each estimate that may be NULL.
        totals: totals[i]: output i adds up sampled rows, none of which takes anything away.
        chosen: chosen[i]: output i is a value that comparisons of estimates choose among known ones.
        ranking: by which estimate LIMIT picks among the rows, None where it picks in another way, or not.
        tables_together: the most tables with one seed. A row of each may be sampled with one row of another.
    """

    have_identity: bool
    are_certain: bool
    most: int | None
    keep_groups: bool
    so_far: bool
    sets: int = 0
    have_margins: bool = False
    margins: tuple[Margin, ...] = ()
    totals: tuple[bool, ...] = ()
    chosen: tuple[bool, ...] = ()
    ranking: Ranking | None = None
    tables_together: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AroundPlan(OnlinePlan):
    """How a query over the answers of others is answered.

    Attributes:
        parts: the plans of those answers.
        draws: the samples that the parts come from, each independent of the others. For the error bars, the
            answer is computed again without each block of each draw in turn. () where no error bar needs it.
        texts: the SQL around the answers.
        rows: what is known of its rows.
        sources: sources[i] are the (part, output) from which output i takes its interval.
        added: outputs of parts that are added up, each as the (part, output) that make one column.
        whole: whole[i]: output i depends on which groups there are, so all of them must have been met.
    """

    mode = Mode.MERGEABLE
    is_two_level = True

    parts: tuple[PartPlan, ...]
    draws: tuple[Draw, ...]
    texts: AroundTexts
    rows: AroundRows
    sources: tuple[tuple[tuple[int, int], ...], ...]
    added: tuple[frozenset[tuple[int, int]], ...]
    whole: tuple[bool, ...]

    @property
    def method(self) -> Method:
        return next(part.method for part in self.parts if part.is_estimated)

    @property
    def is_undecided(self) -> bool:
        return not self.rows.are_certain

    @property
    def expected_groups(self) -> int:
        return max(part.expected_groups for part in self.parts)
