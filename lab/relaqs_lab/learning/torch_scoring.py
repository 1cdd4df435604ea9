"""The networks while they learn: imitation of choices, and the policy gradient. Nothing else uses PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from relaqs_bootstrap.arrays import FloatArray

from relaqs_lab.learning.episodes import Choice
from relaqs_lab.mlf_rl import HIDDEN, JOB_FEATURES, NODE_FEATURES, ScoringNetwork, ScoringNetworks

LARGEST_GRADIENT = 1.0  # its length is cut to this


class _Learning(torch.nn.Module):
    """One `ScoringNetwork`, for batches of choices. Candidates are padded to the most of a batch."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.direct = torch.nn.Parameter(torch.zeros(features))
        self.inward = torch.nn.Parameter(torch.randn(features, HIDDEN) / features**0.5)
        self.shift = torch.nn.Parameter(torch.zeros(HIDDEN))
        self.out = torch.nn.Parameter(torch.zeros(HIDDEN))

    def forward(self, features: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        """Return the logarithm of each candidate's probability, shape (n, most candidates)."""
        hidden = torch.tanh(features @ self.inward + self.shift)
        scores = features @ self.direct + hidden @ self.out
        return torch.log_softmax(scores.masked_fill(~there, -torch.inf), dim=1)

    def weights(self) -> ScoringNetwork:
        made = {
            name: each.detach().numpy().astype(np.float16).astype(np.float64)
            for name, each in self.named_parameters()
        }
        return ScoringNetwork(**made)


class NetworkLearner:
    """Both networks, with one optimiser each (Adam: Kingma and Ba, ICLR 2015).

    seed: of the first weights. Equal seeds and choices give equal weights on one machine.
    """

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        self._jobs, self._nodes = _Learning(len(JOB_FEATURES)), _Learning(len(NODE_FEATURES))

    @property
    def networks(self) -> ScoringNetworks:
        """The weights now, rounded as they are kept."""
        return ScoringNetworks(self._jobs.weights(), self._nodes.weights())

    def imitate(self, jobs: Sequence[Choice], nodes: Sequence[Choice], steps: int, rate: float) -> None:
        """Make choices like these more likely: so many steps down their cross-entropy."""
        for network, choices in ((self._jobs, jobs), (self._nodes, nodes)):
            if choices:
                adam = torch.optim.Adam(network.parameters(), lr=rate)
                batch = _batch(choices)
                for _ in range(steps):
                    _step(network, adam, -_chosen(network(*batch[:2]), batch[2]).mean())

    def improver(self, rate: float, entropy: float) -> PolicyGradient:
        """Return what goes on from here by the policy gradient."""
        return PolicyGradient(self._jobs, self._nodes, rate, entropy)


class PolicyGradient:
    """REINFORCE (Williams, Machine Learning 1992): choices that led to more than usual become more likely.

    Args:
        rate: of Adam.
        entropy: the weight of a bonus for choices that are still open.
    """

    def __init__(self, jobs: _Learning, nodes: _Learning, rate: float, entropy: float) -> None:
        self._entropy = entropy
        self._both = [(each, torch.optim.Adam(each.parameters(), lr=rate)) for each in (jobs, nodes)]

    def step(
        self,
        jobs: Sequence[Choice],
        job_advantages: FloatArray,
        nodes: Sequence[Choice],
        node_advantages: FloatArray,
    ) -> None:
        """Make one step. An advantage is how much better than usual it went after a choice, shape (n,)."""
        given = ((jobs, job_advantages), (nodes, node_advantages))
        for (network, adam), (choices, advantages) in zip(self._both, given, strict=True):
            if not choices:
                continue
            features, there, chosen = _batch(choices)
            likely = network(features, there)
            gain = (_chosen(likely, chosen) * torch.as_tensor(advantages, dtype=torch.float32)).mean()
            open_choice = -(likely.exp() * likely.masked_fill(~there, 0.0)).sum(dim=1).mean()
            _step(network, adam, -gain - self._entropy * open_choice)


def _batch(choices: Sequence[Choice]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return features (n, most candidates, F), which candidates are there, and which was chosen (n,)."""
    most, width = max(len(each.features) for each in choices), choices[0].features.shape[1]
    features = np.zeros((len(choices), most, width), dtype=np.float32)
    there = np.zeros((len(choices), most), dtype=np.bool_)
    for row, each in enumerate(choices):
        features[row, : len(each.features)] = each.features
        there[row, : len(each.features)] = True
    chosen = np.array([each.chosen for each in choices])
    return torch.from_numpy(features), torch.from_numpy(there), torch.from_numpy(chosen)


def _chosen(likely: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    return likely.gather(1, chosen[:, None])[:, 0]


def _step(network: _Learning, adam: torch.optim.Adam, loss: torch.Tensor) -> None:
    adam.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(network.parameters(), LARGEST_GRADIENT)
    adam.step()
