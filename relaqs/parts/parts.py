"""The parts of jobs as columns: what each needs, whom it feeds, and where it is."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.parts.resources import RESOURCES

WAITS = -1
"""Stands for a node or a device where a part has none. A server has a node and no device."""


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """P parts as columns of shape (P,), with E edges of data flow and F flows of bytes.

    Attributes:
        job: the position of each part's job in the view.
        index: its number within its job.
        replica: the copy of the model that it belongs to; −1 for a server.
        level: the longest path from a part without parents; its children have higher levels.
        is_server: whether it adds gradients up, and needs no device.
        size_share: its parameters, relative to those of the model.
        demand: what it uses now, or would use, of each resource; shape (P, 4), columns as in RESOURCES.
        state_bytes: what must be moved when it moves.
        alone_seconds: what it computes in an iteration, where nothing contends.
        node, device: where it is; −1 while it waits, and as the device of a server.
        queued_since_seconds: since when it waits, on the view's clock; NaN while it is placed.
        edges: parent and child, positions of parts, shape (E, 2).
        flows: sender and receiver, positions of parts, shape (F, 2). Equal pairs may come twice.
        flow_bytes: what is sent in an iteration, shape (F,).

    Raises:
        ValueError: a shape is wrong, an edge or a flow leaves its job, an edge does not lead to a higher
            level, or a demand is negative.
    """

    job: IntArray
    index: IntArray
    replica: IntArray
    level: IntArray
    is_server: BoolArray
    size_share: FloatArray
    demand: FloatArray
    state_bytes: FloatArray
    alone_seconds: FloatArray
    node: IntArray
    device: IntArray
    queued_since_seconds: FloatArray
    edges: IntArray
    flows: IntArray
    flow_bytes: FloatArray

    def __post_init__(self) -> None:
        count = len(self.job)
        for name in _COLUMNS:
            if len(getattr(self, name)) != count:
                raise ValueError(f"{name} has {len(getattr(self, name))} rows for {count} parts")
        if self.demand.shape != (count, len(RESOURCES)) or not (self.demand >= 0).all():
            raise ValueError(
                f"demand has shape {self.demand.shape} or is negative somewhere; it must be "
                f"({count}, {len(RESOURCES)}) and 0 or more"
            )
        for name in ("edges", "flows"):
            pairs = getattr(self, name)
            if pairs.ndim != 2 or pairs.shape[1] != 2:
                raise ValueError(f"{name} has shape {pairs.shape}; it must be (n, 2)")
            if (self.job[pairs[:, 0]] != self.job[pairs[:, 1]]).any():
                raise ValueError(f"one of {name} leads from one job to another; parts feed their own job")
        if (self.level[self.edges[:, 0]] >= self.level[self.edges[:, 1]]).any():
            raise ValueError(
                "an edge does not lead to a higher level; the parts of a job must form no circle"
            )
        if self.flow_bytes.shape != (len(self.flows),):
            raise ValueError(f"flow_bytes has shape {self.flow_bytes.shape} for {len(self.flows)} flows")

    def __len__(self) -> int:
        return len(self.job)

    @property
    def is_placed(self) -> BoolArray:
        """Which parts have a node now, shape (P,)."""
        return np.asarray(self.node >= 0)

    def in_order(self, order: IntArray, job: IntArray) -> Parts:
        """Return the same parts in another order.

        Args:
            order: the positions of the parts, all of them, in the new order.
            job: the new position of each present position of a job.
        """
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        columns = {name: getattr(self, name)[order] for name in _COLUMNS}
        edges, flows = place[self.edges], place[self.flows]
        by_parent = np.lexsort([edges[:, 1], edges[:, 0]])
        by_sender = np.lexsort([self.flow_bytes, flows[:, 1], flows[:, 0]])
        return Parts(
            **columns
            | {
                "job": job[columns["job"]],
                "edges": edges[by_parent],
                "flows": flows[by_sender],
                "flow_bytes": self.flow_bytes[by_sender],
            }
        )


_COLUMNS = tuple(each.name for each in fields(Parts) if each.name not in ("edges", "flows", "flow_bytes"))
