"""The host, or the part that leaves, that is most like an ideal one: the least Euclidean distance.

Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, sections 3.3.2 and 3.3.3. The paper puts bytes and shares into one
distance. As they are, the bytes decide alone; here they are relative to the most of them, unless a policy
says otherwise.
"""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs.parts.parts import WAITS
from relaqs.parts.resources import CORES, NETWORK
from relaqs.parts.view import PlacedView

MEGABYTE = 1e6
SLOWED_SHARE = 0.1  # of the processor's use, while something moves: Beloglazov and Buyya 2012


def slowed_by_moving(
    cores_share: float, state_bytes: float, bytes_per_second: float, period_seconds: float
) -> float:
    """Return by how much a part slows down in a period in which it moves, as a share of a node's cores.

    Args:
        cores_share: what it uses of the node's cores.
        state_bytes: what is moved. bytes_per_second: the network that it is moved over.

    >>> slowed_by_moving(0.5, state_bytes=15e9, bytes_per_second=1e9, period_seconds=60.0)
    0.0125
    """
    return SLOWED_SHARE * cores_share * state_bytes / bytes_per_second / period_seconds


def slowed_on_nodes(view: PlacedView, part: int) -> FloatArray:
    """Return by how much a part slows down by moving to each node in a period, shape (N,); 0 if new."""
    origin = int(view.parts.node[part])
    capacity = view.nodes.capacity[origin]
    if origin == WAITS or not (capacity[NETWORK] > 0 and capacity[CORES] > 0):
        return np.zeros(len(view.nodes))
    slowed = slowed_by_moving(
        float(view.parts.demand[part, CORES] / capacity[CORES]),
        float(view.parts.state_bytes[part]),
        float(capacity[NETWORK]),
        view.period_seconds,
    )
    return np.where(np.arange(len(view.nodes)) == origin, 0.0, slowed)


def host_distances(
    utilisation: FloatArray,
    exchanged: FloatArray,
    degradation: FloatArray,
    underloaded: BoolArray,
    *,
    bytes_relative: bool = True,
) -> FloatArray:
    """Return how far each node is from the ideal host of a part, shape (N,).

    The ideal host has, of each resource, the least utilisation of the underloaded nodes. With the part, it
    exchanges the most bytes of these, and the part does not slow down by moving there.

    Args:
        utilisation: of each node's resources, shape (N, 4).
        exchanged: the bytes that the part exchanges with each node in an iteration, shape (N,).
        degradation: by how much the part slows down by moving to each node, shape (N,).
        underloaded: the nodes that the ideal one is made of, shape (N,), at least one.
        bytes_relative: bytes count relative to the most of them; if not, in megabytes.

    >>> host_distances(
    ...     np.array([[0.5, 0.4, 0.2, 0.6], [0.3, 0.6, 0.1, 0.7]]),
    ...     np.array([150e6, 0.0]), np.zeros(2), np.array([True, True])
    ... ).round(3).tolist()
    [0.224, 1.025]
    """
    ideal = np.where(underloaded, utilisation.T, np.inf).min(axis=1)
    most = exchanged.max(where=underloaded, initial=0.0)
    lacks = (most - exchanged) / ((most if most > 0 else 1.0) if bytes_relative else MEGABYTE)
    first, second, third, fourth = (utilisation.T - ideal[:, None]) ** 2  # sums along short rows are slow
    return np.asarray(np.sqrt(first + second + third + fourth + lacks**2 + degradation**2))


def mover_distances(
    utilisation: FloatArray, exchanged: FloatArray, overloaded: BoolArray, *, bytes_relative: bool = True
) -> FloatArray:
    """Return how far each part of a node is from the ideal one to leave it, shape (C,).

    The ideal part uses the most of each resource that is overloaded and the least of the others. It exchanges
    no bytes with the parts that stay.

    Args:
        utilisation: what each part uses, relative to what the node has, shape (C, 4).
        exchanged: the bytes that each part exchanges with others of the node in an iteration, shape (C,).
        overloaded: which resources are, shape (4,).
        bytes_relative: as for `host_distances`.

    >>> mover_distances(
    ...     np.array([[0.2, 0.1, 0.0, 0.0], [0.2, 0.5, 0.0, 0.0]]),
    ...     np.array([0.0, 0.0]), np.array([False, True, False, False])
    ... ).round(3).tolist()
    [0.4, 0.0]
    """
    ideal = np.where(overloaded, utilisation.max(axis=0), utilisation.min(axis=0))
    most = exchanged.max()
    moved = exchanged / ((most if most > 0 else 1.0) if bytes_relative else MEGABYTE)
    return np.asarray(np.sqrt(((utilisation - ideal) ** 2).sum(axis=1) + moved**2))
