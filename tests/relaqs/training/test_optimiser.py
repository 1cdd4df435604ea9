"""The optimiser that is asked and told: scipy's own result, and no thread left behind."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
from scipy.optimize import minimize, rosen, rosen_der

from relaqs.training.algorithms.linear import SMALLEST_DECREASE, Descent

START = np.array([-1.2, 1.0, 0.5])
LONG_SECONDS = 20.0


def descents() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "relaqs-descent"]


def wait_for_no_descent() -> None:
    for thread in descents():
        thread.join(LONG_SECONDS)
    assert descents() == []


def test_it_is_scipys_descent_bit_for_bit() -> None:
    asked: list[np.ndarray] = []

    def loss_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        asked.append(x.copy())
        return rosen(x), rosen_der(x)

    oracle = minimize(
        loss_and_gradient,
        START,
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-8, "ftol": SMALLEST_DECREASE},
    )
    descent = Descent(START, 1e-8)
    wanted: list[np.ndarray] = []
    losses = []
    while descent.wanted is not None:
        wanted.append(descent.wanted)
        descent.tell(rosen(descent.wanted), rosen_der(descent.wanted))
        losses.append(descent.loss)
    assert np.array_equal(wanted, asked)
    assert np.array_equal(descent.best, oracle.x)
    assert descent.loss == oracle.fun
    assert losses[0] == rosen(START)
    assert np.all(np.diff(losses) <= 0)
    wait_for_no_descent()


def test_closing_or_forgetting_it_ends_its_thread() -> None:
    closed, forgotten = Descent(START, 1e-8), Descent(START, 1e-8)
    assert len(descents()) == 2
    closed.close()
    closed.close()
    gone = weakref.ref(forgotten)
    del forgotten
    gc.collect()
    assert gone() is None
    wait_for_no_descent()


def test_what_scipy_does_not_accept_comes_out_where_it_was_told() -> None:
    descent = Descent(START, 1e-8)
    with pytest.raises(TypeError):
        descent.tell(None, np.zeros(3))  # type: ignore[arg-type]
    wait_for_no_descent()
