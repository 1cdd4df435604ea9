"""`Session.search`: many runs with other parameters each, and who of them goes on."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from distributed import Client, LocalCluster
from scipy.stats import loguniform
from sklearn.linear_model import Lasso, LogisticRegression, SGDClassifier

from relaqs import ArgumentError, RelaqsError, Session, connect
from relaqs.pacing import Context
from relaqs.pacing.trials import PRUNERS, Losses, _Begun, drawn_parameters, forecasts

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests


def approach(ctx: Context, floor: float, steps: int = 60, nap: float = 0.01) -> float:
    """Report a loss that falls to a floor, and return the floor."""
    step = ctx.load(0)
    while step < steps:
        step += 1
        time.sleep(nap)
        goes_on = ctx.report(floor + 1 / step)
        ctx.save(step)
        if not goes_on:
            break
    return floor


def test_forecasts_are_where_the_losses_go() -> None:
    falling = [[0.3 + 1 / step for step in range(1, 13)], [2.0 * 0.7**step for step in range(12)], [5.0]]
    first, second, third = forecasts([*falling, []])[:3]
    assert first == pytest.approx(0.3, abs=0.05)
    assert second == pytest.approx(0.0, abs=0.02)
    assert third <= 5.0


@pytest.mark.parametrize("stop", [*PRUNERS, None])
def test_the_best_trial_wins_and_the_others_cost_less(db: Session, stop: Any) -> None:
    floors = [0.1, 0.5, 0.9, 1.3, 1.7, 2.1]
    search = db.search(approach, {"floor": floors}, trials=6, abreast=6, stop=stop)
    assert search.result(timeout=60) == 0.1
    assert search.best is not None
    assert search.best.parameters == {"floor": 0.1}
    assert not search.best.pruned
    assert (len(search.trials), search.stop_reason) == (6, "all passes made")
    pruned = {trial.parameters["floor"] for trial in search.trials if trial.pruned}
    steps = sum(len(trial.losses) for trial in search.trials)
    if stop is None:
        assert (pruned, steps) == (set(), 360)
    else:
        assert pruned >= {1.3, 1.7, 2.1}
        assert steps < 270


def test_what_may_still_win_is_not_pruned() -> None:
    """A late bloomer: worse so far than the best, and falling towards less."""
    settled = [0.5 + 0.5 * 0.3**step for step in range(12)]
    late = [4.0 * 0.75**step for step in range(6)]  # at 0.95, and on its way to 0
    assert PRUNERS["forecast"]([Losses(settled), Losses(late)]) == [False, False]
    hopeless = [1.0 + 0.1 * 0.5**step for step in range(12)]
    assert PRUNERS["forecast"]([Losses(settled), Losses(hopeless)]) == [False, True]


def test_estimators_are_compared_on_rows_held_out(db: Session) -> None:
    space = {"alpha": [1e-4, 100.0], "penalty": ["l2"]}
    model = SGDClassifier(loss="log_loss", random_state=0)
    search = db.search(model, space, "SELECT * FROM points", target="late", passes=5, stop=None)
    best = search.result(timeout=60)
    assert (best.alpha, best.get_params()["penalty"]) == (1e-4, "l2")
    alone = db.fit(
        SGDClassifier(loss="log_loss", random_state=0, alpha=1e-4),
        "SELECT * FROM points",
        target="late",
        passes=5,
        held_out=0.1,
    )
    assert best.coef_.tolist() == alone.result().coef_.tolist()
    assert search.best is not None
    assert search.best.losses == alone.losses
    share = db.search(LogisticRegression(), {"C": [1e-7, 1.0]}, "SELECT * FROM points", target="late")
    assert share.result(timeout=60).C == 1.0
    assert share.best is not None
    assert 0 < share.best.loss < 0.25


def test_a_search_ends_at_its_goals(db: Session) -> None:
    reached = db.search(approach, {"floor": [0.1, 0.2]}, until=0.5, abreast=1)
    assert reached.wait(timeout=60)
    assert (reached.stop_reason, len(reached.trials)) == ("target reached", 1)
    late = db.search(approach, {"floor": [0.1], "steps": [10**6]}, timeout=0.5)
    late.result(timeout=60)
    assert late.stop_reason == "time is up"
    stopped = db.search(approach, {"floor": [0.1], "steps": [10**6]})
    stopped.stop()
    assert stopped.wait(timeout=60)
    assert (stopped.stop_reason, db.status().jobs) == ("stopped", ())


def test_a_look_reads_each_loss_once() -> None:
    class Run:
        state, priority, latest, stop_reason = "running", 1.0, None, None

        def stop(self) -> None: ...

        def wait(self, timeout: float | None = None) -> bool:
            return False

        def result(self, timeout: float | None = None) -> None: ...

    losses, asked = [3.0, float("nan"), 2.0], []

    def since(start: int) -> list[float]:
        asked.append(len(losses) - start)
        return losses[start:]

    begun = _Begun({}, Run(), since)
    assert begun.loss == 2.0
    losses += [5.0, 1.0]
    assert (list(begun.losses), begun.loss) == ([3.0, 2.0, 5.0, 1.0], 1.0)
    assert asked == [3, 2, 0]


def test_parameters_follow_from_the_seed_and_lists_are_not_tried_twice() -> None:
    space = {"alpha": loguniform(1e-6, 1.0), "kind": ["a", "b"]}
    drawn = drawn_parameters(space, 5, seed=3)
    assert drawn == drawn_parameters(space, 5, seed=3) != drawn_parameters(space, 5, seed=4)
    assert all(type(each["alpha"]) is float for each in drawn)
    pairs = drawn_parameters({"a": [1, 2], "b": [3, 4]}, 99, seed=0)
    assert sorted((each["a"], each["b"]) for each in pairs) == [(1, 3), (1, 4), (2, 3), (2, 4)]


def test_what_cannot_be_searched_is_refused(db: Session) -> None:
    for asked, match in (
        ({"space": {}}, "space"),
        ({"space": {"floor": "abc"}}, r"space\['floor'\]"),
        ({"stop": "luck"}, "stop is 'luck'"),
        ({"trials": 0}, "trials"),
        ({"until": "low"}, "until"),
        ({"abreast": 0}, "abreast"),
        (
            {"model": Lasso(), "sql": "SELECT x, z FROM points", "target": "z"},
            "Lasso.*no loss on rows held out",
        ),
        ({"model": 7}, "the model is 7"),
        ({"sql": "SELECT 1"}, "the model is"),
    ):
        named: dict[str, Any] = {"model": approach, "space": {"floor": [0.1]}, **asked}
        with pytest.raises(ArgumentError, match=match):
            db.search(**named)
    failing = db.search(lambda ctx, a: 1 / 0, {"a": [1, 2]})
    with pytest.raises(ZeroDivisionError):
        failing.result(timeout=60)
    silent = db.search(lambda ctx, a: a, {"a": [1, 2]})
    with pytest.raises(
        RelaqsError, match=r"before any trial had a loss; give a function that calls ctx.report"
    ):
        silent.result(timeout=60)


def test_on_a_cluster(warehouse: Path) -> None:
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with (
        LocalCluster(**options) as cluster,
        Client(cluster, set_as_default=False) as client,
        connect(warehouse, cluster=client) as session,
    ):
        space = {"floor": [0.1, 0.9, 1.7, 2.5], "steps": [400]}
        search = session.search(approach, space, abreast=4)
        assert search.result(timeout=120) == 0.1
        assert any(trial.pruned for trial in search.trials)
