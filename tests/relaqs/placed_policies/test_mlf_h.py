"""The equations and rules of MLF-H by numbers computed by hand, and each reading of the paper by a case."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from relaqs_lab.mlf_rl import PlacedLoadControl

from relaqs.placed_policies.mlf_h import MlfH, PartPriority, with_descendants
from relaqs.placed_policies.queue_walk import (
    Traffic,
    cluster_load,
    host_distances,
    mover_distances,
    take_movers,
)
from relaqs.sharing.parts import Load, NodeResources, Parts, PlacedView
from tests.relaqs.placed_policies.made_up import HOUR, jobs_of, parts_of

SMALL = [0.3, 1.0, 1e9, 1e6]
CHAIN = ((0, 1), (1, 2), (2, 3))


def chain_view(seconds: float = 0.0, **columns: object) -> PlacedView:
    """A chain of four parts: six hours to the deadline, 1.5 h left of each, 15 minutes in the queue."""
    parts = parts_of(
        [SMALL] * 4,
        CHAIN,
        size_share=[0.1, 0.2, 0.3, 0.4],
        alone_seconds=[54.0] * 4,
        queued_since_seconds=[seconds - 0.25 * HOUR] * 4,
    )
    usual = {"iterations_most": 103.0, "deadline_seconds": seconds + 6 * HOUR}
    return PlacedView(seconds, NodeResources.equal(1, 4), jobs_of(1, **(usual | columns)), parts)


def layers(count: int, width: int) -> Parts:
    edges = [
        (a, b) for a in range(count * width) for b in range(count * width) if b // width == a // width + 1
    ]
    return parts_of([SMALL] * (count * width), edges)


def test_learning_is_discounted_along_a_chain() -> None:
    view = chain_view()
    priority = PartPriority()
    total = with_descendants(view.parts, priority.learning(view), 0.8)
    assert total.tolist() == pytest.approx([0.1539375, 0.163125, 0.1453125, 0.09375])


def test_computing_and_both_together() -> None:
    """The deadline of a part is earlier by what is below it. Here that is let count for nothing."""
    view = chain_view()
    short = replace(view, parts=replace(view.parts, alone_seconds=np.full(4, 1e-6)))
    own = PartPriority(gamma_remaining=0.0).computing(short) + 0.3 / 1.5
    assert own.tolist() == pytest.approx([0.3375] * 4)
    total = with_descendants(view.parts, own, 0.8)
    assert total.tolist() == pytest.approx([0.9963, 0.8235, 0.6075, 0.3375])
    learning = with_descendants(view.parts, PartPriority().learning(view), 0.8)
    assert (0.3 * learning + 0.7 * total).tolist() == pytest.approx(
        [0.74359125, 0.6253875, 0.46884375, 0.264375]
    )


def test_a_part_s_own_deadline_is_before_what_follows_it() -> None:
    view = chain_view()
    waiting_and_left = 0.35 * 0.25 + 0.3 / 1.5
    expected = [0.3 / (6 - below * 54 / HOUR) + waiting_and_left for below in (3, 2, 1, 0)]
    assert PartPriority().computing(view).tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("parts", "all_paths", "once"),
    [
        (parts_of([SMALL] * 4, [(0, 1), (0, 2), (1, 3), (2, 3)]), 3.88, 3.24),
        (layers(8, 4), (3.2**8 - 1) / 2.2, 1 + 16 * (1 - 0.8**7)),
        (layers(32, 1), (1 - 0.8**32) / 0.2, (1 - 0.8**32) / 0.2),
    ],
)
def test_descendants_by_all_paths_and_once_each(parts: Parts, all_paths: float, once: float) -> None:
    ones = np.ones(len(parts))
    assert with_descendants(parts, ones, 0.8)[0] == pytest.approx(all_paths)
    assert with_descendants(parts, ones, 0.8, "once")[0] == pytest.approx(once)


def test_the_ideal_host() -> None:
    hosts = np.array([[0.5, 0.4, 0.2, 0.6], [0.3, 0.6, 0.1, 0.7], [0.2, 0.2, 0.5, 0.4]])
    exchanged, stays, under = np.array([150e6, 0.0, 75e6]), np.zeros(3), np.ones(3, dtype=np.bool_)
    near = host_distances(hosts, exchanged, stays, under)
    assert near.tolist() == pytest.approx([0.424264, 1.122497, 0.640312], abs=1e-6)
    raw = host_distances(hosts, exchanged, stays, under, bytes_relative=False)
    assert raw.tolist() == pytest.approx([0.424264, 150.000867, 75.001067], abs=1e-6)


def test_the_ideal_mover_uses_much_of_what_is_short_and_talks_to_nobody() -> None:
    uses = np.array([[0.2, 0.5, 0.1, 0.0], [0.2, 0.5, 0.1, 0.0], [0.2, 0.1, 0.1, 0.0]])
    short = np.array([False, True, False, False])
    near = mover_distances(uses, np.array([10e6, 0.0, 0.0]), short)
    assert near.tolist() == pytest.approx([1.0, 0.0, 0.4])


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"iterations_done": 0.0}, 5.0),  # I = 1
        ({"iterations_done": 1.0, "loss_fallen_last": 0.0}, 2.5),  # I = 2: nothing to compare with
        ({"loss_fallen_last": -0.1}, 0.0),  # the loss rose
        ({"loss_fallen_last": 3.0}, 1.25),  # it fell by more than in all
        ({"loss_fallen": 0.0}, 0.0),  # as high as at first
        ({"loss_fallen_last": math.nan, "loss_fallen": math.nan}, 1.25),
    ],
)
def test_the_share_of_the_last_fall(columns: dict[str, float], expected: float) -> None:
    view = chain_view(**columns)
    assert PartPriority().learning(view)[3] == pytest.approx(expected * 0.4)


@pytest.mark.parametrize(
    ("late", "hours", "expected"),
    [("none", -1.0, 0.0), ("keep", -1.0, 60.0), ("none", 0.001, 60.0), ("none", 2.0, 0.5)],
)
def test_the_term_of_the_deadline(late: str, hours: float, expected: float) -> None:
    view = chain_view(10 * HOUR, deadline_seconds=(10 + hours) * HOUR)
    only = PartPriority(gamma_deadline=1.0, gamma_remaining=0.0, gamma_waiting=0.0, late=late)
    assert only.computing(view)[3] == pytest.approx(expected)


def test_nothing_left_counts_as_a_minute_left() -> None:
    only = PartPriority(gamma_deadline=0.0, gamma_remaining=1.0, gamma_waiting=0.0)
    assert only.computing(chain_view(iterations_done=103.0)).tolist() == pytest.approx([60.0] * 4)


def test_only_what_waits_has_waited() -> None:
    view = chain_view()
    parts = replace(view.parts, node=np.array([0, -1, -1, -1]), device=np.array([0, -1, -1, -1]))
    parts = replace(parts, queued_since_seconds=np.array([math.nan, -HOUR, 0.0, -2 * HOUR]))
    only = PartPriority(gamma_deadline=0.0, gamma_remaining=0.0, gamma_waiting=1.0)
    assert only.computing(replace(view, parts=parts)).tolist() == pytest.approx([0.0, 1.0, 0.0, 2.0])


def test_in_seconds_waiting_alone_counts() -> None:
    """Six hours to go, 1.5 h left, 15 min waited: the unit decides which term is the largest."""

    def terms(unit: float) -> list[float]:
        names = ("gamma_deadline", "gamma_remaining", "gamma_waiting")
        weights = {"gamma_deadline": 0.3, "gamma_remaining": 0.3, "gamma_waiting": 0.35}
        view = chain_view()
        return [
            float(
                PartPriority(
                    **(dict.fromkeys(names, 0.0) | {name: weights[name]}), unit_seconds=unit
                ).computing(view)[3]  # type: ignore[arg-type]
            )
            for name in names
        ]

    assert terms(1.0) == pytest.approx([0.3 / 21_600, 0.3 / 5_400, 315.0])
    assert terms(HOUR) == pytest.approx([0.05, 0.2, 0.0875])


def test_urgency_can_be_left_out() -> None:
    view = chain_view()
    assert PartPriority(uses_urgency=False).learning(view)[3] == pytest.approx(0.4 / 4 * 0.1875)


def test_a_server_comes_first_and_needs_no_device() -> None:
    server = [0.0, 1.0, 1e9, 1e6]
    parts = parts_of([SMALL, server], flows=[(0, 1)], flow_bytes=[1e6], is_server=[False, True])
    view = PlacedView(0.0, NodeResources.equal(1, 1), jobs_of(1), parts)
    assert PartPriority().of_parts(view)[1] == math.inf
    plan = MlfH(gang=False).plan(view)
    assert plan.node.tolist() == [0, 0]
    assert plan.device.tolist() == [0, -1]


@pytest.mark.parametrize(("relative", "node"), [(True, 1), (False, 0)])
def test_bytes_in_megabytes_decide_alone(relative: bool, node: int) -> None:
    """Part 1 exchanges 14 MB with part 0, and 10 MB with part 2, on an emptier node."""
    parts = parts_of(
        [[0.8, 7.0, 1e9, 1e6], [0.1, 0.1, 1e9, 1e6], [0.1, 0.1, 1e9, 1e6]],
        flows=[(0, 1), (1, 2)],
        flow_bytes=[14e6, 10e6],
        node=[0, -1, 1],
        device=[0, -1, 0],
    )
    nodes = NodeResources.equal(2, 1, cores=8.0)
    plan = MlfH(gang=False, bytes_relative=relative, migrates=False).plan(
        PlacedView(0.0, nodes, jobs_of(1), parts)
    )
    alone = MlfH(gang=False, uses_traffic=False).plan(PlacedView(0.0, nodes, jobs_of(1), parts))
    assert alone.node[1] == 1
    assert plan.node[1] == node


def test_a_part_without_a_host_is_passed_over() -> None:
    parts = parts_of(
        [[0.2, 40.0, 1e9, 1e6], SMALL], job=[0, 1], size_share=[1.0, 0.1], queued_since_seconds=[0.0, 0.0]
    )
    view = PlacedView(60.0, NodeResources.equal(1, 1), jobs_of(2, urgency=[10.0, 1.0]), parts)
    assert MlfH().plan(view).node.tolist() == [-1, 0]


def test_a_part_above_the_limit_has_an_empty_device_and_is_left_there() -> None:
    parts = parts_of([[0.95, 1.0, 1e9, 1e6]] * 2, job=[0, 1])
    view = PlacedView(60.0, NodeResources.equal(1, 2), jobs_of(2), parts)
    plan = MlfH().plan(view)
    assert sorted(plan.device.tolist()) == [0, 1]
    there = replace(parts, node=plan.node, device=plan.device, queued_since_seconds=np.full(2, math.nan))
    assert MlfH().plan(replace(view, parts=there)).device.tolist() == plan.device.tolist()


@pytest.mark.parametrize(("lowest", "leaves"), [(0.1, 2), (1.0, 0)])
def test_of_three_parts_on_a_device_the_lowest_tenth_is_one(lowest: float, leaves: int) -> None:
    """The part of the lowest priority leaves, though another is nearer to the ideal mover."""
    parts = parts_of(
        [[0.5, 1.0, 1e9, 0.0], [0.3, 1.0, 1e9, 0.0], [0.2, 1.0, 1e9, 0.0]], node=[0, 0, 0], device=[0, 0, 0]
    )
    load = Load(PlacedView(0.0, NodeResources.equal(1, 1), jobs_of(1), parts))
    left = take_movers(load, np.array([3.0, 2.0, 1.0]), Traffic(parts), 0.9, lowest_share=lowest)
    assert left == [leaves]


@pytest.mark.parametrize(
    ("gang", "placed"),
    [(True, [False, False, True]), (False, [True, True, False])],
)
def test_movers_without_a_host_wait_and_a_gang_waits_whole(gang: bool, placed: list[bool]) -> None:
    """Two parts of a job and one of another on one device. With gangs, the job of two makes way."""
    parts = parts_of(
        [[0.3, 1.0, 1e9, 0.0], [0.3, 1.0, 1e9, 0.0], [0.4, 1.0, 1e9, 0.0]],
        job=[0, 0, 1],
        node=[0] * 3,
        device=[0] * 3,
        size_share=[0.1, 0.1, 1.0] if gang else [1.0, 1.0, 0.1],
    )
    view = PlacedView(0.0, NodeResources.equal(1, 1), jobs_of(2), parts)
    assert (MlfH(gang=gang).plan(view).node >= 0).tolist() == placed
    assert (MlfH(gang=gang, migrates=False).plan(view).node == 0).all()


def test_a_gang_holds_nothing_until_it_is_whole() -> None:
    parts = parts_of([[0.8, 1.0, 1e9, 0.0]] * 3, [(0, 1), (1, 2)])
    view = PlacedView(0.0, NodeResources.equal(1, 2), jobs_of(1), parts)
    assert (MlfH(gang=True).plan(view).node < 0).all()
    assert (MlfH(gang=False).plan(view).node >= 0).sum() == 2


def test_four_resources_at_45_percent_are_a_load_of_90() -> None:
    capacity = np.array([[1.0, 10.0, 1e9, 1e9]])
    nodes = NodeResources(("a",), capacity, np.array([True]))
    parts = parts_of((0.45 * capacity).tolist(), node=[0], device=[0])
    load = Load(PlacedView(0.0, nodes, jobs_of(1), parts))
    assert cluster_load(load) == pytest.approx(0.9)
    assert cluster_load(load, normalised=True) == pytest.approx(0.45)


@pytest.mark.parametrize(
    ("waits", "accuracy", "gain", "may", "stops"),
    [
        (True, 0.9, 0.1, True, True),  # a part waits: the required accuracy is enough
        (True, 0.8, 0.1, True, False),
        (True, 0.9, 0.1, False, False),
        (False, 0.95, 0.1, True, False),  # there is room, and it still rises
        (False, 0.95, 0.001, True, True),
        (False, math.nan, math.nan, True, False),
    ],
)
def test_jobs_stop_early(waits: bool, accuracy: float, gain: float, may: bool, stops: bool) -> None:
    demand = [SMALL, [0.2, 99.0, 1e9, 0.0]] if waits else [SMALL]
    count = len(demand)
    parts = parts_of(demand, job=list(range(count)))
    jobs = jobs_of(
        count, accuracy=[accuracy, 0.1][:count], accuracy_gain=gain, may_stop=may, accuracy_required=0.85
    )
    plan = PlacedLoadControl(MlfH()).plan(PlacedView(0.0, NodeResources.equal(1, 1), jobs, parts))
    assert bool(plan.stops[0]) is stops
