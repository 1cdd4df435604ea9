"""How a query stands, as a panel shows it: from its state and newest snapshot to an update. Pure."""

from __future__ import annotations

import math
from typing import cast

from relaqs import Snapshot
from relaqs.prediction.ahead import fraction_at
from relaqs.rendering.view import doubts_said, not_judged_text
from relaqs_dashboards.settings import PanelSettings
from relaqs_dashboards.wire import Change, Failure, PanelState, PanelUpdate


def is_met(snapshot: Snapshot | None, target: float | None) -> bool:
    """Whether an answer is good enough."""
    return snapshot is not None and target is not None and snapshot.error <= target


def shown_state(state: str, snapshot: Snapshot | None, target: float | None) -> PanelState:
    """Return the state of a panel. state: of its query, as `OnlineQuery.state`."""
    if state in ("paused", "stopped", "failed"):
        return cast(PanelState, state)
    if state == "exact":
        return "empty" if snapshot is not None and not len(snapshot) else "exact"
    if snapshot is None:
        return "waiting"
    return "target_met" if is_met(snapshot, target) else "refining"


def _remarks(snapshot: Snapshot) -> tuple[str, ...]:
    """Return what the reader should know, the columns first that the error says nothing of."""
    left_out = (not_judged_text(snapshot.not_judged),) if snapshot.not_judged else ()
    return (*left_out, *snapshot.warnings, *doubts_said(snapshot))


def panel_update(
    settings: PanelSettings,
    state: PanelState,
    snapshot: Snapshot | None,
    *,
    mode: str,
    confidence: float,
    interval: str,
    confidence_for: str,
    run: int = 1,
    reason: str | None = None,
    failure: Failure | None = None,
    rows_total: int | None = None,
    cores: float = 0.0,
    kept: bool = True,
    viewers: int = 1,
    changed_by: Change | None = None,
    brushes: tuple[str, ...] = (),
    filters: tuple[str, ...] = (),
    unfiltered: str | None = None,
) -> PanelUpdate:
    """Return all that a page shows of a panel but its answer."""
    fraction = snapshot.fraction if snapshot is not None else 0.0
    met_at = seconds = None
    if snapshot is not None and settings.target is not None and not is_met(snapshot, settings.target):
        met_at = fraction_at(settings.target, snapshot.error, fraction)
        if met_at is not None and snapshot.course is not None:
            seconds = snapshot.expected(settings.target).seconds
    return PanelUpdate(
        state=state,
        reason=reason,
        run=run,
        rows_read=None if rows_total is None else round(fraction * rows_total),
        rows_total=rows_total,
        fraction=fraction,
        elapsed_seconds=round(snapshot.elapsed_seconds, 3) if snapshot is not None else 0.0,
        cores=round(cores, 2),
        error=snapshot.error if snapshot is not None and math.isfinite(snapshot.error) else None,
        target=settings.target,
        priority=settings.priority,
        target_fraction=met_at,
        seconds_to_target=seconds,
        unseen_groups=snapshot.unseen_groups if snapshot is not None else None,
        warnings=_remarks(snapshot) if snapshot is not None else (),
        confidence=confidence,
        interval=interval,
        confidence_for=confidence_for,
        mode=mode,
        kept=kept,
        viewers=viewers,
        changed_by=changed_by,
        failure=failure,
        brushes=brushes,
        filters=filters,
        unfiltered=unfiltered,
    )
