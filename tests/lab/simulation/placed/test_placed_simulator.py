"""The simulator of placed parts against times and bytes computed by hand, and what must always hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pytest
from relaqs_lab.mlf_rl import PlacedLoadControl
from relaqs_lab.simulation.placed.placed_simulator import (
    MoveCosts,
    NodeFault,
    PlacedOutcome,
    PlacedRules,
    simulate_placed,
)
from relaqs_lab.simulation.placed.placed_workload import (
    ALGORITHMS,
    Algorithm,
    LearningCurve,
    PlacedJob,
    PlacedWorkload,
    Scenario,
)

from relaqs.arguments import ArgumentError
from relaqs.policies.registry import PLACED_POLICIES, make_placed_policy
from relaqs.sharing.parts import NodeResources, PlacedPlan, PlacedPolicy, PlacedView

BY_NAME = {each.name: each for each in ALGORITHMS}
STILL = PlacedRules(swing=0.0)


@dataclass(frozen=True)
class Fixed:
    """Places the parts of each job where it is told, in every plan: (node, device) of each part."""

    places: tuple[tuple[int, int], ...]
    name: str = "fixed"

    def plan(self, view: PlacedView) -> PlacedPlan:
        alive = view.nodes.alive
        there = np.array([self.places[i % len(self.places)] for i in range(len(view.parts))])
        stays = alive[there[:, 0]]
        return PlacedPlan.of(view, np.where(stays, there[:, 0], -1), np.where(stays, there[:, 1], -1))


def job(algorithm: Algorithm, devices: int, by_server: bool = False, **more: object) -> PlacedJob:
    """Return a job of 100 iterations of 10 s that comes at 0 and learns in a straight line."""
    curve = LearningCurve(np.linspace(0.0, 0.8, 101), np.linspace(2.0, 1.0, 101))
    usual = PlacedJob(
        name=f"{algorithm.name} on {devices}",
        algorithm=algorithm,
        devices=devices,
        by_server=by_server,
        arrival_seconds=0.0,
        run_seconds=1000.0,
        iterations=100,
        urgency=5.0,
        deadline_seconds=2000.0,
        accuracy_required=0.4,
        flow_bytes=100e6,
        curve=curve,
    )
    return replace(usual, **more)  # type: ignore[arg-type]


def simulated(policy: object, *jobs: PlacedJob, rules: PlacedRules = STILL, nodes: int = 2) -> PlacedOutcome:
    return simulate_placed(PlacedWorkload("by hand", jobs), policy, NodeResources.equal(nodes, 2), rules)  # type: ignore[arg-type]


def test_a_job_alone_waits_for_a_plan_starts_and_takes_its_time() -> None:
    outcome = simulated(Fixed(((0, 0), (0, 1))), job(BY_NAME["MLP"], 2))
    assert outcome.completion_seconds.tolist() == pytest.approx([60 + 5 + 1000])
    assert outcome.executed_seconds.tolist() == pytest.approx([1005])
    assert outcome.sent_bytes.tolist() == [0.0]
    assert outcome.accuracy_at_deadline.tolist() == pytest.approx([0.8])


def test_a_policy_that_places_nothing_for_a_day_ends_the_simulation() -> None:
    says = "'fixed' placed nothing for a day though no job ran, and job 'MLP on 2' waits, with 1 more"
    with pytest.raises(ArgumentError, match=says):
        simulated(Fixed(((-1, -1),)), job(BY_NAME["MLP"], 2), job(BY_NAME["MLP"], 2, name="second"))


@pytest.mark.slow
def test_a_policy_that_lets_nothing_get_anywhere_for_a_week_ends_the_simulation() -> None:
    """An iteration takes 600 s, and the part moves at each plan. Who gives an end gets what there is then."""

    @dataclass(frozen=True)
    class Restless:
        name: str = "restless"

        def plan(self, view: PlacedView) -> PlacedPlan:
            node = np.full(len(view.parts), int(view.time_seconds / 60) % 2)
            return PlacedPlan.of(view, node, np.zeros(len(node), dtype=np.int64))

    slow = job(BY_NAME["MLP"], 1, run_seconds=60_000.0)
    with pytest.raises(
        ArgumentError, match="'restless' let no job make a whole iteration for a week, and 1 are"
    ):
        simulated(Restless(), slow)
    outcome = simulated(Restless(), slow, rules=replace(STILL, until_seconds=8 * 86_400.0))
    assert np.isnan(outcome.end_seconds).all()
    assert outcome.iterations_done[0] < 1


def test_what_goes_between_nodes_takes_its_bytes_over_the_network() -> None:
    """100 MB in an iteration at 10 Gbit/s are 0.08 s."""
    outcome = simulated(Fixed(((0, 0), (1, 0))), job(BY_NAME["MLP"], 2))
    assert outcome.completion_seconds.tolist() == pytest.approx([65 + 100 * (10 + 0.08)])
    assert outcome.sent_bytes.tolist() == pytest.approx([100 * 100e6])


def test_a_tenth_of_the_network_takes_ten_times_as_long() -> None:
    workload = PlacedWorkload("by hand", (job(BY_NAME["MLP"], 2),), network_scale=0.1)
    policy, nodes = Fixed(((0, 0), (1, 0))), NodeResources.equal(2, 2)
    outcome = simulate_placed(workload, policy, nodes, STILL)
    assert outcome.completion_seconds.tolist() == pytest.approx([65 + 100 * (10 + 0.8)])
    assert Scenario("network", jobs=3).workload(0).network_scale == 0.1


def test_a_server_takes_gradients_and_then_sends_the_model() -> None:
    """Two copies, one on the server's node: what the other sends and gets goes between nodes."""
    outcome = simulated(Fixed(((0, 0), (1, 0), (0, -1))), job(BY_NAME["SVM"], 2, by_server=True))
    assert outcome.completion_seconds.tolist() == pytest.approx([65 + 100 * (10 + 2 * 0.08)])
    assert outcome.sent_bytes.tolist() == pytest.approx([2 * 100 * 100e6])


def test_copies_on_a_ring_send_at_the_same_time() -> None:
    """Four copies on two nodes: each link carries 2·3/4 of the gradients, and two links go between nodes."""
    outcome = simulated(Fixed(((0, 0), (0, 1), (1, 0), (1, 1))), job(BY_NAME["SVM"], 4))
    assert outcome.completion_seconds.tolist() == pytest.approx([65 + 100 * (10 + 1.5 * 0.08)])
    assert outcome.sent_bytes.tolist() == pytest.approx([2 * 1.5 * 100 * 100e6])


def test_parts_that_share_a_device_are_slower() -> None:
    """Two parts that want 0.7 of it each get half."""
    one, other = job(BY_NAME["ResNet"], 1), job(BY_NAME["ResNet"], 1, name="other")
    outcome = simulated(Fixed(((0, 0),)), one, other)
    assert outcome.completion_seconds.tolist() == pytest.approx([65 + 1400] * 2)
    assert outcome.overloads > 20


def test_copies_work_while_some_are_whole() -> None:
    """Of two copies, one never gets a place: iterations take twice as long."""

    @dataclass(frozen=True)
    class First:
        name: str = "first"

        def plan(self, view: PlacedView) -> PlacedPlan:
            first = view.parts.index == 0
            return PlacedPlan.of(view, np.where(first, 0, -1), np.where(first, 0, -1))

    assert simulated(First(), job(BY_NAME["SVM"], 2)).completion_seconds.tolist() == pytest.approx([2065])
    rules = replace(STILL, until_seconds=5000.0)
    assert np.isnan(simulated(First(), job(BY_NAME["MLP"], 2), rules=rules).end_seconds).all()


def test_a_fault_costs_the_iteration_in_hand_and_the_time_away() -> None:
    """Away from 208 to 400 s, after 14 whole iterations; the plan at 420 s places the part again."""
    rules = replace(STILL, faults=(NodeFault(0, 208.0, 400.0),))
    outcome = simulated(Fixed(((0, 0),)), job(BY_NAME["MLP"], 1), rules=rules)
    state_seconds = 16 * 20e6 / 1.25e9
    assert outcome.iterations_done.tolist() == [100.0]
    assert outcome.completion_seconds.tolist() == pytest.approx([420 + 5 + state_seconds + 860])
    assert outcome.sent_bytes.tolist() == pytest.approx([16 * 20e6])


def test_a_part_that_moves_stops_its_job_for_a_while() -> None:
    """The place changes once, at 600 s, after 53 whole iterations."""

    @dataclass(frozen=True)
    class Moving:
        name: str = "moving"

        def plan(self, view: PlacedView) -> PlacedPlan:
            node = np.zeros(len(view.parts), dtype=np.int64) + int(view.time_seconds >= 600)
            return PlacedPlan.of(view, node, np.zeros(len(view.parts), dtype=np.int64))

    costly = simulated(Moving(), job(BY_NAME["MLP"], 1))
    assert costly.placed_moves == 1
    assert costly.completion_seconds.tolist() == pytest.approx([600 + 5 + 16 * 20e6 / 1.25e9 + 470])
    free = simulated(Moving(), job(BY_NAME["MLP"], 1), rules=replace(STILL, moves=MoveCosts(are_free=True)))
    assert free.completion_seconds.tolist() == pytest.approx([600 + 460])


def test_accuracy_counts_as_it_was_at_the_deadline() -> None:
    outcome = simulated(Fixed(((0, 0),)), job(BY_NAME["MLP"], 1, deadline_seconds=570.0))
    assert outcome.accuracy_at_deadline.tolist() == pytest.approx([0.8 * 50 / 100])
    assert outcome.accuracy.tolist() == pytest.approx([0.8])


def test_a_rule_of_stopping_ends_a_job_that_has_what_it_needs() -> None:
    """Another job's part waits for ever, so the cluster counts as overloaded. Half the way is 0.4."""
    big = job(BY_NAME["MLP"], 32, name="too big")
    rules = replace(STILL, until_seconds=3000.0)
    outcome = simulated(
        PlacedLoadControl(make_placed_policy("tiresias")), job(BY_NAME["MLP"], 1), big, rules=rules, nodes=1
    )
    assert outcome.stopped.tolist() == [True, False]
    assert outcome.end_seconds[0] == pytest.approx(600.0)
    assert outcome.iterations_done[0] == 53


@pytest.mark.parametrize(("gang", "ended"), [(True, 2), (False, 0)])
def test_jobs_that_are_placed_in_part_wait_for_each_other(gang: bool, ended: int) -> None:
    """Two chains of three parts on four devices: by priority each gets two parts, and none the third."""
    jobs = (job(BY_NAME["AlexNet"], 3), job(BY_NAME["AlexNet"], 3, name="other"))
    rules = replace(STILL, until_seconds=10_000.0)
    outcome = simulated(make_placed_policy("mlf_h", gang=gang), *jobs, rules=rules)
    assert (~np.isnan(outcome.end_seconds)).sum() == ended


@dataclass
class Noting:
    """A policy that adds up what it sees: each job's bytes, by its iterations and by the parts that move."""

    inner: PlacedPolicy
    sent: dict[str, float] = field(default_factory=dict)
    crossing: dict[str, tuple[float, float]] = field(
        default_factory=dict
    )  # done before, bytes of an iteration

    @property
    def name(self) -> str:
        return self.inner.name

    def plan(self, view: PlacedView) -> PlacedPlan:
        plan, jobs, parts = self.inner.plan(view), view.jobs, view.parts
        for at, name in enumerate(jobs.ids):
            done, own = float(jobs.iterations_done[at]), parts.job == at
            self._iterate(name, done)
            changed = own & ((plan.node != parts.node) | (plan.device != parts.device))
            ran = bool((parts.node[own] >= 0).all())  # jobs are placed whole
            fetches = changed & (plan.node >= 0) & (plan.node != parts.node)
            if changed.any() and ran:
                done = math.floor(done + 1e-9)  # the iteration in hand is lost
            if done:
                self.sent[name] += float(parts.state_bytes[fetches].sum())
            ends = plan.node[parts.flows]
            flows = own[parts.flows[:, 0]] & (ends[:, 0] != ends[:, 1]) & (ends >= 0).all(axis=1)
            self.crossing[name] = done, float(parts.flow_bytes[flows].sum())
        return plan

    def _iterate(self, name: str, done: float) -> None:
        before, size = self.crossing.get(name, (0.0, 0.0))
        self.sent[name] = self.sent.get(name, 0.0) + (done - before) * size


@pytest.mark.parametrize("name", ["mlf_h", "fair"])
def test_bytes_are_those_of_flows_that_cross_and_of_parts_that_move(name: str) -> None:
    workload = Scenario("paper", jobs=20, devices=16, load=1.5).workload(seed=2)
    noting = Noting(make_placed_policy(name))
    outcome = simulate_placed(workload, noting, NodeResources.equal(9, 4), seed=2)
    for each in workload.jobs:
        noting._iterate(each.name, each.iterations)
    assert outcome.preemptions.sum() > 0
    assert outcome.sent_bytes.tolist() == pytest.approx([noting.sent[each] for each in outcome.names])


@pytest.mark.parametrize("name", PLACED_POLICIES)
def test_every_policy_ends_all_jobs_and_does_all_the_work(name: str) -> None:
    workload = Scenario("paper", jobs=25).workload(seed=1)
    workload = replace(
        workload, jobs=tuple(replace(j, arrival_seconds=j.arrival_seconds / 40) for j in workload.jobs)
    )
    policy = make_placed_policy(name)
    if name == "mlfs":
        policy = make_placed_policy("mlf_rl")
    nodes, rules = NodeResources.equal(9, 4), PlacedRules(faults=(NodeFault(3, 900.0, 2000.0),))
    one = simulate_placed(workload, policy, nodes, rules, seed=1)
    other = simulate_placed(workload, policy, nodes, rules, seed=1)
    assert one.iterations_done.tolist() == one.iterations_most.tolist()
    assert (one.completion_seconds >= [j.run_seconds for j in workload.jobs]).all()
    assert (one.executed_seconds <= one.completion_seconds + 1e-6).all()
    assert not math.isnan(one.accuracy_at_deadline.sum())
    for each in fields(PlacedOutcome):
        assert np.array_equal(getattr(one, each.name), getattr(other, each.name)), each.name
