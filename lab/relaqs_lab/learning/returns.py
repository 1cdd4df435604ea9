"""What an episode was worth from a moment on, by the five aims of MLFS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs_lab.learning.episodes import Episode

BYTES_UNIT = 1e11  # of a job, between nodes: about what one sends in our scenarios


@dataclass(frozen=True, slots=True)
class Aims:
    """How much each aim counts, and how far ahead one looks.

    While a job is there, each second costs `completion` / (the mean time that a job takes alone). When it
    ends it earns the others: a deadline that was kept, an accuracy that was reached by then, and what that
    was; and its bytes cost. The sum over all jobs is equation 1 of the paper, told as it happens.

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, equations 1 and 7; the first five are its β. Its discount of
    0.95 a minute sees 20 minutes ahead, where jobs last for hours. So ours sees further.

    Args:
        horizon_seconds: what comes so much later counts 1/e.
    """

    completion: float = 0.5
    deadline: float = 0.55
    sent: float = 0.25
    accuracy_met: float = 0.15
    accuracy: float = 0.15
    horizon_seconds: float = 3 * 3600.0


def returns_from(episode: Episode, seconds: FloatArray, aims: Aims) -> FloatArray:
    """Return what an episode was worth from each moment on, shape (n,).

    Args:
        seconds: the moments, shape (n,), on the simulator's clock.
    """
    outcome = episode.outcome
    ended = ~np.isnan(outcome.end_seconds)
    end = np.where(ended, outcome.end_seconds, episode.until_seconds)
    in_time = ended & (outcome.end_seconds <= outcome.deadline_seconds)
    accuracy = np.nan_to_num(outcome.accuracy_at_deadline)
    earned = (
        aims.deadline * in_time
        + aims.accuracy_met * (accuracy >= outcome.accuracy_required - 1e-9)
        + aims.accuracy * accuracy
        - aims.sent * outcome.sent_bytes / BYTES_UNIT
    )
    horizon = aims.horizon_seconds
    start = np.maximum(outcome.arrival_seconds[None, :], seconds[:, None])
    last = np.maximum(end[None, :], start)
    there = np.exp((seconds[:, None] - start) / horizon) - np.exp((seconds[:, None] - last) / horizon)
    cost = aims.completion / episode.solo_seconds * horizon * there
    later = end[None, :] > seconds[:, None]
    earns = np.where(later, np.exp((seconds[:, None] - end[None, :]) / horizon) * earned, 0.0)
    return np.asarray((earns - cost).sum(axis=1))
