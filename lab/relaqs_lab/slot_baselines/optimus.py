"""Optimus: one more slot where it shortens the rest of a job most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.gangs.batches import fewest_pieces, split_batch
from relaqs.gangs.gangs import Gangs
from relaqs.gangs.packing import packed
from relaqs.gangs.plan import SlotPlan
from relaqs.gangs.speed import step_seconds
from relaqs.gangs.view import SlotView
from relaqs.slot_policies.arrival_order import planned_by_arrival
from relaqs_lab.slot_baselines.tiresias import asked_rows


@dataclass(frozen=True, slots=True)
class Optimus:
    """Every job first has one slot, the oldest first. Then slots go one by one where they save most time.

    What a slot saves is (step with n slots − step with n + 1) × the steps that are left. The batch is the one
    that the user asked for, so more slots compute it sooner. A simulator tells the rows that are left and the
    steps' seconds (`needs_oracle`). Where nobody does, passes are taken to be as many as were done, and steps
    to be as the job's speed says.

    Source: Peng et al., Optimus, EuroSys 2018, section 4.1.

    >>> from relaqs.gangs.gangs import Gang
    >>> from relaqs.gangs.nodes import Nodes
    >>> free, bound = (0.1, 0.01, 1e-8, 1e-8, 1e-8, 1e-8, 1.0), (0.1, 0.01, 0.5, 0.5, 0.5, 0.5, 1.0)
    >>> jobs = [Gang("free", rows_left=1e5, speed=free), Gang("bound", rows_left=1e5, speed=bound)]
    >>> Optimus().plan(SlotView(60.0, Nodes.equal(1, slots=4), Gangs.of(jobs, nodes=1))).slots_by_id()
    {'free': 3, 'bound': 1}
    """

    name: ClassVar[str] = "optimus"
    needs_oracle: ClassVar[bool] = True

    def plan(self, view: SlotView) -> SlotPlan:
        return planned_by_arrival(view, _planned)


def _planned(view: SlotView) -> SlotPlan:
    gangs, total = view.gangs, int(view.nodes.usable_slots.sum())
    batch = asked_rows(gangs)
    seconds = _steps_by_slots(view, batch, total) * steps_left(gangs, batch)[:, None]
    counts = _given_one_by_one(seconds, _most(gangs, batch), total)
    smallest_first = np.argsort(counts, kind="stable")
    slots = packed(counts, gangs.held, view.nodes, smallest_first, tight=False)
    return SlotPlan.of(view, slots, batch)


def steps_left(gangs: Gangs, batch: FloatArray) -> FloatArray:
    """Return the steps that each job still needs with this batch, shape (E,): known, or as many as done."""
    guessed = np.maximum(gangs.rows_done, gangs.pass_rows)
    left = np.where(np.isnan(gangs.rows_left), guessed, gangs.rows_left)
    return np.asarray(np.maximum(left / batch, 1.0))


def _most(gangs: Gangs, batch: FloatArray) -> IntArray:
    most = np.floor(np.minimum(batch, gangs.rows_most) / gangs.slot_rows_least + 1e-9)
    return np.maximum(most, 1).astype(np.int64)


def _steps_by_slots(view: SlotView, batch: FloatArray, total: int) -> FloatArray:
    """Return the seconds of a step of each job on 1 … total packed slots, shape (E, total)."""
    gangs = view.gangs
    if gangs.packed_step_seconds.shape[1] >= total:
        return gangs.packed_step_seconds[:, :total]
    slots = np.arange(1, total + 1)
    nodes = -(-slots // max(int(view.nodes.usable_slots.max()), 1))
    rows = batch[:, None]
    pieces = fewest_pieces(rows, slots, gangs.start_rows[:, None])
    split = split_batch(rows, slots, gangs.slot_rows_most[:, None], gangs.rows_most[:, None], pieces)
    unknown = np.any(np.isnan(gangs.speed), axis=1)
    speed = np.where(unknown[:, None], np.array([1e-8, 1e-3, *[1e-8] * 4, 1.0]), gangs.speed)
    return step_seconds(speed[:, None, :], slots, nodes, split.slot_rows, split.pieces)


def _given_one_by_one(seconds: FloatArray, most: IntArray, total: int) -> IntArray:
    """Return the slots of each job. seconds: of the rest of a job on 1, 2, … slots, shape (E, total)."""
    counts = np.zeros(len(most), dtype=np.int64)
    counts[:total] = 1
    left = total - int(counts.sum())
    saved = np.full(seconds.shape, -np.inf)
    saved[:, :-1] = np.nan_to_num(seconds[:, :-1] - seconds[:, 1:], nan=-np.inf)
    saved[np.arange(1, total + 1) >= most[:, None]] = -np.inf
    saved[counts == 0] = -np.inf
    gain = saved[:, 0].copy()
    while left and gain.max(initial=-np.inf) > 0:
        job = int(np.argmax(gain))
        counts[job] += 1
        left -= 1
        gain[job] = saved[job, counts[job] - 1]
    return counts
