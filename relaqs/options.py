"""What a query may be asked for, checked before anything starts."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeGuard, get_args

from relaqs_engine.errors import RelaqsError
from relaqs_engine.execution.headline import Judge, Weighting

if TYPE_CHECKING:
    from relaqs.snapshot import Snapshot

Interval = Literal["pointwise", "anytime"]
Fallback = Literal["exact", "error"]
ErrorFunction = Callable[["Snapshot", "Snapshot"], float]
Watch = str | Sequence[str] | ErrorFunction


class ArgumentError(RelaqsError, ValueError):
    """An argument has a value that is not accepted. It is a ValueError too."""


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """The keyword arguments of `online_sql`. Raises ArgumentError naming the first one not accepted.

    target: the relative error to stop at. confidence: of the intervals. timeout: in seconds. watch: names of
    approximate columns, or a function of the previous and the newest snapshot that gives the error.
    chart_pixels: the height of a chart of the answer. judged_by: what a cell weighs in the error; share: of
    that weight must be within it. within: the seconds in which the target should be reached.
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

    @property
    def judge(self) -> Judge:
        """How the cells' errors become one."""
        return Judge(self.judged_by, self.share)

    def __post_init__(self) -> None:
        if not _is_number(self.confidence) or not 0.5 < self.confidence < 1:
            raise _refusal("confidence", self.confidence, "a number between 0.5 and 1, such as 0.95")
        share_of_weight(self.share)
        for name, kind in (("interval", Interval), ("fallback", Fallback), ("judged_by", Weighting)):
            choices = get_args(kind)
            if getattr(self, name) not in choices:
                raise _refusal(name, getattr(self, name), " or ".join(map(repr, choices)))
        check_priority(self.priority)
        for name in ("timeout", "within"):
            if getattr(self, name) is not None:
                check_seconds(name, getattr(self, name))
        if self.within is not None and self.target is None:
            raise ArgumentError(
                f"within is {self.within!r}, but there is no target to reach by then; give target=0.01, "
                f"or timeout={self.within!r} to stop with the best answer there is"
            )
        if not _is_whole(self.seed) or self.seed < 0:
            raise _refusal("seed", self.seed, "a whole number from 0 on")
        for name in ("batches", "chart_pixels"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))


def relative_error(value: float | str | None, name: str = "target") -> float | None:
    """Return the relative error as a share: 0.01 for 0.01, "0.01" and "1%"; None for None."""
    if value is None:
        return None
    number: object = value
    if isinstance(value, str):
        number = _share(value)
    if not _is_number(number) or not 0 < number < math.inf:
        raise _refusal(name, value, 'a relative error above 0, such as 0.01 or "1%"')
    return float(number)


def share_of_weight(value: float | str) -> float:
    """Return the share of an answer that must be within its error: 0.95 for 0.95, "0.95" and "95%"."""
    number: object = _share(value) if isinstance(value, str) else value
    if not _is_number(number) or not 0 < number <= 1:
        raise _refusal("share", value, 'a share above 0 and up to 1, such as 0.95 or "95%"')
    return float(number)


def watched(watch: Watch | None) -> tuple[str, ...] | ErrorFunction | None:
    """Return column names as a tuple (one name stands for itself); a function and None as they are."""
    if watch is None or callable(watch):
        return watch
    names = (watch,) if isinstance(watch, str) else tuple(watch)
    if not names or not all(isinstance(name, str) for name in names):
        raise _refusal("watch", watch, "names of approximate columns, or a function of two snapshots")
    return names


def check_priority(priority: float) -> float:
    if not _is_number(priority) or not 0 < priority < math.inf:
        raise _refusal("priority", priority, "a finite number above 0; 2.0 gets twice the share of 1.0")
    return float(priority)


def check_count(name: str, count: int) -> int:
    if not _is_whole(count) or count < 1:
        raise _refusal(name, count, "a whole number from 1 on, or None")
    return int(count)


def check_seconds(name: str, seconds: float) -> float:
    if not _is_number(seconds) or not 0 < seconds < math.inf:
        raise _refusal(name, seconds, "a number of seconds above 0, or None")
    return float(seconds)


def check_loss(name: str, value: float) -> float:
    if not _is_number(value) or not math.isfinite(value):
        raise _refusal(name, value, "a finite number, in the loss's own unit")
    return float(value)


def _refusal(name: str, value: object, accepted: str) -> ArgumentError:
    return ArgumentError(f"{name} is {value!r}; it must be {accepted}")


def _share(text: str) -> float | None:
    number, percent, rest = text.strip().partition("%")
    try:
        return None if rest else float(number) / (100 if percent else 1)
    except ValueError:
        return None


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
