"""A query in a notebook: live where anywidget is, and its answer as it stands where it is not."""

from __future__ import annotations

import builtins
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from relaqs_dashboards.settings import PageError

import relaqs
from relaqs import Session, Snapshot
from tests.dashboards.test_live import FLAGS
from tests.turnstile import Turnstile

WAIT_SECONDS = 30.0


@pytest.fixture
def db(tpch_warehouse: Path) -> Iterator[Session]:
    with relaqs.connect(tpch_warehouse, threads=2) as session:
        yield session


class Seen:
    """What a widget's panel has become, one after another."""

    def __init__(self, widget: Any) -> None:
        self.panels: list[dict[str, Any]] = [widget.panel]
        self._changed = threading.Condition()
        widget.observe(self._note, "panel")

    def _note(self, change: dict[str, Any]) -> None:
        with self._changed:
            self.panels.append(change["new"])
            self._changed.notify_all()

    def times(self, count: int) -> list[float]:
        """Return the times in the next panels."""
        with self._changed:
            begun = len(self.panels)
            assert self._changed.wait_for(lambda: len(self.panels) >= begun + count, WAIT_SECONDS)
            return [panel["elapsed_seconds"] for panel in self.panels[begun : begun + count]]

    def until(self, state: str) -> dict[str, Any]:
        with self._changed:
            assert self._changed.wait_for(lambda: self.panels[-1]["state"] == state, WAIT_SECONDS)
        return self.panels[-1]


def test_a_widget_follows_its_query_to_the_end(db: Session, turnstile: Turnstile) -> None:
    query = db.online_sql(FLAGS)
    widget = query.display(chart="bars", title="Flags", x="flag")
    seen = Seen(widget)
    assert seen.panels[0]["state"] == "waiting"
    turnstile.let(2)
    refining = seen.until("refining")
    assert 0 < refining["fraction"] < 1
    assert refining["answer"]["columns"][1] == {"name": "quantity", "kind": "estimate", "type": "number"}
    turnstile.let()
    exact = seen.until("exact")
    assert len(exact["answer"]["rows"]) == 3
    settings = widget.settings  # type: ignore[attr-defined]
    assert (settings["chart"], settings["title"], settings["sql"]) == ("bars", "Flags", FLAGS)
    json.dumps(exact, allow_nan=False)


def test_the_clock_of_a_widget_goes_on_while_no_answer_comes(
    db: Session, turnstile: Turnstile, monkeypatch: pytest.MonkeyPatch
) -> None:
    from relaqs_dashboards import notebook

    monkeypatch.setattr(notebook, "SECONDS_BETWEEN_TICKS", 0.05)
    query = db.online_sql(FLAGS)
    seen = Seen(query.display())
    before = seen.times(4)
    assert before == sorted(set(before))  # there is no answer yet
    turnstile.let(2)
    seen.until("refining")
    after = seen.times(4)
    assert after == sorted(set(after))
    assert after[0] > before[-1] - 0.2  # an answer says when it was computed, the clock when it is shown
    assert all(panel["answer"]["rows"] for panel in seen.panels[-3:])
    turnstile.let()
    exact = seen.until("exact")
    assert exact["elapsed_seconds"] == round(query.result().elapsed_seconds, 3)


def test_a_widget_says_how_its_query_failed(db: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from relaqs.executors.duck_process import QueryWork

    def fail(work: QueryWork, job_id: str) -> object:
        raise relaqs.DataError("the file is gone")

    monkeypatch.setattr(QueryWork, "run", fail)
    failed = Seen(db.online_sql(FLAGS).display()).until("failed")
    assert failed["failure"]["message"] == "the file is gone"


def test_a_look_that_is_none_is_refused(db: Session) -> None:
    with pytest.raises(PageError, match="chart is 'pie'; it must be one of bars"):
        db.online_sql(FLAGS).display(chart="pie")
    with pytest.raises(PageError, match="a panel has no"):
        db.online_sql(FLAGS).display(colour="red")


def test_without_anywidget_the_answer_as_it_stands_is_shown(
    db: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    importing = builtins.__import__

    def without_anywidget(name: str, *rest: Any, **others: Any) -> Any:
        if name.split(".")[0] == "anywidget":
            raise ModuleNotFoundError("No module named 'anywidget'", name="anywidget")
        return importing(name, *rest, **others)

    monkeypatch.delitem(sys.modules, "relaqs_dashboards.notebook", raising=False)
    monkeypatch.setattr(builtins, "__import__", without_anywidget)
    shown = db.online_sql(FLAGS).display()
    assert isinstance(shown, Snapshot)
    assert "quantity" in shown._repr_html_()
