"""MLF-RL: what its networks see, sizes that they were not trained on, and files of weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from relaqs_lab.mlf_rl import (
    HIDDEN,
    JOB_FEATURES,
    NODE_FEATURES,
    ByScores,
    MlfRl,
    NodeFeatures,
    ScoringNetwork,
    ScoringNetworks,
    job_features,
    read_networks,
)
from relaqs_lab.simulation.placed.placed_simulator import (
    MoveCosts,
    PlacedRules,
    PlacedStates,
    simulate_placed,
)
from relaqs_lab.simulation.placed.placed_workload import Scenario

from relaqs.placed_policies.queue_walk import QueueWalk
from relaqs.policies.registry import PolicyError, make_placed_policy
from relaqs.sharing.parts import NodeResources, PlacedView
from tests.relaqs.placed_policies.made_up import any_placed_view, jobs_of, parts_of

SMALL = [0.3, 1.0, 1e9, 1e6]


def network(features: int, **weights: float) -> ScoringNetwork:
    """Return a network that adds up some features."""
    names = JOB_FEATURES if features == len(JOB_FEATURES) else NODE_FEATURES
    direct = np.array([weights.get(name, 0.0) for name in names])
    return ScoringNetwork(direct, np.zeros((features, HIDDEN)), np.zeros(HIDDEN), np.zeros(HIDDEN))


def networks(jobs: dict[str, float], nodes: dict[str, float]) -> ScoringNetworks:
    return ScoringNetworks(network(len(JOB_FEATURES), **jobs), network(len(NODE_FEATURES), **nodes))


def saved(made: ScoringNetworks, path: Path) -> str:
    with path.open("wb") as file:
        made.save(file)
    return str(path)


def queue_of(count: int, **columns: object) -> PlacedView:
    """Each job has one part, and all wait for nodes of one device with room for one of them."""
    parts = parts_of([[0.8, 1.0, 1e9, 1e6]] * count, job=np.arange(count))
    return PlacedView(100.0, NodeResources.equal(2, 1), jobs_of(count, **columns), parts)


@given(view=any_placed_view())
@settings(max_examples=50, deadline=None)
def test_features_are_finite_and_of_about_one_size(view: PlacedView) -> None:
    ordered = view.in_order()[0]
    walk = QueueWalk(ordered, 0.9)
    jobs = job_features(walk)
    assert jobs.shape == (len(view.jobs), len(JOB_FEATURES))
    assert np.isfinite(jobs).all()
    assert (np.abs(jobs) <= 2.0).all()
    for part in range(len(view.parts)) if view.nodes.alive.any() else ():
        nodes = NodeFeatures(walk).of(part, np.arange(len(view.nodes)))
        assert nodes.shape == (len(view.nodes), len(NODE_FEATURES))
        assert np.isfinite(nodes).all()
        assert (np.abs(nodes) <= 4.0).all()


def test_jobs_come_by_their_scores_and_not_by_their_arrival(tmp_path: Path) -> None:
    view = queue_of(3, urgency=[1.0, 9.0, 5.0])
    urgent = saved(networks({"urgency": 1.0}, {}), tmp_path / "urgent.npz")
    calm = saved(networks({"urgency": -1.0}, {}), tmp_path / "calm.npz")
    assert (MlfRl(weights=urgent).plan(view).node < 0).tolist() == [True, False, False]
    assert (MlfRl(weights=calm).plan(view).node < 0).tolist() == [False, True, False]


def test_a_part_gets_the_node_with_the_highest_score(tmp_path: Path) -> None:
    parts = parts_of([SMALL] * 2, job=[0, 1], node=[0, -1], device=[0, -1])
    view = PlacedView(100.0, NodeResources.equal(2, 1), jobs_of(2), parts)
    together = saved(networks({}, {"devices": 1.0}), tmp_path / "together.npz")
    apart = saved(networks({}, {"devices": -1.0}), tmp_path / "apart.npz")
    assert MlfRl(weights=together).plan(view).node.tolist() == [0, 0]
    assert MlfRl(weights=apart).plan(view).node.tolist() == [0, 1]


def test_a_score_depends_on_nothing_but_the_candidate() -> None:
    random = np.random.default_rng(0)
    one = ScoringNetwork(
        random.normal(size=5), random.normal(size=(5, 7)), random.normal(size=7), random.normal(size=7)
    )
    features = random.normal(size=(40, 5))
    order = random.permutation(40)
    assert one.scores(features)[order] == pytest.approx(one.scores(features[order]))
    assert one.scores(features[:3]) == pytest.approx(one.scores(features)[:3])


@pytest.mark.parametrize(("nodes", "devices", "most_parts"), [(1, 8, 4), (40, 1, 32), (16, 2, 16)])
def test_it_ends_all_jobs_on_clusters_that_it_was_not_trained_on(
    nodes: int, devices: int, most_parts: int
) -> None:
    """most_parts: of a job, so that each fits alone."""
    workload = Scenario("paper", jobs=16, devices=nodes * devices, load=2.0).workload(7)
    few = replace(workload, jobs=tuple(job for job in workload.jobs if job.devices <= most_parts))
    rules = PlacedRules(until_seconds=3e5)
    outcome = simulate_placed(few, MlfRl(), NodeResources.equal(nodes, devices), rules, seed=7)
    assert len(few.jobs) > 4
    assert np.isfinite(outcome.end_seconds).all()


@pytest.mark.slow
def test_it_plans_for_2474_devices() -> None:
    """On 30 times the nodes and 20 times the jobs of its lessons, no part waits that has room."""
    workload = Scenario("paper", jobs=2000, devices=2474, load=1.0).workload(0)
    at_once = replace(workload, jobs=tuple(replace(job, arrival_seconds=0.0) for job in workload.jobs))
    states = PlacedStates(at_once, NodeResources.equal(310, 8), MoveCosts(), 0.2, 0)
    view = states.view(states.active(0.0), 0.0, 60.0)
    policy = MlfRl()
    plan = policy.plan(view)
    waits = plan.node < 0
    assert waits.any()
    parts = replace(view.parts, node=plan.node, device=plan.device)
    parts = replace(parts, queued_since_seconds=np.where(waits, 0.0, np.nan))
    again = policy.plan(replace(view, parts=parts))
    assert again.node.tolist() == plan.node.tolist()


def test_rivals_are_noted_only_where_they_are_asked_for() -> None:
    view = queue_of(4, urgency=[1.0, 9.0, 5.0, 7.0])
    noted, silent = QueueWalk(view, 0.9, notes_turns=True), QueueWalk(view, 0.9)
    for walk in (noted, silent):
        walk.plan(ByScores(networks({"urgency": 1.0}, {}), walk))
    assert [(job, rivals.tolist()) for job, rivals in noted.turns] == [(1, [1, 3, 2, 0]), (3, [3, 2, 0])]
    assert [job for job, _ in silent.turns] == [1, 3]
    assert all(len(rivals) == 0 for _, rivals in silent.turns)


def test_weights_survive_being_saved(tmp_path: Path) -> None:
    shipped = read_networks()
    again = read_networks(saved(shipped, tmp_path / "again.npz"))
    for which in ("jobs", "nodes"):
        for name in ("direct", "inward", "shift", "out"):
            kept, read = getattr(getattr(shipped, which), name), getattr(getattr(again, which), name)
            assert kept.tolist() == read.tolist()
    assert (tmp_path / "again.npz").stat().st_size <= 200_000


def test_a_file_without_weights_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no weights")
    (tmp_path / "half.npz").write_bytes(b"PK\x03\x04 half a file")
    np.savez(tmp_path / "other.npz", jobs_direct=np.zeros(3))
    old = ScoringNetworks(network(len(JOB_FEATURES)), network(len(NODE_FEATURES)))
    narrow = replace(old.nodes, direct=np.zeros(2), inward=np.zeros((2, HIDDEN)))
    saved(replace(old, nodes=narrow), tmp_path / "old.npz")
    said = {
        "none.npz": "No such file",
        "text.npz": "no weights of mlf_rl",
        "half.npz": "no weights of mlf_rl",
        "other.npz": "jobs_inward",
        "old.npz": "has 2 features, and this version has 13",
    }
    for name, words in said.items():
        with pytest.raises(PolicyError, match="relaqs learn --out FILE") as error:
            make_placed_policy("mlf_rl", weights=str(tmp_path / name))
        assert words in str(error.value)
        assert name in str(error.value)


@pytest.mark.parametrize("weights", [{"out": np.zeros(3)}, {"out": np.full(HIDDEN, np.nan)}])
def test_weights_of_no_network_are_named(weights: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(weights))} has shape"):
        replace(network(len(JOB_FEATURES)), **weights)
