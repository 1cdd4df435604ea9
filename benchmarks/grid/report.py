"""What came out, counted: outcomes, reasons, how often intervals held, and what is wrong in full."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from benchmarks.grid.dimensions import Case
from benchmarks.grid.judge import Outcome


@dataclass(slots=True)
class Report:
    """Outcomes so far.

    Attributes:
        kinds: outcome → how many cases.
        reasons: outcome and reason → how many.
        firsts: outcome and reason → the first case of it: its number, itself, its outcome.
        failed: the numbers of all cases that failed.
        held: path → certified cells whose interval held, and all of them.
        cases: that were run.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    firsts: dict[tuple[str, str], tuple[int, Case, Outcome]] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)
    held: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    cases: list[Case] = field(default_factory=list)

    def add(self, number: int, case: Case, outcome: Outcome) -> bool:
        """Count an outcome, and return whether it is a failure of a new kind."""
        self.kinds[outcome.kind] += 1
        self.cases.append(case)
        if outcome.certified:
            is_grouped = case["grouping"] not in ("none", "distinct")
            path = f"{outcome.path}, {'grouped' if is_grouped else 'of all rows'}"
            self.held[path][0] += outcome.held
            self.held[path][1] += outcome.certified
        if outcome.is_fine and not outcome.reason:
            return False
        key = (outcome.kind, outcome.reason)
        self.reasons[key] += 1
        if not outcome.is_fine:
            self.failed.append(number)
        if key in self.firsts:
            return False
        self.firsts[key] = (number, case, outcome)
        return not outcome.is_fine

    def failing(self) -> list[tuple[int, Case, Outcome]]:
        """Return the first case of each kind of failure."""
        return [each for each in self.firsts.values() if not each[2].is_fine]

    @property
    def failures(self) -> int:
        return sum(count for kind, count in self.kinds.items() if not Outcome(kind).is_fine)

    def text(self, seed: int) -> str:
        lines = [
            "",
            "outcomes: " + ", ".join(f"{count:,} {kind}" for kind, count in self.kinds.most_common()),
        ]
        for path, (held, certified) in sorted(self.held.items()):
            lines.append(
                f"certified cells that held, {path}: {held:,} of {certified:,} ({held / certified:.1%})"
            )
        for kind in ("both refuse", "refused", "hang", "raw", "wrong"):
            found = [(key, count) for key, count in self.reasons.most_common() if key[0] == kind]
            lines += [f"\n{kind}:"] * bool(found)
            lines += [
                f"{count:5} {key[1] or kind}  --case {seed}:{self.firsts[key][0]}" for key, count in found
            ]
        if self.failed:
            lines.append(f"\nall that failed: {', '.join(map(str, sorted(self.failed)))}")
        return "\n".join(lines)
