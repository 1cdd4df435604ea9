"""One panel of a live page: its settings, the run it shows, and what happened to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from dataclasses import replace
from functools import partial
from typing import Protocol

from relaqs import OnlinePlan
from relaqs_dashboards.filters import Brush, Filter, FilterError, Reading, filtered, reading_of
from relaqs_dashboards.runs import Run, Runs, failure_of, met_weight
from relaqs_dashboards.settings import PanelSettings
from relaqs_dashboards.standing import is_met, panel_update, shown_state
from relaqs_dashboards.wire import Change, Failure, PanelState, PanelUpdate


class PanelHost(Protocol):
    """The live page that a panel stands on, as the panel sees it. A `Board` is one."""

    @property
    def runs(self) -> Runs:
        """The queries that run for this dashboard."""
        ...

    @property
    def viewers(self) -> Sized:
        """Everybody who looks at the page."""
        ...

    def filters_on(self, panel: Panel) -> tuple[Filter, ...]:
        """Return the page's filters that concern what the panel reads."""
        ...

    def touch(self, panel: Panel) -> None:
        """Tell the viewers that the panel has changed."""
        ...

    def why_waiting(self, run: Run) -> str:
        """Return in words why a run has no answer yet."""
        ...

    def rows_read_by(self, run: Run) -> int | None:
        """Return the number of rows a run has to read, None where it is read as a whole."""
        ...


class Panel:
    """One panel of a live page.

    Attributes:
        number: counts the panel's runs. It changes when the query is another one or starts anew.
    """

    def __init__(self, board: PanelHost, settings: PanelSettings) -> None:
        self.settings = settings
        self.number = 1
        self.run: Run | None = None
        self.failure: Failure | None = None
        self.changed_by: Change | None = None
        self.reading: Reading | None = None
        self.filters: tuple[Filter, ...] = ()
        self._unfiltered: str | None = None
        self._board = board
        self._planning: asyncio.Task[None] | None = None

    @property
    def viewer_count(self) -> int:
        return len(self._board.viewers)

    @property
    def brushes(self) -> dict[str, tuple[int, Brush]]:
        """What can be selected in the answer, by the column's name, with its position."""
        if self.reading is None or self.run is None or self.run.snapshot is None:
            return {}
        names = self.run.snapshot.estimate.column_names
        kinds = [output.part for output in self.run.plan.outputs]
        return {
            names[i]: (i, brush)
            for i, brush in self.reading.brushes.items()
            if i < len(names) and names.count(names[i]) == 1 and (i >= len(kinds) or kinds[i] == "key")
        }

    @property
    def weight(self) -> float:
        snapshot = self.run.snapshot if self.run is not None else None
        priority = self.settings.priority
        return met_weight(priority) if is_met(snapshot, self.settings.target) else priority

    @property
    def target(self) -> float | None:
        return self.settings.target

    def run_changed(self) -> None:
        self._board.touch(self)

    def run_restarted(self) -> None:
        self.number += 1
        self._board.touch(self)

    def open(self, user: str) -> None:
        """Begin to run, unless it does already."""
        if self.run is None and self._planning is None and self.failure is None:
            self._planning = asyncio.create_task(self._plan(user, self.settings))

    def close(self) -> None:
        """Let go of the run."""
        if self._planning is not None:
            self._planning.cancel()
            self._planning = None
        if self.run is not None:
            run, self.run = self.run, None
            self._board.runs.detach(self, run)
        self.failure = None
        self.filters = ()

    def refilter(self, user: str) -> None:
        """Run anew if other filters than before concern this panel, or if that is not known yet."""
        if self._planning is not None or (
            self.reading is not None and self._board.filters_on(self) != self.filters
        ):
            self.run_anew(user)

    def run_anew(self, user: str) -> None:
        """Cancel what ran, and run what the settings say now."""
        self.close()
        self.number += 1
        self.open(user)

    async def _plan(self, user: str, settings: PanelSettings) -> None:
        try:
            plan = await self._board.runs.plan(settings.sql, user, settings.params)
            plan = await self._with_filters(plan, user)
        except Exception as error:  # whatever it is, the page says so
            self.failure = failure_of(error, settings.sql)
            if self.filters:  # the place is one in another text
                self.failure = replace(self.failure, position=None)
        else:
            self.run = self._board.runs.attach(self, plan, user)
        self._planning = None
        self._board.touch(self)

    async def _with_filters(self, plan: OnlinePlan, user: str) -> OnlinePlan:
        """Return the plan of the same query, over the rows that the page's filters let through."""
        runs, self._unfiltered = self._board.runs, None
        tables = runs.column_names()
        self.reading = await runs.read(user, partial(reading_of, plan.sql, tables))
        self.filters = self._board.filters_on(self)
        if not self.filters:
            return plan
        try:
            sql = await runs.read(user, partial(filtered, plan.sql, self.filters, tables))
        except FilterError as error:
            self._unfiltered = str(error)
            return plan
        return await runs.plan(sql, user)

    def update(self, cores: float) -> PanelUpdate:
        """Return what a page shows of it. cores: that its query uses now."""
        run, runs = self.run, self._board.runs
        return panel_update(
            self.settings,
            self._state(),
            run.snapshot if run is not None else None,
            mode=run.plan.mode.value if run is not None else "mergeable",
            confidence=runs.confidence,
            interval=runs.interval,
            confidence_for=runs.confidence_for,
            run=self.number,
            reason=self._reason(),
            failure=self.failure or (run.failure if run is not None else None),
            rows_total=None if run is None else self._board.rows_read_by(run),
            cores=cores,
            kept=run is None or run.is_kept,
            viewers=run.viewer_count if run is not None else self.viewer_count,
            changed_by=self.changed_by,
            brushes=tuple(self.brushes),
            filters=() if self._unfiltered else tuple(each.id for each in self.filters),
            unfiltered=self._unfiltered,
        )

    def _state(self) -> PanelState:
        if self.failure is not None:
            return "failed"
        if self.run is None:
            return "waiting"
        return shown_state(self.run.state, self.run.snapshot, self.settings.target)

    def _reason(self) -> str | None:
        """Return why the panel stands as it does, in words; None where its state says it all."""
        if self.run is None:
            return None if self.failure is not None else "planning the query"
        state = self._state()
        if self.run.reason is not None and state in ("waiting", "paused", "stopped"):
            return self.run.reason
        if state == "waiting":
            return self._board.why_waiting(self.run)
        if state == "target_met":
            return "good enough; it goes on with the cores that others leave"
        if state == "empty":
            return "every row was read, and none matches"
        return None
