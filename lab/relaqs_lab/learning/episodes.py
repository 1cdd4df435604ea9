"""Episodes: simulated jobs under a policy that notes each of its choices, and what the choices led to.

What an episode was worth from a moment on, by the five aims of MLFS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.placed_policies.mlf_h import ByPriority, MlfH
from relaqs.placed_policies.queue_walk import QueueWalk
from relaqs.sharing.parts import NodeResources, PlacedPlan, PlacedView, planned_in_order
from relaqs_lab.mlf_rl import (
    ByScores,
    NodeFeatures,
    PlacedLoadControl,
    ScoringNetworks,
    job_features,
)
from relaqs_lab.simulation.placed.placed_simulator import PlacedOutcome, PlacedRules, simulate_placed
from relaqs_lab.simulation.placed.placed_workload import Scenario

LIMIT = 0.9  # as in MLF-H
PERIOD_SECONDS = 120.0  # between plans, twice the usual: half as long to learn, and hardly another problem


@dataclass(frozen=True, slots=True)
class EpisodeSetting:
    """A kind of episode.

    Args:
        scenario: the jobs.
        nodes: of four devices each.
        stops: whether jobs end once they have their accuracy, by the rule of MLF-C.
        until_seconds: when an episode is cut off.
    """

    scenario: Scenario
    nodes: int
    stops: bool
    until_seconds: float = 48 * 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One of several candidates was chosen.

    Attributes:
        at_seconds: when.
        features: of all candidates, shape (n, F), n at least 2.
        chosen: the position of the one.
    """

    at_seconds: float
    features: FloatArray
    chosen: int


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """What was chosen in an episode, and what each job did.

    Attributes:
        solo_seconds: what a job takes alone, the mean over all.
        until_seconds: when the episode was cut off.
    """

    jobs: Sequence[Choice]
    nodes: Sequence[Choice]
    outcome: PlacedOutcome
    solo_seconds: float
    until_seconds: float


class _Noting(ByPriority):
    """MLF-H's choices, with the features that a network would have seen."""

    def __init__(self, walk: QueueWalk) -> None:
        super().__init__(MlfH(limit=LIMIT), walk)
        self.features = np.empty((0, 0))
        self.noted: list[tuple[int, FloatArray, int]] = []

    def priorities(self) -> FloatArray:
        self.features = job_features(self._walk)
        return super().priorities()

    def node(self, part: int) -> int:
        node = super().node(part)
        candidates = np.flatnonzero(self._walk.hosts(part))
        if len(candidates):
            job = int(self._walk.view.parts.job[part])
            features = self._nodes.of(part, candidates)
            self.noted.append((job, features, int(np.searchsorted(candidates, node))))
        return node

    @cached_property
    def _nodes(self) -> NodeFeatures:
        return NodeFeatures(self._walk)


class _Trying(ByScores):
    """Choices drawn by the softmax of the networks' scores, or the best ones where nothing is random.

    The highest of all scores with noise of Gumbel's distribution is one such draw, and so is each next one
    among those that are left. So one draw of noise orders the whole queue.
    """

    def __init__(
        self, networks: ScoringNetworks, walk: QueueWalk, random: np.random.Generator | None
    ) -> None:
        super().__init__(networks, walk)
        self._random = random
        self._job = 0
        self.noted: list[tuple[int, FloatArray, int]] = []

    def ranks(self, queue: IntArray) -> FloatArray:
        return self._with_noise(self.scores)

    def node(self, part: int) -> int:
        self._job = int(self.walk.view.parts.job[part])
        return super().node(part)

    def chosen(self, features: FloatArray) -> int:
        chosen = int(self._with_noise(self.networks.nodes.scores(features)).argmax())
        self.noted.append((self._job, features, chosen))
        return chosen

    def _with_noise(self, scores: FloatArray) -> FloatArray:
        return scores if self._random is None else scores + self._random.gumbel(size=len(scores))


@dataclass(slots=True)
class _Watched:
    """A placed policy that notes its choices."""

    make: Callable[[QueueWalk], _Noting | _Trying]
    name: str = "watched"
    jobs: list[Choice] = field(default_factory=list)
    nodes: list[Choice] = field(default_factory=list)

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        walk = QueueWalk(view, LIMIT, notes_turns=True)
        choices = self.make(walk)
        plan = walk.plan(choices)
        at = view.time_seconds
        self.jobs += [Choice(at, choices.features[rivals], 0) for _, rivals in walk.turns if len(rivals) > 1]
        placed = {job for job, _ in walk.turns}
        self.nodes += [
            Choice(at, features, chosen)
            for job, features, chosen in choices.noted
            if job in placed and len(features) > 1
        ]
        return plan


def shown_by_mlf_h(setting: EpisodeSetting, seed: int) -> Episode:
    """Return an episode of MLF-H."""
    return _episode(setting, seed, _Watched(_Noting))


def tried(setting: EpisodeSetting, seed: int, networks: ScoringNetworks, trial: int | None) -> Episode:
    """Return an episode in which the networks choose.

    Args:
        trial: choices are drawn, and this tells those of a seed apart. None: the best are taken.
    """
    random = None if trial is None else np.random.default_rng([seed, trial])
    return _episode(setting, seed, _Watched(lambda walk: _Trying(networks, walk, random)))


def _episode(setting: EpisodeSetting, seed: int, policy: _Watched) -> Episode:
    workload = setting.scenario.workload(seed)
    outcome = simulate_placed(
        workload,
        PlacedLoadControl(policy) if setting.stops else policy,
        NodeResources.equal(setting.nodes, 4),
        PlacedRules(period_seconds=PERIOD_SECONDS, until_seconds=setting.until_seconds),
        seed=seed,
    )
    solo = float(np.mean([job.run_seconds for job in workload.jobs]))
    return Episode(policy.jobs, policy.nodes, outcome, solo, setting.until_seconds)


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
