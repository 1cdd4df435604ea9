"""What estimates before the last must keep to, judged by it: bounds hold, keys stay, marks are earned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relaqs_engine.execution.estimate import ApproximateColumn, Estimate
from relaqs_engine.plans.composite import AroundPlan, RefinedPlan
from relaqs_engine.plans.plan import OnlinePlan, OutputKind

Row = tuple[Any, ...]
MOST_ROWS = 1_000  # of an answer that is judged


@dataclass(slots=True)
class Tally:
    """Answers that were judged, their certified cells, and those of them whose interval held the truth."""

    answers: int = 0
    certified: int = 0
    held: int = 0


def unsound(plan: OnlinePlan, estimates: Sequence[Estimate], tally: Tally) -> Iterator[str]:
    """Yield what an estimate said that the last one proves wrong; count its intervals into the tally."""
    *early, last = estimates
    if last.table.num_rows > MOST_ROWS:
        return
    tally.answers += 1
    final = _rows_by_key(plan, last)
    keys = Counter(_keys(plan, last))
    for estimate in early:
        yield from _too_sure(plan, estimate)
        if _rows_stay(plan) and (strangers := set(_keys(plan, estimate)) - set(keys)):
            yield f"at {estimate.fraction:.3f} rows that the answer has not: {sorted(strangers)[:3]}"
        for key, row in _rows_by_key(plan, estimate).items():
            if key in final:
                for column in estimate.approximate:
                    yield from _cell(plan, column, row, final[key], estimate.fraction, tally)


def _rows_stay(plan: OnlinePlan) -> bool:
    """Whether a row that was shown is one of the answer's, by its keys."""
    if isinstance(plan, AroundPlan):
        return (
            plan.rows.are_certain and plan.rows.most is None and all(_rows_stay(part) for part in plan.parts)
        )
    if isinstance(plan, RefinedPlan):
        return plan.outer.belonging is None and _rows_stay(plan.outer.plan)
    return plan.shows_every_group


def _key_positions(plan: OnlinePlan) -> list[int]:
    return [i for i, output in enumerate(plan.outputs) if output.kind is OutputKind.KEY]


def _keys(plan: OnlinePlan, estimate: Estimate) -> list[str]:
    columns = [estimate.table.column(i).to_pylist() for i in _key_positions(plan)]
    return [repr(row) for row in zip(*columns, strict=True)] if columns else []


def _rows_by_key(plan: OnlinePlan, estimate: Estimate) -> Mapping[str, Row]:
    """Return the rows whose keys are theirs alone."""
    rows = list(zip(*(column.to_pylist() for column in estimate.table.columns), strict=True))
    keys = _keys(plan, estimate) or [""] * len(rows)
    count = Counter(keys)
    return {key: row for key, row in zip(keys, rows, strict=True) if count[key] == 1}


def _too_sure(plan: OnlinePlan, estimate: Estimate) -> Iterator[str]:
    """Yield the columns that are certified though no interval of theirs is known to be sound."""
    for place, column in enumerate(estimate.approximate):
        output = plan.outputs[column.position]
        chosen = isinstance(plan, AroundPlan) and plan.rows.chosen[column.position]
        opaque = output.kind is OutputKind.OPAQUE and not plan.groups_are_local and not chosen
        if opaque and estimate.certified[:, place].any():
            yield f"at {estimate.fraction:.3f} {column.name} is certified"


def _cell(
    plan: OnlinePlan, column: ApproximateColumn, row: Row, last: Row, fraction: float, tally: Tally
) -> Iterator[str]:
    width = len(plan.outputs)
    place = next(i for i, o in enumerate(_approximate(plan)) if o == column.position)
    low, high, certified = row[width + 3 * place : width + 3 * place + 3]
    truth, kind = last[column.position], plan.outputs[column.position].kind
    where = f"at {fraction:.3f} {column.name} in [{low}, {high}], and is {truth}"
    # Neither NaN nor a STRUCT has an order in Python.
    if truth is None or isinstance(truth, dict) or (isinstance(truth, float) and truth != truth):
        return
    if kind is OutputKind.BOUND and not _within(low, truth, high):
        yield f"{where}: no bound"
    if kind is OutputKind.DISTINCT and low is not None and low > truth:
        yield f"{where}: fewer than were seen"
    if (
        kind is OutputKind.OPAQUE
        and certified
        and not plan.groups_are_local
        and not _within(low, truth, high)
    ):
        yield f"{where}: it was certain"
    numbers = (OutputKind.ESTIMATE, OutputKind.QUANTILE, OutputKind.OF_DISTINCT)
    if kind in numbers and plan.groups_are_local and not _within(low, truth, high):
        yield f"{where}: its group was complete"
    if kind in numbers and certified:
        tally.certified += 1
        tally.held += _within(low, truth, high)


def _approximate(plan: OnlinePlan) -> list[int]:
    return [i for i, output in enumerate(plan.outputs) if output.kind is not OutputKind.KEY]


def _within(low: Any, value: Any, high: Any) -> bool:
    if isinstance(value, dict):  # DuckDB orders structs by their fields' values, Python not at all
        low, value, high = (None if each is None else list(each.values()) for each in (low, value, high))
    if isinstance(low, float) or isinstance(high, float):
        slack = 1e-9 * max(1.0, abs(float(value)))
        return (low is None or low <= float(value) + slack) and (high is None or float(value) - slack <= high)
    return (low is None or low <= value) and (high is None or value <= high)
