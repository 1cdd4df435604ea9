"""How models are cut into parts, and what the parts need: five algorithms, as in the evaluation of MLFS."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

STATE_BYTES = 16.0  # for each parameter: itself, its gradient, and two moments of Adam, of four bytes each
BATCH_MEMORY_BYTES = 2e9  # of a part's rows and activations
WORKER_CORES = 2.0
SERVER_CORES = 1.0
LAYERS_WIDEST = 4


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What is trained, and how it learns.

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, section 4.1, names the five, and how each is cut. The numbers
    of parameters are the models' own. The shares of a device have a mean of one half, since GPUs are shared
    in the paper. How accuracy rises is fitted to the runs in AdaptDL's artifact (Qiao et al., OSDI 2021):
    1 − 1/(1 + x/τ) after a share x of the run with τ = 0.01 is CIFAR10 and with 0.04 ImageNet, 1 − exp(−x/τ)
    with 0.11 is DeepSpeech2.

    Attributes:
        parameters: of the whole model.
        device_share: of a device, that a part uses.
        cut: "chain": one part after another; "layers": several parts a layer as well; "copies": each part is
            the whole model.
        tau: τ, in shares of the run. is_exponential: which of the two forms.
        accuracy_end: which the accuracy approaches.
    """

    name: str
    parameters: float
    device_share: float
    cut: str
    tau: float
    is_exponential: bool
    accuracy_end: float


ALGORITHMS = (
    Algorithm("AlexNet", 61.1e6, 0.6, "chain", 0.04, False, 0.76),
    Algorithm("ResNet", 25.6e6, 0.7, "layers", 0.01, False, 0.95),
    Algorithm("MLP", 20e6, 0.4, "chain", 0.01, False, 0.97),
    Algorithm("LSTM", 66e6, 0.5, "layers", 0.11, True, 0.77),
    Algorithm("SVM", 0.1e6, 0.3, "copies", 0.05, True, 0.90),
)


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The parts of one job, by index; the server, if there is one, is the last. Columns of shape (n,).

    Attributes:
        replica: −1 for the server.
        size_share: of the model's parameters; later layers have more of them.
        time_share: of an iteration, that a part computes alone.
        edges: parent and child, shape (E, 2), sorted.
        flows: sender and receiver, shape (F, 2), sorted. The server gets gradients and sends the model.
        flow_stage: the step of an iteration in which each is sent, shape (F,).
        stages: how many such steps there are.
        flow_scale: relative to the job's bytes of one flow, shape (F,).
    """

    replica: IntArray
    level: IntArray
    is_server: BoolArray
    size_share: FloatArray
    time_share: FloatArray
    edges: IntArray
    flows: IntArray
    flow_stage: IntArray
    flow_scale: FloatArray
    stages: int


@lru_cache(maxsize=128)
def shape_of(cut: str, count: int, by_server: bool) -> Shape:
    """Return how a model is cut into so many parts on devices, with or without a server.

    Without a server, copies add their gradients up on a ring: each sends 2(n − 1)/n of them to the next. One
    copy needs neither.

    >>> shape = shape_of("layers", 8, by_server=True)
    >>> shape.level.tolist(), len(shape.edges), len(shape.flows)
    ([0, 0, 1, 1, 2, 2, 3, 3, 4], 12, 16)
    """
    width = 1 if cut == "chain" else count if cut == "copies" else _layer_width(count)
    level = np.arange(count) // width
    levels = int(level[-1]) + 1
    copies = cut == "copies"
    replica = np.arange(count) if copies else np.zeros(count, dtype=np.int64)
    size = np.ones(count) if copies else (level + 1.0) / (level + 1.0).sum()
    edges = [(a, b) for a in range(count) for b in range(count) if level[b] == level[a] + 1]
    flows = [(a, b, int(level[a]), 1.0) for a, b in edges]
    if by_server:
        leaves = [a for a in range(count) if level[a] == levels - 1]
        flows += [(a, count, levels, 1.0) for a in leaves] + [(count, a, levels + 1, 1.0) for a in leaves]
    elif copies and count > 1:
        flows += [(a, (a + 1) % count, levels, 2 * (count - 1) / count) for a in range(count)]
    flows.sort()
    servers = int(by_server)
    return Shape(
        replica=np.append(replica, [-1] * servers).astype(np.int64),
        level=np.append(level, [levels] * servers).astype(np.int64),
        is_server=np.append(np.zeros(count), [1] * servers).astype(np.bool_),
        size_share=np.append(size, [0.0] * servers),
        time_share=np.append(np.full(count, 1.0 / levels), [0.0] * servers),
        edges=np.array(sorted(edges), dtype=np.int64).reshape(-1, 2),
        flows=np.array([flow[:2] for flow in flows], dtype=np.int64).reshape(-1, 2),
        flow_stage=np.array([flow[2] for flow in flows], dtype=np.int64),
        flow_scale=np.array([flow[3] for flow in flows], dtype=np.float64),
        stages=levels + 2,
    )


def _layer_width(count: int) -> int:
    """Return the parts of a layer: the largest power of two whose square is at most their number, or 4."""
    width = 1
    while 4 * width * width <= count and width < LAYERS_WIDEST:
        width *= 2
    return width
