"""How MLF-RL learns: draws and returns by numbers, lessons that must be learned, and what a stop leaves."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from relaqs_lab.learning import lessons
from relaqs_lab.learning.episodes import (
    Aims,
    Choice,
    Episode,
    EpisodeSetting,
    returns_from,
    shown_by_mlf_h,
    tried,
)
from relaqs_lab.learning.lessons import Lessons, learn
from relaqs_lab.learning.torch_scoring import NetworkLearner
from relaqs_lab.mlf_rl import JOB_FEATURES, NODE_FEATURES, ScoringNetworks, read_networks
from relaqs_lab.simulation.placed.placed_simulator import PlacedOutcome
from relaqs_lab.simulation.placed.placed_study import PlacedCase
from relaqs_lab.simulation.placed.placed_workload import Scenario

from relaqs.cli import program

FEW = EpisodeSetting(Scenario("paper", jobs=16, devices=32, load=4.0), nodes=8, stops=True)
QUICK = Lessons(settings=(FEW,), shown=1, imitation_steps=20, updates=1, trials=2, checks=1, check_every=1)


def outcome_of(end: list[float], **columns: list[float]) -> PlacedOutcome:
    count = len(end)
    usual = {
        "arrival_seconds": [0.0] * count,
        "deadline_seconds": [100.0] * count,
        "urgency": [5.0] * count,
        "executed_seconds": [1.0] * count,
        "accuracy": [0.8] * count,
        "accuracy_at_deadline": [0.8] * count,
        "accuracy_required": [0.5] * count,
        "iterations_done": [10.0] * count,
        "iterations_most": [10.0] * count,
        "stopped": [0.0] * count,
        "preemptions": [0.0] * count,
        "sent_bytes": [0.0] * count,
    }
    made = {name: np.array(values) for name, values in (usual | columns).items()}
    return PlacedOutcome(
        names=tuple(map(str, range(count))),
        end_seconds=np.array(end),
        overloads=0,
        placed_moves=0,
        decision_seconds=np.zeros(1),
        **made,  # type: ignore[arg-type]
    )


def test_a_return_is_what_happens_from_a_moment_on() -> None:
    """One job is there from 0 to 50 and is in time, and one from 20 on, which does not end before 200."""
    outcome = outcome_of([50.0, math.nan], arrival_seconds=[0.0, 20.0], accuracy_at_deadline=[0.8, 0.0])
    episode = Episode([], [], outcome, solo_seconds=10.0, until_seconds=200.0)
    aims = Aims(completion=0.5, deadline=1.0, accuracy_met=0.25, accuracy=0.5, horizon_seconds=1e9)
    earned = 1.0 + 0.25 + 0.5 * 0.8
    cost = 0.5 / 10.0
    values = returns_from(episode, np.array([0.0, 30.0, 60.0, 200.0]), aims)
    wanted = [earned - cost * (50 + 180), earned - cost * (20 + 170), -cost * 140, 0.0]
    assert values.tolist() == pytest.approx(wanted, abs=1e-4)


def test_what_comes_later_counts_less() -> None:
    episode = Episode([], [], outcome_of([50.0]), solo_seconds=10.0, until_seconds=200.0)
    aims = Aims(completion=0.0, deadline=1.0, accuracy_met=0.0, accuracy=0.0, horizon_seconds=50.0)
    assert returns_from(episode, np.array([0.0, 25.0]), aims).tolist() == pytest.approx(
        [math.exp(-1.0), math.exp(-0.5)]
    )


def test_trials_are_drawn_by_the_softmax_of_the_scores() -> None:
    """The first job of each queue, over many queues: its mean probability and its frequency must agree."""
    networks = read_networks()
    likely, first = [], []
    for trial in range(8):
        for choice in tried(FEW, 0, networks, trial).jobs:
            scores = networks.jobs.scores(choice.features)
            shares = np.exp(scores - scores.max())
            shares /= shares.sum()
            best = int(scores.argmax())
            likely.append(shares[best])
            first.append(choice.chosen == best)
    expected, seen = np.sum(likely), np.sum(first)
    deviation = math.sqrt(float(np.sum(np.array(likely) * (1 - np.array(likely)))))
    assert len(likely) > 40
    assert abs(seen - expected) < 4.0 * deviation  # wrong once in 16,000 draws


def test_the_best_is_taken_where_nothing_is_drawn() -> None:
    networks = read_networks()
    one, other = tried(FEW, 0, networks, None), tried(FEW, 0, networks, None)
    assert one.outcome.end_seconds.tolist() == other.outcome.end_seconds.tolist()
    for choice in one.nodes:
        assert choice.chosen == networks.nodes.scores(choice.features).argmax()


def test_what_mlf_h_shows_is_what_it_does() -> None:
    """It nearly always takes the node that is nearest to its ideal one. Slowing by a move is in it, too."""
    episode = shown_by_mlf_h(FEW, 0)
    distance = NODE_FEATURES.index("distance")
    assert len(episode.nodes) > 20
    for choice in episode.nodes:
        assert choice.features[choice.chosen, distance] == choice.features[:, distance].min()


def made_up_choices(random: np.random.Generator, count: int, width: int, best: int) -> list[Choice]:
    """Return choices among two to six candidates, in which the one with most of a feature was chosen."""
    made = []
    for _ in range(count):
        features = random.uniform(0.0, 1.0, (int(random.integers(2, 7)), width))
        made.append(Choice(0.0, features, int(features[:, best].argmax())))
    return made


def hits(networks: ScoringNetworks, choices: list[Choice]) -> float:
    return float(np.mean([networks.jobs.scores(each.features).argmax() == each.chosen for each in choices]))


def test_imitation_finds_what_choices_were_made_by() -> None:
    random = np.random.default_rng(1)
    width = len(JOB_FEATURES)
    learner = NetworkLearner(0)
    learner.imitate(made_up_choices(random, 200, width, 3), [], steps=80, rate=0.03)
    fresh = made_up_choices(random, 300, width, 3)
    assert hits(learner.networks, fresh) > 0.85


def test_the_policy_gradient_finds_what_is_rewarded() -> None:
    """Each trial is worth the feature of the candidate that was drawn, beside the mean of all of them."""
    random = np.random.default_rng(2)
    width = len(JOB_FEATURES)
    learner = NetworkLearner(0)
    gradient = learner.improver(rate=0.03, entropy=0.0)
    before = hits(learner.networks, made_up_choices(random, 300, width, 5))
    for _ in range(80):
        drawn, worth = [], []
        for choice in made_up_choices(random, 60, width, 5):
            scores = learner.networks.jobs.scores(choice.features)
            at = int((scores + random.gumbel(size=len(scores))).argmax())
            drawn.append(Choice(0.0, choice.features, at))
            worth.append(choice.features[at, 5] - choice.features[:, 5].mean())
        gradient.step(drawn, np.array(worth) / np.std(worth), [], np.empty(0))
    assert hits(learner.networks, made_up_choices(random, 300, width, 5)) > max(2 * before, 0.7)


def test_equal_seeds_learn_equal_weights_and_progress_is_told() -> None:
    told: list[float] = []
    one, other = learn(QUICK, 3, lambda share, _: told.append(share)), learn(QUICK, 3, lambda *_: None)
    assert one.networks.jobs.inward.tolist() == other.networks.jobs.inward.tolist()
    assert one.networks.nodes.out.tolist() == other.networks.nodes.out.tolist()
    assert told == sorted(told)
    assert (told[0], len(one.checks)) == (0.0, 2)
    assert one.checks[one.kept][1] == max(worth for _, worth in one.checks)


@pytest.mark.parametrize("wrong", [{"settings": ()}, {"updates": -1}, {"trials": 1}, {"checks": 0}])
def test_lessons_that_cannot_be_held_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Lessons(**wrong)  # type: ignore[arg-type]


def test_a_stop_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lessons, "learn", stopped)
    there, new = tmp_path / "there.npz", tmp_path / "new.npz"
    there.write_bytes(b"weights of before")
    for path in (there, new):
        assert CliRunner().invoke(program, ["learn", "--out", str(path)]).exit_code != 0
    assert [path.name for path in tmp_path.iterdir()] == ["there.npz"]
    assert there.read_bytes() == b"weights of before"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--out", "nowhere/new.npz"), "there is no folder"),
        (("--seed", "1000"), "1000 is not in the range 0<=x<=999"),
        (("--updates", "1001"), "1001 is not in the range 0<=x<=1000"),
        (("mlf_h",), "'mlf_h' is not 'mlf_rl'"),
    ],
)
def test_what_is_wrong_is_said_before_lessons_begin(
    arguments: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lessons, "learn", lambda *_: pytest.fail("lessons have begun"))
    ended = CliRunner().invoke(program, ["learn", *arguments])
    assert ended.exit_code == 2
    assert says in " ".join(ended.output.split())


def test_a_record_tells_weights_by_what_they_are(tmp_path: Path) -> None:
    """A file of the same name may be learned anew. A study that goes on must not take it for the old."""
    path = tmp_path / "new.npz"
    cases = []
    for seed in (0, 1):
        with path.open("wb") as file:
            NetworkLearner(seed).networks.save(file)
        cases.append(
            PlacedCase("mlf_rl", 0, Scenario("paper", jobs=6), parameters=(("weights", str(path)),)).key
        )
    assert cases[0] != cases[1]
    assert "weights=new.npz " in str(cases[0])


def test_what_was_learned_is_written_and_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lessons, "Lessons", lambda updates: QUICK)
    path = tmp_path / "new.npz"
    ended = CliRunner().invoke(program, ["learn", "mlf_rl", "--out", str(path)])
    assert ended.exit_code == 0, ended.output
    assert "mlf_h  return" in ended.output
    assert ended.output.count("kept") == 1
    arguments = ["simulate", "--placed", "paper:6", "--nodes", "8", "--policies", "mlf_rl", "--seeds", "1"]
    used = CliRunner().invoke(program, [*arguments, "--processes", "1", "--weights", str(path)])
    assert used.exit_code == 0, used.output
    array, damaged = tmp_path / "one.npy", bytearray(path.read_bytes())
    np.save(array, np.zeros(3))
    damaged[len(damaged) // 3] ^= 255
    (tmp_path / "damaged.npz").write_bytes(damaged)
    for other in (array, tmp_path / "damaged.npz"):
        with pytest.raises(ValueError, match=f"{other.name} holds no weights of mlf_rl"):
            read_networks(str(other))
    path.write_bytes(b"no weights")
    refused = CliRunner().invoke(program, [*arguments, "--weights", str(path)])
    assert refused.exit_code == 2
    assert "holds no weights of mlf_rl" in " ".join(refused.output.split())
