"""The columns of gangs and machines, the plan's capacity, speeds, batches, and packing."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaqs.sharing.gangs import (
    Gang,
    Gangs,
    Nodes,
    SlotPlan,
    SlotView,
    efficiency,
    packed,
    rows_per_second,
    split_batch,
    step_seconds,
)

SPEED = (0.1, 0.002, 0.05, 0.01, 0.2, 0.02, 2.0)


def view_of(*gangs: Gang, nodes: int = 2, slots: int = 4) -> SlotView:
    return SlotView(0.0, Nodes.equal(nodes, slots), Gangs.of(gangs, nodes))


def test_columns_keep_what_the_rows_say() -> None:
    gangs = Gangs.of([Gang("a", speed=SPEED, held=(1, 2), slots_asked=3), Gang("b", weight=2.0)], nodes=2)
    assert gangs.speed[0].tolist() == list(SPEED)
    assert np.isnan(gangs.speed[1]).all()
    assert gangs.held.tolist() == [[1, 2], [0, 0]]
    assert gangs.slots_asked.tolist() == [3, 0]
    assert gangs.is_running.tolist() == [True, False]
    turned = gangs.of_jobs(np.array([1, 0]))
    assert turned.ids == ("b", "a")
    assert turned.held[1].tolist() == [1, 2]


def test_no_jobs_are_columns_too() -> None:
    view = view_of()
    assert len(view.gangs) == 0
    assert view.gangs.held.shape == (0, 2)


def test_wrong_input_is_named() -> None:
    with pytest.raises(ValueError, match="weight 0"):
        Gang("a", weight=0.0)
    with pytest.raises(ValueError, match="start_rows must be above 0 and at most rows_most"):
        Gang("a", start_rows=64.0, rows_most=32.0)
    with pytest.raises(ValueError, match="same id"):
        Gangs.of([Gang("a"), Gang("a")], nodes=1)
    with pytest.raises(ValueError, match="hold more slots"):
        view_of(Gang("a", held=(3, 0)), Gang("b", held=(2, 0)))
    with pytest.raises(ValueError, match="must be \\(1, 2\\)"):
        SlotView(0.0, Nodes.equal(2, 4), Gangs.of([Gang("a")], nodes=3))


def test_a_plan_beyond_the_capacity_is_refused() -> None:
    view = view_of(Gang("a"), Gang("b"))
    with pytest.raises(AssertionError):
        SlotPlan.of(view, np.array([[3, 0], [2, 0]]), np.array([32.0, 32.0]))
    with pytest.raises(AssertionError):
        SlotPlan.of(view, np.array([[3, 0], [0, 0]]), np.array([0.0, 0.0]))


def test_a_plan_and_its_view_survive_pickling() -> None:
    view = view_of(Gang("a"))
    plan = pickle.loads(pickle.dumps(SlotPlan.of(view, np.array([[1, 1]]), np.array([32.0]), ("kept", 1))))
    assert plan.memory == ("kept", 1)


def test_a_step_by_hand() -> None:
    speed = np.array(SPEED)
    compute = 0.1 + 0.002 * 50
    assert step_seconds(speed, 1, 1, 50) == pytest.approx(compute)
    assert step_seconds(speed, 3, 1, 50) == pytest.approx(np.hypot(compute, 0.06))
    assert step_seconds(speed, 4, 2, 50) == pytest.approx(np.hypot(compute, 0.24))
    assert step_seconds(speed, 4, 2, 50, pieces=3) == pytest.approx(np.hypot(compute, 0.24) + 2 * compute)
    assert rows_per_second(speed, 4, 2, 50) == pytest.approx(200 / np.hypot(compute, 0.24))
    assert rows_per_second(speed, 0, 0, 0) == 0.0


def test_a_large_overlap_does_not_overflow() -> None:
    speed = np.array([1e-3, 1e-6, 1e-4, 0.0, 5.0, 0.0, 10.0])
    assert step_seconds(speed, 8, 2, 1) == pytest.approx(5.0)


@given(
    batch=st.integers(1, 5000), slots=st.integers(1, 64), most=st.integers(1, 500), pieces=st.integers(1, 2)
)
@settings(max_examples=50)
def test_a_split_covers_the_batch_and_fits_the_slots(batch: int, slots: int, most: int, pieces: int) -> None:
    split = split_batch(batch, slots, most, pieces_least=pieces)
    assert split.slot_rows <= most
    assert split.batch_rows >= batch
    assert split.pieces >= pieces
    assert split.batch_rows == slots * split.slot_rows * split.pieces
    assert split.batch_rows < batch + slots * split.pieces + slots


def test_rounding_up_stays_within_the_largest_batch() -> None:
    split = split_batch(100, 7, 64, rows_most=100)
    assert split.batch_rows.item() == 98.0


def test_a_row_is_worth_less_in_a_large_batch() -> None:
    worth = efficiency([32, 64, 1024], 32, 200)
    assert worth[0] == 1.0
    assert (np.diff(worth) < 0).all()


@given(data=st.data())
@settings(max_examples=50)
def test_packing_gives_every_job_its_slots_and_keeps_what_did_not_change(data: st.DataObject) -> None:
    alive = data.draw(st.lists(st.booleans(), min_size=3, max_size=3))
    nodes = Nodes(("x", "y", "z"), np.array([4, 2, 3]), np.array(alive))
    held = np.zeros((4, 3), dtype=np.int64)
    for node, most in enumerate(nodes.slots):
        for _ in range(most):
            if (job := data.draw(st.integers(0, 4))) < 4:
                held[job, node] += 1
    counts = np.zeros(4, dtype=np.int64)
    for _ in range(int(nodes.usable_slots.sum())):
        if (job := data.draw(st.integers(0, 4))) < 4:
            counts[job] += 1
    order, tight = np.array(data.draw(st.permutations(range(4)))), data.draw(st.booleans())
    placed = packed(counts, held, nodes, order, tight=tight)
    assert placed.sum(axis=1).tolist() == counts.tolist()
    assert (placed.sum(axis=0) <= nodes.usable_slots).all()
    for job in range(4):
        if held[job].sum() == counts[job] and not held[job][~nodes.alive].any():
            assert placed[job].tolist() == held[job].tolist()
