"""A live page: its panels, who looks at it, and what happens when somebody asks for something."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from relaqs_dashboards.filters import Filter
from relaqs_dashboards.panel import Panel
from relaqs_dashboards.requests import (
    Act,
    Add,
    Brushing,
    Discard,
    Name,
    Remove,
    Request,
    Save,
    SettingsChange,
    Unfilter,
)
from relaqs_dashboards.runs import Run, Runs
from relaqs_dashboards.selections import condition_of
from relaqs_dashboards.settings import PageError, PageSettings, PanelSettings, changed_panel, panel_of, shown
from relaqs_dashboards.wire import Change as ChangeNote
from relaqs_dashboards.wire import LogLine

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

    def _refilter(self, user: str) -> None:
        for panel in self.panels.values():
            panel.refilter(user)
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
        self.page = self.page.with_panel(settings)
        self._set(panel, settings, viewer.user)
        self._record(viewer, panel, f"changed {', '.join(changed)}", sql=settings.sql)
        self._page_changed()

    def _set(self, panel: Panel, settings: PanelSettings, user: str) -> None:
        """Give a panel other settings. The query runs anew only where it is another."""
        before, panel.settings = panel.settings, settings
        if any(getattr(before, name) != getattr(settings, name) for name in _RUNS_ANEW):
            panel.run_anew(user)
            self._unfilter_from(panel, user)
        elif panel.run is not None:
            self.runs.reweigh(panel.run)

    def _add(self, viewer: Viewer, request: Add) -> None:
        settings = panel_of(request.entries, id=self.page.free_id(), title="Untitled")
        self.page = self.page.with_panel(settings)
        panel = self.panels[settings.id] = Panel(self, settings)
        self._record(viewer, panel, "added the panel", sql=settings.sql)
        panel.open(viewer.user)
        self._page_changed()
        self.touch(panel)

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
