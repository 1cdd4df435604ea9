"""MLF-RL: the queue and the nodes of MLF-H, with an order and a choice of nodes that were learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.parts.parts import WAITS
from relaqs.parts.plan import PlacedPlan, planned_in_order
from relaqs.parts.view import PlacedView
from relaqs.placed_policies.features import NodeFeatures, job_features
from relaqs.placed_policies.queue_walk import QueueWalk
from relaqs.placed_policies.scoring import ScoringNetworks, read_networks


@dataclass(frozen=True, slots=True)
class MlfRl:
    """Jobs by a learned score, each part on the node with the highest learned score that has room.

    All else is as in MLF-H: which parts leave overloaded nodes, that jobs are placed whole, and the limit.

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, section 3.4: a network that first does as MLF-H does, and then
    learns by policy gradient. The paper says neither what network nor how it meets other numbers of parts.
    Here it scores one candidate at a time. `relaqs learn` makes the weights.

    Args:
        weights: a file of weights, None for those of the package.
        limit, lowest_share: as in MLF-H.

    Raises:
        ValueError: the file cannot be read or holds no such weights.
    """

    weights: str | None = None
    limit: float = 0.9
    lowest_share: float = 0.1
    networks: ScoringNetworks = field(init=False, repr=False, compare=False)
    name: ClassVar[str] = "mlf_rl"

    def __post_init__(self) -> None:
        for name in ("limit", "lowest_share"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give a number above 0, at most 1")
        object.__setattr__(self, "networks", read_networks(self.weights))

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        walk = QueueWalk(view, self.limit)
        return walk.plan(ByScores(self.networks, walk), lowest_share=self.lowest_share)


class ByScores:
    """What the networks choose: the highest scores of jobs, and of the nodes that have room.

    Attributes:
        features: of all jobs when the walk began, shape (J, F).
        scores: of all jobs, shape (J,).
    """

    def __init__(self, networks: ScoringNetworks, walk: QueueWalk) -> None:
        self.networks, self.walk = networks, walk
        self.features, self.scores = np.empty((0, 0)), np.empty(0)

    def priorities(self) -> FloatArray:
        """Return the score of each part's job; infinite for servers, which MLF-H puts first."""
        self.features = job_features(self.walk)
        self.scores = self.networks.jobs.scores(self.features)
        parts = self.walk.view.parts
        return np.where(parts.is_server, np.inf, self.scores[parts.job])

    def ranks(self, queue: IntArray) -> FloatArray:
        return self.scores

    def node(self, part: int) -> int:
        candidates = self.walk.hosts(part).nonzero()[0]
        if len(candidates) < 2:
            return int(candidates[0]) if len(candidates) else WAITS
        return int(candidates[self.chosen(self._nodes.of(part, candidates))])

    @cached_property
    def _nodes(self) -> NodeFeatures:
        """Made when the first part is placed, since then the walk knows which nodes may get parts."""
        return NodeFeatures(self.walk)

    def chosen(self, features: FloatArray) -> int:
        """Return which candidate has the highest score, the first of several. features: shape (n, F)."""
        return int(self.networks.nodes.scores(features).argmax())
