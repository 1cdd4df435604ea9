"""Gangs of the made-up regression, and what one rank alone must come to."""

from __future__ import annotations

import math

import numpy as np

from relaqs.executors.dask import DaskExecutor
from relaqs.jobs.job import JobDescription
from relaqs.sharing.view import Kind
from relaqs.training.elastic.turn_job import TurnJob, Wish
from tests.relaqs.training.lessons import MadeUpRecipe, course_alone, course_of


def gang(executor: DaskExecutor, name: str, wish: Wish, steps: float = math.inf) -> TurnJob:
    return gang_of(MadeUpRecipe(), executor, name, wish, steps)


def gang_of(
    recipe: MadeUpRecipe, executor: DaskExecutor, name: str, wish: Wish, steps: float = math.inf
) -> TurnJob:
    description = JobDescription(name, Kind.TRAINING, name=name)
    return TurnJob(name, recipe, executor, wish, end_step=steps, description=description)


def same_bits(job: TurnJob) -> bool:
    """Whether a gang's model is that of one rank that made the same steps."""
    found, wanted = course_of(job.kept), course_alone(MadeUpRecipe(), job.journal)
    return found.step == wanted.step and all(map(np.array_equal, found.state, wanted.state))
