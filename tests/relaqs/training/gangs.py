"""Gangs of the made-up regression, and what one rank alone must come to."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from relaqs.executors.dask import DaskExecutor
from relaqs.jobs.executor import background_thread
from relaqs.jobs.job import JobDescription
from relaqs.sharing.view import Kind
from relaqs.training.elastic.course import BatchRule, ElasticBatch, Journal, ReplayedBatch
from relaqs.training.elastic.gang_carrier import GangCarrier
from relaqs.training.elastic.membership import Recipe
from tests.relaqs.executors.clusters import LONG_SECONDS, eventually
from tests.relaqs.training.lessons import STEADY, MadeUpRecipe, course_alone, course_of

GROWING = ElasticBatch(32, 256, settle_steps=100)  # doubles the rows at the steps 314, 414 and 514


class LoneGang(GangCarrier):
    """A gang without a runner, and without a slot policy: on the slots that a test offers it."""

    def __init__(self, recipe: Recipe, executor: DaskExecutor, name: str, slots: tuple[str, ...]) -> None:
        super().__init__(name, executor)
        self._recipe, self._end_passes = recipe, math.inf
        self.offered(slots)

    def start(self) -> None:
        self._cluster.enter(JobDescription(self.id, Kind.TRAINING, name=self.id), self)
        self._thread = background_thread(self._run, self.id)
        self._thread.start()

    def go_on(self, end_passes: float) -> None:
        """Train on until this number of passes is over."""
        self._post(lambda: self._take_passes(end_passes))

    def wait(self) -> None:
        """Wait for the end. Raises the error that the gang ended with."""
        assert self.ends(LONG_SECONDS)
        self._cluster.cancel(self.id)
        if self.error is not None:
            raise self.error

    def finish(self) -> None:
        """Let it give its slots back, which it does once its driver has its state, and end."""
        eventually(lambda: self._made.kept_step)
        self.offered(())
        eventually(lambda: not self._asked_slots)
        self.stop()
        self.wait()

    @property
    def journal(self) -> Journal:
        return self.journal_since(0)


def gang(executor: DaskExecutor, name: str, slots: tuple[str, ...], rule: BatchRule = STEADY) -> LoneGang:
    return LoneGang(MadeUpRecipe(rule=rule), executor, name, slots)


def same_bits(job: LoneGang) -> bool:
    """Whether a gang's model is that of one rank: by the same rule, and by the gang's journal."""
    found, journal, recipe = course_of(job._made.kept), job.journal, job._recipe
    assert isinstance(recipe, MadeUpRecipe)
    rules = recipe.rule, ReplayedBatch(journal)
    alone = [course_alone(replace(recipe, rule=rule), len(journal)) for rule in rules]
    return all(
        found.step == each.step and all(map(np.array_equal, found.state, each.state)) for each in alone
    )
