"""Graphene: jobs with little work left first, on the nodes whose free resources suit them best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.parts.plan import PlacedPlan, planned_in_order
from relaqs.parts.resources import DEVICES
from relaqs.parts.view import PlacedView
from relaqs.placed_policies.descendants import longest_path_below
from relaqs.placed_policies.pack import packed


@dataclass(frozen=True, slots=True)
class Graphene:
    """Whole jobs by the time on their longest path that is left, times the largest share of a device.

    Nodes are taken by the dot product of a part's demand and the free resources. Nobody is preempted.

    Source: Grandl et al., Graphene, OSDI 2016. It orders the tasks of a job by what follows them and how hard
    they are to pack. Here a job's parts run together, so that this order is one of jobs: the least first, as
    in its score for many jobs.
    """

    name: ClassVar[str] = "graphene"

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        parts, jobs = view.parts, view.jobs
        path, share = np.zeros(len(jobs)), np.zeros(len(jobs))
        np.maximum.at(path, parts.job, longest_path_below(parts) + parts.alone_seconds)
        np.maximum.at(share, parts.job, parts.demand[:, DEVICES])
        order = np.argsort(path * jobs.iterations_left * share, kind="stable")
        return packed(view, order, preempts=False, fit="dot")
