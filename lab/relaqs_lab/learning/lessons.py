"""The order of lessons: MLF-H shows its choices, then choices are tried, and the best weights are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs_lab.learning.episodes import (
    Aims,
    Choice,
    Episode,
    EpisodeSetting,
    returns_from,
    shown_by_mlf_h,
    tried,
)
from relaqs_lab.learning.torch_scoring import NetworkLearner
from relaqs_lab.mlf_rl import ScoringNetworks
from relaqs_lab.simulation.placed.placed_workload import Scenario

_SHOWN, _TRIED, _CHECKED = 1_000_000, 2_000_000, 3_000_000  # where the seeds of arrivals begin

NODES = 10
BUSY = EpisodeSetting(Scenario("paper", jobs=100, devices=4 * NODES, load=1.5), NODES, stops=False)
STOPPING = EpisodeSetting(Scenario("paper", jobs=150, devices=4 * NODES, load=3.0), NODES, stops=True)


@dataclass(frozen=True, slots=True)
class Lessons:
    """What is learned from, and how long.

    Args:
        settings: kinds of episodes; they take turns.
        shown: episodes of MLF-H. imitation_steps, imitation_rate: of Adam, over all of their choices.
        updates: steps of the policy gradient. trials: episodes with the same arrivals, for each step.
        rate, entropy: as in `PolicyGradient`.
        check_every: updates between two checks on arrivals that nothing is learned from.
        checks: episodes of a check.
        aims: what is learned for.
    """

    settings: tuple[EpisodeSetting, ...] = (BUSY, STOPPING)
    shown: int = 4
    imitation_steps: int = 400
    imitation_rate: float = 0.01
    updates: int = 12
    trials: int = 4
    rate: float = 0.01
    entropy: float = 0.01
    check_every: int = 6
    checks: int = 4
    aims: Aims = field(default_factory=Aims)

    def __post_init__(self) -> None:
        counts = ("shown", "imitation_steps", "trials", "check_every", "checks")
        if not self.settings or self.updates < 0 or any(getattr(self, name) < 1 for name in counts):
            raise ValueError(
                f"there are {len(self.settings)} settings and {self.updates} updates, and one of "
                f"{', '.join(counts)} is below 1; give a setting, and 1 or more of each"
            )
        if self.trials < 2:
            raise ValueError("trials is 1; give 2 or more, which are compared with each other")


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """The networks, and how they came to be.

    Attributes:
        checks: the updates before each check, and the mean return of its episodes, higher is better.
        kept: which of the checks had the best.
        mlf_h: the mean return of MLF-H's episodes in a check.
    """

    networks: ScoringNetworks
    mlf_h: float
    checks: tuple[tuple[int, float], ...]
    kept: int


def learn(lessons: Lessons, seed: int, show: Callable[[float, str], None]) -> Learned:
    """Return networks that first did as MLF-H does, and then learned what is better.

    The same seed gives the same networks on one machine with one version of PyTorch.

    Args:
        show: is told which share is done, in 0..1, and what is being done.
    """
    learner = NetworkLearner(seed)
    whole = lessons.shown + lessons.updates * lessons.trials
    shown = []
    for number in range(lessons.shown):
        show(number / whole, "MLF-H shows")
        shown.append(shown_by_mlf_h(_setting(lessons, number), _SHOWN + 1000 * seed + number))
    jobs, nodes = _choices(shown)
    learner.imitate(jobs, nodes, lessons.imitation_steps, lessons.imitation_rate)
    kept = [learner.networks]
    checks = [(0, _checked(lessons, learner.networks))]
    gradient = learner.improver(lessons.rate, lessons.entropy)
    for update in range(lessons.updates):
        episodes = []
        for trial in range(lessons.trials):
            done = lessons.shown + update * lessons.trials + trial
            show(done / whole, f"update {update + 1} of {lessons.updates}")
            arrivals = _TRIED + 1000 * seed + update
            episodes.append(tried(_setting(lessons, update), arrivals, learner.networks, trial))
        job_gains = _advantages(episodes, [each.jobs for each in episodes], lessons.aims)
        node_gains = _advantages(episodes, [each.nodes for each in episodes], lessons.aims)
        jobs, nodes = _choices(episodes)
        gradient.step(jobs, job_gains, nodes, node_gains)
        if (update + 1) % lessons.check_every == 0 or update + 1 == lessons.updates:
            kept.append(learner.networks)
            checks.append((update + 1, _checked(lessons, learner.networks)))
    best = int(np.argmax([value for _, value in checks]))
    return Learned(kept[best], _worth(lessons, shown_by_mlf_h), tuple(checks), best)


def _setting(lessons: Lessons, number: int) -> EpisodeSetting:
    return lessons.settings[number % len(lessons.settings)]


def _choices(episodes: Sequence[Episode]) -> tuple[list[Choice], list[Choice]]:
    jobs = [choice for episode in episodes for choice in episode.jobs]
    return jobs, [choice for episode in episodes for choice in episode.nodes]


def _checked(lessons: Lessons, networks: ScoringNetworks) -> float:
    """Return the mean return of the networks' best choices."""
    return _worth(lessons, lambda setting, seed: tried(setting, seed, networks, None))


def _worth(lessons: Lessons, episode_of: Callable[[EpisodeSetting, int], Episode]) -> float:
    """Return the mean return of whole episodes, on arrivals that nothing is learned from."""
    worth = []
    for number in range(lessons.checks):
        episode = episode_of(_setting(lessons, number), _CHECKED + number)
        worth.append(float(returns_from(episode, np.zeros(1), lessons.aims)[0]))
    return float(np.mean(worth))


def _advantages(episodes: Sequence[Episode], choices: Sequence[Sequence[Choice]], aims: Aims) -> FloatArray:
    """Return by how much more an episode was worth after each choice than the others at that moment, (n,).

    All episodes have the same arrivals. So what the arrivals alone do to the return is in both, and cancels.
    The result is divided by its root mean square.

    Source: Mao et al., Variance Reduction for Reinforcement Learning in Input-Driven Environments, ICLR 2019.
    """
    gains = []
    for own, made in enumerate(choices):
        moments = np.array([choice.at_seconds for choice in made])
        if len(moments):
            others = [each for number, each in enumerate(episodes) if number != own]
            usual = np.mean([returns_from(each, moments, aims) for each in others], axis=0)
            gains.append(returns_from(episodes[own], moments, aims) - usual)
    joined = np.concatenate(gains) if gains else np.empty(0)
    size = float(np.sqrt((joined**2).mean())) if len(joined) else 0.0
    return joined / size if size > 0 else joined
