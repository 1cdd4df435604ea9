"""Refresh: schedules are brought up to date with the jobs there are now."""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.slot_policies.ones.fill import filled
from relaqs.slot_policies.ones.genome import IDLE, trimmed
from relaqs.slot_policies.ones.reorder import reordered
from relaqs.slot_policies.ones.utilisation import SlotSeconds


def refreshed(
    genomes: IntArray,
    rows: FloatArray,
    costs: SlotSeconds,
    is_new: BoolArray,
    executed_seconds: FloatArray,
) -> IntArray:
    """Return schedules with no job above its limit, every new job in, and no slot idle that could work.

    The genes of jobs that ended must be IDLE already. Each new job has one slot: an idle one, else one of the
    job that ran longest so far. Where new jobs are more than slots, the first ones of the view are in.

    Args:
        genomes: shape (K, G).
        rows: the rows that jobs still process, in the draw of each schedule, shape (K, J).
        is_new: which jobs have never run, shape (J,).
        executed_seconds: how long each job has run, shape (J,).
    """
    jobs = len(costs.most)
    found = trimmed(reordered(genomes, jobs), costs.most)
    for row in found if is_new.any() else ():
        _let_in(row, is_new, executed_seconds)
    return reordered(filled(found, rows, costs), jobs)


def _let_in(genes: IntArray, is_new: BoolArray, executed_seconds: FloatArray) -> None:
    """Put new jobs that a schedule lacks onto slots, in place."""
    lacks = is_new.copy()
    lacks[genes[genes >= 0]] = False
    waiting = np.flatnonzero(lacks)
    if not len(waiting):
        return
    goes_first = np.append(np.where(is_new, -np.inf, executed_seconds), np.inf)[genes]  # idle slots: the last
    order = np.argsort(-goes_first, kind="stable")
    order = order[np.isfinite(goes_first[order]) | (genes[order] == IDLE)][: len(waiting)]
    genes[order] = waiting[: len(order)]
