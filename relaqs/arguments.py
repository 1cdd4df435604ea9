"""Checks of arguments: each returns the value it accepts, or raises ArgumentError with what is accepted."""

from __future__ import annotations

import difflib
import math
import numbers
import re
from contextlib import suppress
from typing import TypeGuard

from relaqs_engine.errors import RelaqsError

_MONEY = re.compile(r"[^\d\s.-]?\s?(\d{1,12}(?:\.\d{1,6})?)(?:\s?[A-Za-z]{1,3})?")


class ArgumentError(RelaqsError, ValueError):
    """An argument has a value that is not accepted. It is a ValueError too."""


def relative_error(value: float | str | None, name: str = "target", most: float = 1.0) -> float | None:
    """Return the relative error as a share: 0.01 for 0.01, "0.01" and "1%"; None for None.

    It is at most `most`: a target of 5 or "5" is more likely 5 % than 500 %, and 1 or "1" than 100 %.
    """
    if value is None:
        return None
    number: object = value
    if isinstance(value, str):
        number = _share(value)
    if not is_number(number) or not 0 < number < math.inf:
        raise refusal(name, value, 'a relative error above 0, such as 0.01 or "1%"')
    if number > most or (most == 1 and str(value).strip() == "1"):
        number = float(number)
        instead = "" if "%" in str(value) or number > 100 else f'; for {number:g} % write "{number:g}%"'
        raise refusal(name, value, f"a share up to {most:.0%}{instead}")
    return float(number)


def share_of_weight(value: float | str) -> float:
    """Return the share of an answer that must be within its error: 0.95 for 0.95, "0.95" and "95%"."""
    number: object = _share(value) if isinstance(value, str) else value
    if not is_number(number) or not 0 < number <= 1:
        raise refusal("share", value, 'a share above 0 and up to 1, such as 0.95 or "95%"')
    return float(number)


def check_zone(name: str, zone: str) -> str:
    """Return the time zone of that name as DuckDB spells it: "Europe/Paris" for "europe/paris"."""
    from relaqs_engine.duck import zone_names  # who names no zone need not wait for DuckDB

    known = zone_names()
    wanted = str(zone).lower().replace(" ", "_")
    if isinstance(zone, str) and wanted in known and _is_zone_of_arrow(known[wanted]):
        return known[wanted]
    near = [each for each in known if each.endswith(f"/{wanted}")]
    near = [*near, *difflib.get_close_matches(wanted, known.keys() - {wanted, *near})]
    found = [known[each] for each in near if _is_zone_of_arrow(known[each])][:3]
    hint = f"; did you mean {' or '.join(found)}?" if found else ""
    raise refusal(name, zone, f'the name of a time zone, such as "Europe/Paris" or "UTC"{hint}')


def _is_zone_of_arrow(zone: str) -> bool:
    """Return whether Arrow knows a time zone. DuckDB knows some more, such as PST."""
    import pyarrow as pa

    try:
        pa.lib.string_to_tzinfo(zone)
    except pa.ArrowException:
        return False
    return True


def check_priority(priority: float) -> float:
    if not is_number(priority) or not 0 < priority < math.inf:
        raise refusal("priority", priority, "a finite number above 0; 2.0 gets twice the share of 1.0")
    return float(priority)


def check_count(name: str, count: int) -> int:
    if not is_whole(count) or count < 1:
        raise refusal(name, count, "a whole number from 1 on, or None")
    return int(count)


def check_whole(name: str, count: int, least: int = 1) -> int:
    """Return the whole number. Raises ArgumentError if it is below the least."""
    if not is_whole(count) or count < least:
        raise refusal(name, count, f"a whole number from {least} on")
    return int(count)


def check_positive(name: str, value: float) -> float:
    """Return the number. Raises ArgumentError if it is not finite and above 0."""
    if not is_number(value) or not math.isfinite(value) or not value > 0:
        raise refusal(name, value, "a finite number above 0")
    return float(value)


def check_not_negative(name: str, value: float) -> float:
    """Return the number. Raises ArgumentError if it is not finite and at least 0."""
    if not is_number(value) or not math.isfinite(value) or not value >= 0:
        raise refusal(name, value, "a finite number, 0 or above")
    return float(value)


def check_budget(budget: float | str | None) -> float | None:
    """Return the number that a budget names: of calls, or of money where it is a text; None for none.

    >>> check_budget(500), check_budget("$3"), check_budget("2.50 EUR")
    (500.0, 3.0, 2.5)
    """
    if budget is None:
        return None
    number: object = budget
    if isinstance(budget, str):
        found = _MONEY.fullmatch(budget.strip())
        number = float(found[1]) if found else None
    if not is_number(number) or not 0 < number < math.inf:
        raise refusal("budget", budget, 'a number of calls such as 500, or money such as "$3"')
    return float(number)


def budget_of(text: str) -> float | str:
    """Return a budget that was written down: a number of calls, or money in text.

    >>> budget_of("500"), budget_of("$3")
    (500.0, '$3')
    """
    with suppress(ValueError):
        check_budget(calls := float(text))
        return calls
    check_budget(text)
    return text


def check_seconds(name: str, seconds: float) -> float:
    if not is_number(seconds) or not 0 < seconds < math.inf:
        raise refusal(name, seconds, "a number of seconds above 0, or None")
    return float(seconds)


def seconds_in(name: str, value: float | str) -> float:
    """Return a time in seconds: 2.0 for 2, "2", "2s" and "2000ms", 90.0 for "1.5m"."""
    number: object = _seconds(value) if isinstance(value, str) else value
    if not is_number(number) or not 0 < number < math.inf:
        raise refusal(name, value, 'a time above 0, such as 2 (seconds), "500ms" or "1.5m"')
    return float(number)


def check_loss(name: str, value: float) -> float:
    if not is_number(value) or not math.isfinite(value):
        raise refusal(name, value, "a finite number, in the loss's own unit")
    return float(value)


def refusal(name: str, value: object, accepted: str) -> ArgumentError:
    return ArgumentError(f"{name} is {value!r}; it must be {accepted}")


def _share(text: str) -> float | None:
    number, percent, rest = text.strip().partition("%")
    try:
        return None if rest else float(number) / (100 if percent else 1)
    except ValueError:
        return None


def _seconds(text: str) -> float | None:
    unit = next((unit for unit in ("ms", "s", "m") if text.strip().endswith(unit)), "")
    try:
        return float(text.strip().removesuffix(unit)) * {"ms": 1e-3, "m": 60.0}.get(unit, 1.0)
    except ValueError:
        return None


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
