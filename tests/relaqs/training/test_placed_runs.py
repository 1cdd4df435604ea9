"""Where placed policies put the parts of all runs of a session, and what they are told of these runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from relaqs_engine.errors import ClusterError
from relaqs_lab.simulation.placed.placed_simulator import MoveCosts, PlacedStates
from relaqs_lab.simulation.placed.placed_workload import ALGORITHMS, LearningCurve, PlacedJob, PlacedWorkload

from relaqs.executors.slot_desk import worker_of
from relaqs.jobs.job import JobDescription, StepReport
from relaqs.policies.registry import PLACED_POLICIES, make_placed_policy
from relaqs.sharing.parts import NodeResources, PlacedJobs, PlacedPlan, PlacedView
from relaqs.sharing.view import AccuracySoFar, Goals, Stop
from relaqs.training.parted.parted_job import PartCarrier
from relaqs.training.parted.placing import (
    ModelCut,
    Part,
    PartSizes,
    PlacedRuns,
    RunHistory,
    RunInParts,
    placed_by,
    placed_jobs,
)

SIZES = PartSizes(np.array([3.0, 1.0]), np.array([100.0]), pieces=2)
ONE_PART = PartSizes(np.array([1.0]), np.empty(0), pieces=1)
SLOTS = ("tcp://a:1/0", "tcp://a:1/1", "tcp://b:1/0")


def placed_run(name: str, cut: ModelCut, sizes: PartSizes, present: dict[Part, str]) -> RunInParts:
    return replace(run_in_parts(name), cut=cut, sizes=sizes, present=present)


@pytest.mark.parametrize("policy", [*PLACED_POLICIES])
@pytest.mark.parametrize("slots", [SLOTS, SLOTS[:1]], ids=len)
def test_every_policy_places_all_parts_also_on_one_slot(policy: str, slots: tuple[str, ...]) -> None:
    cut = ModelCut((0, 2), 4, replicas=2)
    runs = [placed_run(name, cut, SIZES, {}) for name in ("a", "bb", "ccc")]
    for placed in placed_by(make_placed_policy(policy), runs, slots, 100.0):
        assert placed.keys() == {*cut.parts}
        assert {*placed.values()} <= {*slots}


@dataclass(frozen=True)
class OfAUser:
    """A policy that somebody wrote, with a mistake in it."""

    gives: Callable[[PlacedView], object]
    name: str = "mine"

    def plan(self, view: PlacedView) -> PlacedPlan:
        made: PlacedPlan = self.gives(view)  # type: ignore[assignment]
        return made


def on_a_node_that_is_not_there(view: PlacedView) -> PlacedPlan:
    count = len(view.parts)
    stops = np.zeros(len(view.jobs), dtype=np.bool_)
    return PlacedPlan(view.jobs.ids, np.full(count, 9), np.zeros(count, dtype=np.int64), stops)


@pytest.mark.parametrize(
    "gives",
    [lambda view: 1 / 0, lambda view: None, on_a_node_that_is_not_there],
    ids=["raises", "none", "far"],
)
def test_a_policy_that_fails_is_named_and_mlf_h_places_the_parts(
    gives: Callable[[PlacedView], object],
) -> None:
    run = placed_run("a", ModelCut((0, 2), 4, replicas=2), SIZES, {})
    with pytest.warns(
        RuntimeWarning, match=r"placed policy 'mine' failed \(.+\); mlf_h places the parts meanw"
    ):
        placed = placed_by(OfAUser(gives), [run], SLOTS, 100.0)
    assert placed == placed_by(make_placed_policy("mlf_h"), [run], SLOTS, 100.0)


def test_parts_stay_where_they_are_when_another_is_lost() -> None:
    cut = ModelCut((0, 2), 4, replicas=2)
    present = {Part(0, 0): SLOTS[2], Part(0, 1): SLOTS[0], Part(1, 0): SLOTS[2]}
    [placed] = placed_by(make_placed_policy("mlf_h"), [placed_run("a", cut, SIZES, present)], SLOTS, 100.0)
    assert {part: placed[part] for part in present} == present


def test_parts_of_a_worker_that_lost_its_first_slot_stay() -> None:
    cut, present = ModelCut((0,), 4, replicas=1), {Part(0, 0): SLOTS[1]}
    [placed] = placed_by(
        make_placed_policy("mlf_h"), [placed_run("a", cut, ONE_PART, present)], SLOTS[1:], 9.0
    )
    assert placed == present


def test_a_policy_sees_the_parts_of_all_runs() -> None:
    """Each of three runs gets a slot of its own, and a fourth one shares."""
    cut, policy, found = ModelCut((0,), 4, replicas=1), make_placed_policy("mlf_h"), list[RunInParts]()
    for name in ("a", "bb", "ccc", "dddd"):
        own = placed_run(name, cut, ONE_PART, {})
        [placed, *others] = placed_by(policy, [own, *found], SLOTS, 100.0)
        assert others == [run.present for run in found]
        found.append(replace(own, present=placed))
    used = [run.present[Part(0, 0)] for run in found]
    assert {*used[:3]} == {*SLOTS}
    assert used[3] in SLOTS


def run_in_parts(name: str) -> RunInParts:
    history = RunHistory(JobDescription(name, work_total=10), arrival_seconds=float(len(name)))
    history.begin_turn((3, 10))
    return RunInParts(make_placed_policy("mlf_h"), history, ModelCut((0,), 4, replicas=1), ONE_PART)


def on_one_slot(*names: str) -> tuple[PlacedRuns, list[RunInParts]]:
    """Return runs of one part each, all on the first slot."""
    runs, own = PlacedRuns(), [run_in_parts(name) for name in names]
    for run in own:
        assert runs.placed(run, SLOTS[:1], {}, has_new_slots=False) == {Part(0, 0): SLOTS[0]}
    return runs, own


def test_the_end_of_a_run_gives_others_its_room() -> None:
    runs, (one, two) = on_one_slot("bb", "ccc")
    alone = run_in_parts("a")
    assert runs.placed(alone, SLOTS[2:], {}, has_new_slots=False) == {Part(0, 0): SLOTS[2]}
    runs.leave(alone)
    assert one.is_due
    assert two.is_due
    free = SLOTS[0], SLOTS[2]
    placed = runs.placed(one, free, {}, has_new_slots=False)
    assert {*placed.values(), *two.present.values()} == {*free}
    assert not two.is_due
    assert runs.placed(two, free, {}, has_new_slots=False) == two.present


def test_of_two_runs_that_both_see_a_new_slot_one_moves() -> None:
    """The second one plans with what the first has decided, even if it has not heard of it."""
    runs, own = on_one_slot("bb", "ccc")
    both = SLOTS[:2]
    for run in own:
        runs.placed(run, both, {}, has_new_slots=True)
    assert {slot for run in own for slot in runs.placed(run, both, {}, False).values()} == {*both}


def test_a_part_whose_slot_is_gone_is_placed_again_at_once() -> None:
    runs, (one, two) = on_one_slot("bb", "ccc")
    for run in (one, two):
        assert runs.placed(run, SLOTS[1:2], {}, has_new_slots=False) == {Part(0, 0): SLOTS[1]}


def test_what_the_user_placed_is_moved_by_no_plan() -> None:
    runs, fixed = PlacedRuns(), [run_in_parts(name) for name in ("a", "bb")]
    for run in fixed:
        assert runs.placed(run, SLOTS, {Part(0, 0): worker_of(SLOTS[0])}, False) == {Part(0, 0): SLOTS[0]}
    new = run_in_parts("ccc")
    assert runs.placed(new, SLOTS, {}, has_new_slots=True).keys() == {Part(0, 0)}
    assert [run.present for run in fixed] == [{Part(0, 0): SLOTS[0]}] * 2


def test_what_a_policy_is_told_of_a_run() -> None:
    goals = Goals(accuracy=0.9, urgency=7.0, may_stop=frozenset({Stop.REQUIRED}))
    history = RunHistory(JobDescription("a", work_total=20, deadline_seconds=60.0, goals=goals), 1000.0)
    history.begin_turn((0, 30))
    history.turned(2, 3.0)
    for loss, accuracy in ((4.0, 0.5), (2.0, 0.7), (math.inf, 0.7), (1.5, 0.6)):
        so_far = AccuracySoFar(accuracy)
        history.reported(StepReport(0, loss, None, 1.0, False, accuracy=so_far))
    history.begin_turn((3, 30))
    no_hurry = RunHistory(JobDescription("b", work_total=20), 1010.0)
    jobs = placed_jobs([history, no_hurry], 1020.0)
    assert jobs.deadline_seconds.tolist() == [1060.0, 1020.0 + 24 * 3600]
    assert jobs.urgency.tolist() == [7.0, 1.0]
    assert (jobs.iterations_done[0], jobs.iterations_most[0], jobs.iteration_seconds[0]) == (3.0, 20.0, 1.0)
    assert (jobs.loss_fallen_last[0], jobs.loss_fallen[0], jobs.loss_fall_rate[0]) == (0.5, 2.5, 1.25)
    assert jobs.accuracy[0] == 0.7
    assert jobs.accuracy_gain[0] == pytest.approx(0.2)  # of the last two passes
    assert jobs.accuracy_required.tolist() == [0.9, 1.0]
    assert jobs.attained_device_seconds[0] == 6.0
    assert jobs.may_stop.tolist() == [True, False]
    assert np.isnan([jobs.loss_fallen[1], jobs.accuracy[1], jobs.accuracy_gain[1]]).all()


@pytest.mark.parametrize("passes", [1, 2, 4, 9])
def test_a_policy_is_told_the_same_of_a_live_run_and_of_a_simulated_one(passes: int) -> None:
    """Of 40 passes of two seconds, so many are over."""
    random = np.random.default_rng(passes)
    losses, accuracies = 4.0 - np.cumsum(random.random(41)), np.sort(random.random(41))
    accuracies[0] = 0.0
    goals = Goals(accuracy=0.9, urgency=7.0, may_stop=frozenset({Stop.REQUIRED}))
    live = RunHistory(JobDescription("a", work_total=40, deadline_seconds=500.0, goals=goals), 0.0)
    for loss, accuracy in zip(losses[1 : passes + 1], accuracies[1 : passes + 1], strict=True):
        live.turned(1, 2.0)
        live.reported(StepReport(0, loss, None, 1.0, False, accuracy=AccuracySoFar(accuracy)))
    live.begin_turn((passes, 40))
    job = PlacedJob(
        name="a",
        algorithm=ALGORITHMS[0],
        devices=1,
        by_server=False,
        arrival_seconds=0.0,
        run_seconds=80.0,
        iterations=40,
        urgency=7.0,
        deadline_seconds=500.0,
        accuracy_required=0.9,
        flow_bytes=0.0,
        curve=LearningCurve(accuracies, losses),
    )
    nodes = NodeResources.equal(1, 1)
    states = PlacedStates(PlacedWorkload("one", (job,)), nodes, MoveCosts(), swing=0.0, seed=0)
    states.done[:] = passes
    states.device_seconds[:] = 2.0 * passes
    simulated = states.view(states.active(100.0), 100.0, 60.0).jobs
    told = placed_jobs([live], 100.0)
    for column in fields(PlacedJobs):
        one, other = getattr(told, column.name), getattr(simulated, column.name)
        assert np.array_equal(one, other, equal_nan=column.name not in ("ids", "may_stop")), column.name


class Leases:
    """A cluster whose slots are known, or whose scheduler is away."""

    def __init__(self) -> None:
        self.there: tuple[str, ...] | None = SLOTS[:2]

    def slots(self) -> tuple[str, ...]:
        if self.there is None:
            raise ClusterError("no scheduler")
        return self.there


def test_slots_are_looked_at_again_and_a_scheduler_that_is_away_changes_nothing() -> None:
    leases = Leases()
    carrier = PartCarrier("a", leases, make_placed_policy("mlf_h"), {})  # type: ignore[arg-type]
    for there, is_new in ((SLOTS[:2], False), (None, False), (SLOTS, True)):
        leases.there, carrier._looked_seconds = there, -math.inf
        assert carrier._there() == (there or SLOTS[:2])
        assert carrier._has_new_slots == is_new
    leases.there, carrier._must_look = None, True
    with pytest.raises(ClusterError, match="no scheduler"):
        carrier._there()


def test_how_busy_parts_are() -> None:
    """Two pieces through two stages take three times what the slower stage takes for one."""
    assert SIZES.busy.tolist() == pytest.approx([2 / 3, 2 / 9])
