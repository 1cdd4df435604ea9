"""The machines that parts are placed on, and what each of them has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

RESOURCES = ("devices", "cores", "memory_bytes", "network_bytes_per_second")
"""The columns of every demand and capacity. A part's demand of devices is a share of one device."""

DEVICES, CORES, MEMORY, NETWORK = range(len(RESOURCES))


@dataclass(frozen=True, slots=True, eq=False)
class NodeResources:
    """N machines as columns.

    Attributes:
        ids: the machines' names.
        capacity: what each has of each resource, shape (N, 4), columns as in RESOURCES. Devices are whole.
        alive: which machines can be used now, shape (N,).

    Raises:
        ValueError: two machines have one name, a shape is wrong, or a capacity is negative or unknown.

    >>> nodes = NodeResources.equal(count=2, devices=4, cores=32.0)
    >>> nodes.ids, nodes.device_counts.tolist(), len(nodes)
    (('node 00', 'node 01'), [4, 4], 2)
    """

    ids: tuple[str, ...]
    capacity: FloatArray
    alive: BoolArray

    def __post_init__(self) -> None:
        count = len(self.ids)
        if len(set(self.ids)) != count:
            raise ValueError("two nodes have the same id; give each machine a name of its own")
        if self.capacity.shape != (count, len(RESOURCES)) or self.alive.shape != (count,):
            raise ValueError(
                f"there are {count} nodes, but capacity has shape {self.capacity.shape} and alive has shape "
                f"{self.alive.shape}; they must be ({count}, {len(RESOURCES)}) and ({count},)"
            )
        if not (self.capacity >= 0).all():
            raise ValueError("a capacity is negative or NaN; give 0 or more")

    @classmethod
    def equal(
        cls,
        count: int,
        devices: int,
        cores: float = 32.0,
        memory_bytes: float = 244e9,
        network_bytes_per_second: float = 1.25e9,
    ) -> NodeResources:
        """Return machines that are all alike. The defaults are those of MLFS's cloud machines.

        Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, section 4.1: 4 GPUs, 32 cores, 244 GB. Its network is
        taken to be 10 Gbit/s.
        """
        row = [float(devices), cores, memory_bytes, network_bytes_per_second]
        width = max(len(str(count - 1)), 2)
        names = tuple(f"node {i:0{width}}" for i in range(count))
        return cls(names, np.tile(row, (count, 1)), np.ones(count, dtype=np.bool_))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def device_counts(self) -> IntArray:
        """The devices of each machine, shape (N,)."""
        return self.capacity[:, DEVICES].astype(np.int64)
