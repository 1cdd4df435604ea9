"""A query's chart, live in a notebook: an anywidget that shows the same panel as a page does."""

from __future__ import annotations

import json
import threading
from importlib.resources import files
from typing import Any

import anywidget
import traitlets

from relaqs import OnlineQuery, Snapshot
from relaqs.jobs.executor import background_thread
from relaqs_dashboards.answers import answer_of, panel_update, shown_state
from relaqs_dashboards.runs import failure_of
from relaqs_dashboards.settings import PanelSettings, panel_of
from relaqs_dashboards.wire import Failure, encoded

SECONDS_BETWEEN_UPDATES = 0.2  # five a second; people see no more


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
    return shown


class _Follower:
    """Puts what a query says into a widget, from a thread of its own."""

    def __init__(self, query: OnlineQuery, settings: PanelSettings, shown: PanelWidget) -> None:
        self._query = query
        self._settings = settings
        self._shown = shown
        self._calm = threading.Event()  # never set: to wait between two updates

    def follow(self) -> None:
        failure = None
        try:
            for _ in self._query:
                self.show()
                self._calm.wait(SECONDS_BETWEEN_UPDATES)
        except Exception as error:  # whatever ended the query, the widget says so
            failure = failure_of(error, self._query.sql)
        self.show(failure)

    def show(self, failure: Failure | None = None) -> None:
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
        entries = json.loads(encoded(update))
        if snapshot is not None:
            entries["answer"] = json.loads(encoded(self._answer(snapshot)))
        self._shown.panel = entries

    def _answer(self, snapshot: Snapshot) -> Any:
        plan = self._query.plan
        kinds = {i: output.part for i, output in enumerate(plan.outputs)}
        return answer_of(snapshot, kinds, ranked=plan.is_ordered)
