"""A query's chart, live in a notebook: an anywidget that shows the same panel as a page does."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from importlib.resources import files
from typing import Any

import anywidget
import traitlets

from relaqs import OnlineQuery, Snapshot
from relaqs.jobs.executor import background_thread
from relaqs_dashboards.answers import answer_of, panel_update, shown_state
from relaqs_dashboards.runs import failure_of
from relaqs_dashboards.settings import PanelSettings, panel_of
from relaqs_dashboards.wire import Failure, PanelUpdate, encoded

SECONDS_BETWEEN_UPDATES = 0.2  # five a second; people see no more
SECONDS_BETWEEN_TICKS = 1.0  # of the clock, while no snapshot comes


class PanelWidget(anywidget.AnyWidget):
    """The widget. panel: an update with its answer (docs/dashboard-protocol.md). settings: of a panel."""

    _esm = (files("relaqs_dashboards") / "static" / "panel.js").read_text(encoding="utf-8")
    panel = traitlets.Dict().tag(sync=True)
    settings = traitlets.Dict().tag(sync=True)


def widget(query: OnlineQuery, **look: Any) -> PanelWidget:
    """Return a widget that follows the query until it is over.

    look: `title`, `chart`, `x`, `y`, `series`, as a page's panel has them. Raises PageError for others.
    """
    settings = panel_of({"sql": query.sql, "target": query.target} | look, id="query", title="Query")
    shown = PanelWidget(settings=json.loads(encoded(settings)))
    follower = _Follower(query, settings, shown)
    follower.show()
    background_thread(follower.follow, "relaqs-notebook").start()
    background_thread(follower.tick, "relaqs-notebook-clock").start()
    return shown


def _as_of_now(update: PanelUpdate, seconds: float) -> PanelUpdate:
    """Return an update as it is so many seconds after its snapshot."""
    left = update.seconds_to_target
    return replace(
        update,
        elapsed_seconds=round(update.elapsed_seconds + seconds, 3),
        seconds_to_target=None if left is None else max(0.0, left - seconds),
    )


class _Follower:
    """Puts what a query says into a widget, from a thread of its own. Another one keeps the clock going."""

    def __init__(self, query: OnlineQuery, settings: PanelSettings, shown: PanelWidget) -> None:
        self._query = query
        self._settings = settings
        self._shown = shown
        self._calm = threading.Event()  # never set: to wait between two updates
        self._showing = threading.Lock()
        self._ended = threading.Event()
        self._newest: Snapshot | None = None
        self._since_seconds = time.monotonic()  # the newest snapshot was there, or the widget was made
        self._answer_entries: Any = None

    def follow(self) -> None:
        failure = None
        try:
            for _ in self._query:
                self.show()
                self._calm.wait(SECONDS_BETWEEN_UPDATES)
        except Exception as error:  # whatever ended the query, the widget says so
            failure = failure_of(error, self._query.sql)
        self._ended.set()
        self.show(failure)

    def tick(self) -> None:
        """Show for how long the query has been running, as long as it does."""
        while not self._ended.wait(SECONDS_BETWEEN_TICKS):
            if self._query.state in ("waiting", "running"):
                self.show(is_tick=True)

    def show(self, failure: Failure | None = None, *, is_tick: bool = False) -> None:
        with self._showing:
            if not (is_tick and self._ended.is_set()):
                self._show(failure)

    def _show(self, failure: Failure | None) -> None:
        query, plan = self._query, self._query.plan
        snapshot = query.latest
        state = "failed" if failure is not None else query.state
        update = panel_update(
            self._settings,
            shown_state(state, snapshot, self._settings.target),
            snapshot,
            mode=plan.mode.value,
            confidence=snapshot.confidence if snapshot is not None else 0.95,
            interval=snapshot.interval if snapshot is not None else "pointwise",
            confidence_for=snapshot.confidence_for if snapshot is not None else "cell",
            failure=failure,
        )
        if snapshot is not self._newest:
            assert snapshot is not None
            self._newest, self._since_seconds = snapshot, time.monotonic()
            self._answer_entries = json.loads(encoded(self._answer(snapshot)))
        if query.state in ("waiting", "running"):
            update = _as_of_now(update, time.monotonic() - self._since_seconds)
        entries = json.loads(encoded(update))
        if snapshot is not None:
            entries["answer"] = self._answer_entries
        self._shown.panel = entries

    def _answer(self, snapshot: Snapshot) -> Any:
        plan = self._query.plan
        kinds = {i: output.part for i, output in enumerate(plan.outputs)}
        return answer_of(snapshot, kinds, ranked=plan.is_ordered)
