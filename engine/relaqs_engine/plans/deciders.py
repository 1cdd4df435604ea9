"""What decides which groups an answer has: the numbers that HAVING and LIMIT compare."""

from __future__ import annotations

from dataclasses import dataclass

from relaqs_engine.plans.outputs import OutputColumn


@dataclass(frozen=True, slots=True)
class Decider:
    """A number that decides which groups the answer has.

    Example: in `HAVING sum(x) > 100` the sum is a decider with the threshold 100 and the side "above".

    Attributes:
        value: the number; it is estimated like an output, and not shown.
        ranks: True where the answer is its LIMIT first groups by this number. Otherwise HAVING compares it
            with the threshold, and a group stays on the side where it is.
        descends: whether the largest number comes first. Only for a ranking.
        threshold: what HAVING compares the number with.
        passes: HAVING's condition, in SQL over merged groups.
        side: the side of the threshold where groups pass, "above" or "below"; "" where it is neither.
    """

    value: OutputColumn
    ranks: bool
    descends: bool = True
    threshold: float = 0.0
    passes: str = ""
    side: str = ""


@dataclass(frozen=True, slots=True)
class MembershipRules:
    """Which groups belong to the answer, as far as HAVING, LIMIT and inner stages say.

    Attributes:
        deciders: the estimated numbers that HAVING and LIMIT depend on.
        is_opaque: True where it cannot be told before the end which groups belong to the answer.
        shown_rows: how many groups the answer shows at most, where a decider ranks them. Its estimate then
            reads RIVALS more. None where nothing that is estimated ranks them.
        ranks_by_key: whether LIMIT picks groups by keys alone, or by keys first and then by what has no
            error.
        ranks_totals: whether the ranking is by values that are scaled.
        has_having: whether the query has a HAVING.
        has_limit: whether it has a LIMIT or an OFFSET.
        most_rows: how many groups LIMIT lets through. None without LIMIT, and with an OFFSET.
        first_by: the keys that order the answer before any estimate does, as SQL over merged groups.
        rows_may_leave: whether rows that were counted may stop counting, as an inner stage moves.
    """

    deciders: tuple[Decider, ...] = ()
    is_opaque: bool = False
    shown_rows: int | None = None
    ranks_by_key: bool = False
    ranks_totals: bool = False
    has_having: bool = False
    has_limit: bool = False
    most_rows: int | None = None
    first_by: tuple[str, ...] = ()
    rows_may_leave: bool = False

    @property
    def ranking(self) -> Decider | None:
        """Return what the answer's groups are ranked by, None where they are not ranked by an estimate."""
        return next((decider for decider in self.deciders if decider.ranks), None)

    @property
    def margins(self) -> tuple[Decider, ...]:
        """Return what HAVING compares."""
        return tuple(decider for decider in self.deciders if not decider.ranks)

    @property
    def picks_groups(self) -> bool:
        """Whether HAVING or LIMIT leaves groups out."""
        return self.has_having or self.has_limit
