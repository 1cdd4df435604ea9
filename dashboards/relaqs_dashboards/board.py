"""A live page: its panels, who looks at it, and what happens when somebody asks for something.

A panel has its settings, the run it shows, and what happened to it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sized
from dataclasses import replace
from functools import partial
from typing import Protocol

from relaqs import OnlinePlan
from relaqs_dashboards.answers import is_met, panel_update, shown_state
from relaqs_dashboards.filters import (
    PERIOD,
    Brush,
    Filter,
    FilterError,
    Reading,
    by_unit,
    condition_of,
    ends_within,
    filtered,
    in_period,
    partial_periods,
    period_of,
    reading_of,
)
from relaqs_dashboards.requests import (
    Act,
    Add,
    Brushing,
    Discard,
    Grain,
    Move,
    Name,
    Period,
    Remove,
    Request,
    Save,
    SettingsChange,
    Unfilter,
)
from relaqs_dashboards.runs import Run, Runs, failure_of, met_weight
from relaqs_dashboards.settings import (
    TEXT,
    PageError,
    PageSettings,
    PanelSettings,
    changed_panel,
    panel_of,
    shown,
)
from relaqs_dashboards.wire import Change, Failure, LogLine, PanelState, PanelUpdate, TimeColumn
from relaqs_dashboards.wire import Change as ChangeNote


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

    def why_unfiltered(self, panel: Panel) -> str | None:
        """Return why filters of the page do not reach a panel, in words; None where all do."""
        ...

    def ends_of(self, table: str, column: str) -> tuple[object, object] | None:
        """Return the least and the greatest value that the page shows of a column, None where unknown."""
        ...

    def touch(self, panel: Panel) -> None:
        """Tell the viewers that the panel has changed."""
        ...

    def take_chart(self, panel: Panel, chart: str) -> None:
        """Draw a panel by the chart that fits its answer."""
        ...

    def read_changed(self) -> None:
        """Hear that a panel may read other tables than before."""
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
        is_free: whether nobody has chosen a chart: the first answer does.
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
        self.is_free = False
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
    def partial(self) -> dict[str, tuple[str, ...]]:
        """The periods in the answer that the table fills in part, by the column's name."""
        found = {}
        for name, (_, brush) in self.brushes.items():
            period = period_of(brush)
            ends = None if period is None else self._board.ends_of(brush.table, period[0])
            if period is not None and ends is not None and (some := partial_periods(period[1], *ends)):
                found[name] = some
        return found

    @property
    def weight(self) -> float:
        snapshot = self.run.snapshot if self.run is not None else None
        priority = self.settings.priority
        return met_weight(priority) if is_met(snapshot, self.settings.target) else priority

    @property
    def target(self) -> float | None:
        return self.settings.target

    def run_changed(self) -> None:
        self._choose_chart()
        self._board.touch(self)

    def _choose_chart(self) -> None:
        chart = self.run.fitting_chart if self.is_free and self.run is not None else None
        if chart is not None:
            self.is_free = False
            self._board.take_chart(self, chart)

    def run_restarted(self) -> None:
        self.number += 1
        self._board.touch(self)

    def open(self, user: str) -> None:
        """Begin to run, unless it does already."""
        if self.settings.chart == TEXT:
            return
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
            self._choose_chart()
        self._planning = None
        self._board.read_changed()
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
            unfiltered=self._unfiltered or self._board.why_unfiltered(self),
            partial=self.partial,
            budget=runs.budget,
        )

    def _state(self) -> PanelState:
        if self.failure is not None:
            return "failed"
        if self.settings.chart == TEXT:
            return "exact"
        if self.run is None:
            return "waiting"
        return shown_state(self.run.state, self.run.snapshot, self.settings.target)

    def _reason(self) -> str | None:
        """Return why the panel stands as it does, in words; None where its state says it all."""
        if self.run is None:
            has_none = self.failure is not None or self.settings.chart == TEXT
            return None if has_none else "planning the query"
        state = self._state()
        if self.run.reason is not None and state in ("waiting", "paused", "stopped"):
            return self.run.reason
        if state == "waiting":
            return self._board.why_waiting(self.run)
        if state == "target_met":
            return "refining on idle cores"
        if state == "empty":
            return "every row was read, and none matches"
        return None


LOG_LINES = 20
MOST_FILTERS = 20
_RUNS_ANEW = frozenset({"sql", "params"})  # other settings change how an answer is drawn, not the answer


class Viewer(Protocol):
    """Somebody who looks at a page.

    Attributes:
        user: who it is.
        shown_name: the name that others see.
    """

    user: str
    shown_name: str

    def panel_changed(self, panel: str) -> None: ...

    def page_changed(self) -> None: ...

    def logged(self, line: LogLine) -> None: ...

    def notify(self, text: str) -> None: ...


class Board:
    """A page as all its viewers see it.

    Args:
        keep: writes down what is not saved yet.
        save: the page.
        discard: forgets what is not saved, and gives the page as it was.
        note: tells the audit log.
        clock: ms since 1970.
    """

    def __init__(
        self,
        page: PageSettings,
        runs: Runs,
        *,
        keep: Callable[[PageSettings], None],
        save: Callable[[PageSettings], None],
        discard: Callable[[PageSettings], PageSettings],
        note: Callable[..., None],
        clock: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self.page = page
        self.runs = runs
        self.panels = {settings.id: Panel(self, settings) for settings in page.panels}
        self.filters: dict[str, Filter] = {}
        self.viewers: set[Viewer] = set()
        self.log: deque[LogLine] = deque(maxlen=LOG_LINES)
        self._keep = keep
        self._save = save
        self._discard = discard
        self._note = note
        self._clock = clock
        self._closing: asyncio.TimerHandle | None = None
        self._over_time: tuple[tuple[TimeColumn, ...], tuple[str, ...]] = ((), ())

    def join(self, viewer: Viewer) -> None:
        """Let somebody see the page; the first one starts its queries."""
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        self.viewers.add(viewer)
        for panel in self.panels.values():
            panel.open(viewer.user)
            self.touch(panel)

    def leave(self, viewer: Viewer) -> None:
        """Let somebody go; some time after the last one the queries end, unless somebody comes."""
        self.viewers.discard(viewer)
        for panel in self.panels.values():
            self.touch(panel)
        if not self.viewers:
            loop = asyncio.get_running_loop()
            self._closing = loop.call_later(self.runs.limits.grace_seconds, self.close)

    def close(self) -> None:
        self._closing = None
        for panel in self.panels.values():
            panel.close()

    def touch(self, panel: Panel) -> None:
        for viewer in self.viewers:
            viewer.panel_changed(panel.settings.id)

    def tell(self, text: str) -> None:
        """Write a line into the log that the page shows."""
        line = LogLine(self._clock(), text)
        self.log.append(line)
        for viewer in self.viewers:
            viewer.logged(line)

    def answer(self, viewer: Viewer, request: Request) -> None:
        """Do what a viewer asks. Raises PageError if it cannot be done."""
        if isinstance(request, Name):
            viewer.shown_name = request.name or viewer.user
        elif isinstance(request, Act):
            self._act(viewer, self._panel(request.panel), request.act)
        elif isinstance(request, SettingsChange):
            self._change(viewer, self._panel(request.panel), request)
        elif isinstance(request, Brushing):
            self._filter(viewer, self._panel(request.panel), request)
        elif isinstance(request, Unfilter):
            self._unfilter(viewer, request.filter)
        elif isinstance(request, Period):
            self._show_period(viewer, request)
        elif isinstance(request, Grain):
            self._cut(viewer, request.unit)
        elif isinstance(request, Move):
            self.page = self.page.moved(request.panel, request.before)
            self._record(viewer, self._panel(request.panel), "moved the panel")
            self._page_changed()
        elif isinstance(request, Add):
            self._add(viewer, request)
        elif isinstance(request, Remove):
            self._remove(viewer, request.panel)
        elif isinstance(request, Save):
            self._save(self.page)
            self._record(viewer, None, "saved the page")
            viewer.notify("saved")
        elif isinstance(request, Discard):
            self._go_back(viewer)

    def why_waiting(self, run: Run) -> str:
        """Return in words why a run has no answer yet."""
        others = sum(each.is_active and each.state != "paused" for each in self.runs.all if each is not run)
        among = f", beside {others} other {'queries' if others > 1 else 'query'}" if others else ""
        if not run.plan.is_estimated:
            return f"running as a whole, without estimates{among}: {'; '.join(run.plan.reasons)}"
        return f"reading the first rows{among}"

    def rows_read_by(self, run: Run) -> int | None:
        """Return the number of rows a run has to read, None where that is not known."""
        layout = self.runs.session.tables.get(run.plan.leading.partition("@")[0])
        return layout.row_count if layout is not None and layout.rows_are_counted else None

    def filters_on(self, panel: Panel) -> tuple[Filter, ...]:
        """Return the filters that concern what the panel reads. A selection does not filter its own panel."""
        tables = panel.reading.tables if panel.reading is not None else frozenset()
        return tuple(
            each for each in self.filters.values() if each.table in tables and each.panel != panel.settings.id
        )

    def why_unfiltered(self, panel: Panel) -> str | None:
        """Return why filters of the page do not reach a panel, in words; None where all do."""
        if panel.reading is None:
            return None
        others = {each.table for each in self.filters.values() if each.panel != panel.settings.id}
        beyond = sorted(others - panel.reading.tables)
        return f"it does not read {' and '.join(beyond)}" if beyond else None

    def ends_of(self, table: str, column: str) -> tuple[object, object] | None:
        """Return the least and the greatest value that the page shows of a column, None where unknown."""
        ends, period = self.runs.ends_of(table, column), self.filters.get(PERIOD)
        is_of_it = period is not None and (period.table, period.column.lower()) == (table, column.lower())
        return ends if ends is None or period is None or not is_of_it else ends_within(ends, period)

    @property
    def times(self) -> tuple[TimeColumn, ...]:
        """The columns of dates and moments that panels read."""
        read = [panel.reading.tables for panel in self.panels.values() if panel.reading is not None]
        return self.runs.times_of(frozenset().union(*read))

    @property
    def units(self) -> tuple[str, ...]:
        """The units by which panels over time show it."""
        readings = (panel.reading for panel in self.panels.values() if panel.reading is not None)
        periods = (period_of(brush) for reading in readings for brush in reading.brushes.values())
        return tuple(dict.fromkeys(period[1] for period in periods if period is not None))

    def read_changed(self) -> None:
        """Tell the viewers of columns of time that panels read, once they are others."""
        if (found := (self.times, self.units)) != self._over_time:
            self._over_time = found
            self._show_page()

    def _show_period(self, viewer: Viewer, request: Period) -> None:
        """Filter the page to a period, in the place of the one before."""
        if request.days is None:
            self._unfilter(viewer, PERIOD)
            return
        table = request.table.lower()
        type_text = self.runs.type_of_time(table, request.column)
        if type_text is None:
            known = ", ".join(f"{each.column} of {each.table}" for each in self.times) or "no column of time"
            raise PageError(f"{shown(request.column)} is no column of time here; the page has {known}")
        self.filters[PERIOD] = found = in_period(table, request.column, type_text, request.days)
        self._refilter(viewer.user)
        self._record(viewer, None, f"showed {' to '.join(request.days)}", condition=found.condition)

    def _cut(self, viewer: Viewer, unit: str) -> None:
        """Let each panel over time show it by another unit."""
        for panel in list(self.panels.values()):
            settings = by_unit(panel.settings, panel.reading, unit)
            if settings != panel.settings:
                self.page = self.page.with_panel(settings)
                self._set(panel, settings, viewer.user)
                self.touch(panel)
        self._record(viewer, None, f"showed times by {unit}")
        self._page_changed()

    def _filter(self, viewer: Viewer, panel: Panel, request: Brushing) -> None:
        """Take a selection as a filter, in the place of the one before in the same panel and column."""
        found = panel.brushes.get(request.column)
        if found is None or panel.run is None or panel.run.snapshot is None:
            columns = ", ".join(panel.brushes) or "none now"
            raise PageError(f"{shown(request.column)} cannot be selected in this panel; it has: {columns}")
        position, brush = found
        type_ = panel.run.snapshot.table.schema.field(position).type
        condition = condition_of(brush, request.selection, type_)
        source = (panel.settings.id, request.column)
        id = next((each.id for each in self.filters.values() if (each.panel, each.column) == source), None)
        if id is None and len(self.filters) >= MOST_FILTERS:
            raise PageError(
                f"the page has {MOST_FILTERS} filters, the most there can be; take one away first"
            )
        id = id or next(name for i in range(1, MOST_FILTERS + 1) if (name := f"f{i}") not in self.filters)
        self.filters[id] = Filter(id, *source, brush.table, condition, dict(request.selection))
        self._refilter(viewer.user)
        self._record(viewer, panel, f"filtered the page by {request.column} of", condition=condition)

    def _unfilter(self, viewer: Viewer, id: str | None) -> None:
        gone = list(self.filters) if id is None else [id]
        if not any(each in self.filters for each in gone):
            return
        for each in gone:
            self.filters.pop(each, None)
        self._refilter(viewer.user)
        self._record(viewer, None, "took a filter away" if id is not None else "took all filters away")

    def _unfilter_from(self, panel: Panel, user: str) -> None:
        """Let go of what was selected in an answer that is no longer shown."""
        gone = [each.id for each in self.filters.values() if each.panel == panel.settings.id]
        for id in gone:
            del self.filters[id]
        if gone:
            self._refilter(user)

    def run_anew(self, panel: Panel) -> None:
        """Run a panel whose tables have changed. Without a viewer it waits for the next."""
        for viewer in list(self.viewers)[:1]:
            panel.run_anew(viewer.user)
            self.tell(f"“{panel.settings.title}” reads rows that have changed")
        self.touch(panel)

    def _refilter(self, user: str) -> None:
        for panel in self.panels.values():
            panel.refilter(user)
            self.touch(panel)
        self._show_page()

    def _panel(self, id: str) -> Panel:
        self.page.panel(id)
        return self.panels[id]

    def _act(self, viewer: Viewer, panel: Panel, act: str) -> None:
        run = panel.run
        if run is None:
            if act == "restart":
                panel.run_anew(viewer.user)
            return
        by = f"by {viewer.shown_name}"
        if act == "stop":
            self.runs.stop(run, f"stopped {by}: good enough")
        elif act == "pause":
            self.runs.pause(run, f"paused {by}")
        elif act == "resume":
            self.runs.resume(run)
        else:
            self.runs.restart(run)
        self._record(viewer, panel, _PAST[act])

    def _change(self, viewer: Viewer, panel: Panel, request: SettingsChange) -> None:
        settings = changed_panel(panel.settings, request.entries)
        changed = [
            name for name in request.entries if getattr(settings, name) != getattr(panel.settings, name)
        ]
        if not changed:
            return
        panel.is_free = panel.is_free and "chart" not in changed
        self.page = self.page.with_panel(settings)
        self._set(panel, settings, viewer.user)
        self._record(viewer, panel, f"changed {', '.join(changed)}", sql=settings.sql)
        self._page_changed()

    def _set(self, panel: Panel, settings: PanelSettings, user: str) -> None:
        """Give a panel other settings. The query runs anew only where it is another."""
        before, panel.settings = panel.settings, settings
        is_other = any(getattr(before, name) != getattr(settings, name) for name in _RUNS_ANEW)
        if is_other or (before.chart == TEXT) != (settings.chart == TEXT):
            panel.run_anew(user)
            self._unfilter_from(panel, user)
        elif panel.run is not None:
            self.runs.reweigh(panel.run)

    def _add(self, viewer: Viewer, request: Add) -> None:
        settings = panel_of(request.entries, id=self.page.free_id(), title="Untitled")
        self.page = self.page.with_panel(settings)
        panel = self.panels[settings.id] = Panel(self, settings)
        panel.is_free = "chart" not in request.entries
        self._record(viewer, panel, "added the panel", sql=settings.sql)
        panel.open(viewer.user)
        self._page_changed()
        self.touch(panel)

    def take_chart(self, panel: Panel, chart: str) -> None:
        """Draw a panel by the chart that fits its answer."""
        panel.settings = replace(panel.settings, chart=chart)
        self.page = self.page.with_panel(panel.settings)
        self._page_changed()

    def _remove(self, viewer: Viewer, id: str) -> None:
        panel = self._panel(id)
        self.page = self.page.without_panel(id)
        del self.panels[id]
        panel.close()
        self._unfilter_from(panel, viewer.user)
        self._record(viewer, panel, "removed the panel")
        self._page_changed()

    def _go_back(self, viewer: Viewer) -> None:
        """Show the page as it was saved; queries that are the same go on."""
        before, self.page = self.panels, self._discard(self.page)
        self.panels = {each.id: before.get(each.id) or Panel(self, each) for each in self.page.panels}
        for id in before.keys() - self.panels.keys():
            before[id].close()
        for settings in self.page.panels:
            panel = self.panels[settings.id]
            if panel.settings != settings:
                self._set(panel, settings, viewer.user)
            panel.open(viewer.user)
            self.touch(panel)
        self._record(viewer, None, "discarded what was not saved")
        self._show_page()

    def _record(self, viewer: Viewer, panel: Panel | None, what: str, **details: str) -> None:
        """Show who did what, and write it down."""
        panel_id, title = (panel.settings.id, panel.settings.title) if panel else (None, self.page.title)
        self._note(what, viewer.user, name=viewer.shown_name, page=self.page.name, panel=panel_id, **details)
        if panel is not None:
            panel.changed_by = ChangeNote(viewer.shown_name, what, self._clock())
            self.touch(panel)
        self.tell(f"{viewer.shown_name} {what}" + (f" “{title}”" if panel is not None else ""))

    def _page_changed(self) -> None:
        self._show_page()
        self._keep(self.page)

    def _show_page(self) -> None:
        for viewer in self.viewers:
            viewer.page_changed()


_PAST = {"stop": "stopped", "pause": "paused", "resume": "resumed", "restart": "restarted"}
