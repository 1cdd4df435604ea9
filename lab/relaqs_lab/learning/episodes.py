"""Episodes: simulated jobs under a policy that notes each of its choices, and what the choices led to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.parts.plan import PlacedPlan, planned_in_order
from relaqs.parts.resources import NodeResources
from relaqs.parts.view import PlacedView
from relaqs.placed_policies.features import NodeFeatures, job_features
from relaqs.placed_policies.load_control import PlacedLoadControl
from relaqs.placed_policies.mlf_h import ByPriority, MlfH
from relaqs.placed_policies.mlf_rl import ByScores
from relaqs.placed_policies.queue_walk import QueueWalk
from relaqs.placed_policies.scoring import ScoringNetworks
from relaqs_lab.simulation.placed.simulator import PlacedOutcome, PlacedRules, simulate_placed
from relaqs_lab.simulation.placed.workload import Scenario

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
