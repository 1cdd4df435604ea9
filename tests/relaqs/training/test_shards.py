"""Parameters in shards without a cluster: the same bits as in one piece, in whatever order messages come."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.linear_model
from relaqs_bootstrap.arrays import FloatArray

import relaqs.training.sharded.holder
import relaqs.training.sharded.shards
from relaqs import ArgumentError, DataError, Session, connect
from relaqs.executors.files import FOLDER_VARIABLE
from relaqs.jobs.executor import Haste, Letter, PeerForgotError, PeerLostError
from relaqs.training import (
    KMeans,
    Lasso,
    LinearSVM,
    MatrixFactorisation,
    Rows,
    SoftmaxRegression,
    TopicModel,
    WholeParameters,
)
from relaqs.training.passes import add_sums, in_pairs
from relaqs.training.protocol import ShardedDescent, ShardedJob
from relaqs.training.rows import profile_of
from relaqs.training.sharded.holder import SKIPPED_PASSES, ShardHolder, SubtaskClock, TaskSeconds
from relaqs.training.sharded.shards import Shard, ShardMap
from tests.relaqs.training.conftest import Data

STEPS = 12
SENDERS = 5
DELAY_SECONDS = 0.002  # at most, by which a letter comes late


def drawn_rows(seed: int) -> Rows:
    draws = np.random.default_rng(seed)
    features = draws.standard_normal((400, 7)) @ draws.standard_normal((7, 7))
    return Rows(
        features, (features[:, 0] + draws.standard_normal(400) > 0).astype(np.int64) + (features[:, 1] > 1)
    )


JOBS: dict[str, ShardedJob] = {
    "softmax": SoftmaxRegression("", "y", strength=0.1),
    "lasso": Lasso("", "y", alpha=0.05),
    "k_means": KMeans("", clusters=5),
    "matrix_factorisation": MatrixFactorisation("", components=3),
    "topic_model": TopicModel("", topics=3),
}
COUNTED = ("matrix_factorisation", "topic_model")  # which take no values below 0


def rows_of(name: str, seed: int) -> Rows:
    """Return rows that a job takes."""
    rows = drawn_rows(seed)
    return Rows(np.floor(2 * np.abs(rows.features)), None) if name in COUNTED else rows


def parts_of(rows: Rows) -> list[Rows]:
    return [rows.part(slice(80 * i, 80 * (i + 1))) for i in range(SENDERS)]


def whole_run(job: ShardedJob, descent: ShardedDescent, rows: Rows) -> tuple[FloatArray, float]:
    """Return the parameters after some steps of client mode, and the last loss."""
    run = WholeParameters(descent)
    for _ in range(STEPS):
        last = run.fold(in_pairs([job.partial(run.model, part) for part in parts_of(rows)], add_sums))
    return run.state[0], last.loss


class Post:
    """Peers in one process, whose letters come late by a seed. Those who died do not answer."""

    def __init__(self, seed: int) -> None:
        self._draws = np.random.default_rng(seed)
        self.holders: dict[str, ShardHolder] = {}
        self.dead: set[str] = set()
        self.asked: list[tuple[str, str]] = []  # who asked, and about what

    def holder(self, address: str) -> ShardHolder:
        return self.holders.setdefault(address, ShardHolder(_Door(self, address)))

    async def carry(self, address: str, letter: Letter) -> Letter:
        await asyncio.sleep(self._draws.uniform(0, DELAY_SECONDS))
        if address in self.dead:
            raise PeerLostError(address, "it died")
        answer, _ = await self.holder(address).answer(letter)
        await asyncio.sleep(self._draws.uniform(0, DELAY_SECONDS))
        return answer


class _Door:
    def __init__(self, post: Post, address: str) -> None:
        self._post = post
        self.address = address

    async def ask(self, address: str, letter: Letter, haste: Haste, limit_seconds: float) -> Letter:
        self._post.asked.append((self.address, letter.subject))
        return await self._post.carry(address, letter)


async def one_task(
    job: ShardedJob,
    holder: ShardHolder,
    cut: ShardMap,
    version: int,
    sender: int,
    part: Rows,
    pace: tuple[float, ...],
) -> tuple[FloatArray, ...]:
    """Do what `IterateWork` does, on a holder."""
    pulled = await holder.pull(cut, version)
    gradient, *totals = job.partial(pulled.descent.model(pulled.values), part)
    await holder.push(cut, version, sender, gradient, pace)
    return (*totals, np.asarray(pulled.descent.penalty(pulled.values)))


async def sharded_run(
    job: ShardedJob, descent: ShardedDescent, rows: Rows, owners: int, seed: int, budget_bytes: int = 1 << 40
) -> tuple[FloatArray, float]:
    """Return the parameters after some steps in shards, and the last loss. Tasks run on any worker."""
    post, draws = Post(seed), np.random.default_rng(seed)
    addresses = tuple(f"tcp://{i}" for i in range(owners))
    cut = ShardMap("run", 0, addresses, *descent.shape, SENDERS, budget_bytes=budget_bytes)
    await post.holder(addresses[-1]).open(cut, descent, 0, None)
    course = descent.begin()
    for step in range(STEPS):
        where = [
            post.holder(f"tcp://{draws.integers(owners + 1)}") for _ in range(SENDERS)
        ]  # one owns nothing
        tasks = [
            one_task(job, where[i], cut, step, i, part, course.pace) for i, part in enumerate(parts_of(rows))
        ]
        found = await asyncio.gather(*tasks)
        again = post.holder(addresses[0])  # a task whose worker died is run twice
        await one_task(job, again, cut, step, 0, parts_of(rows)[0], course.pace)
        totals = in_pairs([sums[:-1] for sums in found], add_sums)
        course = descent.judge(course, totals, float(found[0][-1]))
    values, *_ = await post.holder("tcp://0").fetch(cut, STEPS)
    await post.holder("tcp://0").drop(cut)
    assert all(not post.holder(address).runs for address in addresses)
    return values, course.loss


@pytest.mark.parametrize("owners", [1, 2, 3, 4])
@pytest.mark.parametrize("name", JOBS)
def test_shards_have_the_bits_of_whole_parameters(name: str, owners: int) -> None:
    job, rows = JOBS[name], rows_of(name, 7)
    descent = job.descent(profile_of(rows, tuple("abcdefg"), 100, seed=0))
    values, loss = whole_run(job, descent, rows)
    in_shards, its_loss = asyncio.run(sharded_run(job, descent, rows, owners, seed=owners))
    assert np.array_equal(in_shards, values)
    assert its_loss == loss


def test_an_owner_without_a_task_fetches_the_next_version_ahead_too() -> None:
    job, rows = JOBS["softmax"], rows_of("softmax", 7)
    descent = job.descent(profile_of(rows, tuple("abcdefg"), 100, seed=0))

    async def one_step() -> list[tuple[str, str]]:
        post = Post(seed=5)
        cut = ShardMap("run", 0, ("tcp://0", "tcp://1"), *descent.shape, SENDERS)
        await post.holder("tcp://0").open(cut, descent, 0, None)
        pace = descent.begin().pace
        for sender, part in enumerate(parts_of(rows)):
            await one_task(job, post.holder("tcp://0"), cut, 0, sender, part, pace)
        await post.holder("tcp://0").pull(cut, 1)  # meanwhile the other one has asked
        asked = [subject for who, subject in post.asked if who == "tcp://1"]
        await post.holder("tcp://1").pull(cut, 1)
        assert [subject for who, subject in post.asked if who == "tcp://1"] == asked
        return post.asked

    asked = asyncio.run(one_step())
    assert asked.count(("tcp://1", "values")) == 1


def test_parameters_that_take_long_to_come_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaqs.training.sharded.holder, "DEMAND_SECONDS", 0.01)
    monkeypatch.setattr(relaqs.training.sharded.holder, "LEAST_BYTES_PER_SECOND", 1.0)  # 64 s for all of them
    monkeypatch.setattr("tests.relaqs.training.test_shards.DELAY_SECONDS", 0.2)

    async def one_step() -> list[tuple[str, str]]:
        post, cut, descent = await asyncio.to_thread(opened)
        part = parts_of(drawn_rows(1))[0]
        await one_task(JOBS["lasso"], post.holder("tcp://0"), cut, 0, 0, part, descent.begin().pace)
        await post.holder("tcp://0").pull(cut, 1)
        return post.asked

    asked = asyncio.run(one_step())
    assert asked.count(("tcp://0", "values")) == 2  # each version once, of the one other owner


@pytest.mark.parametrize("name", JOBS)
def test_parameters_in_files_have_the_same_bits(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(relaqs.training.sharded.shards, "SMALL_BYTES", 0)
    job, rows = JOBS[name], rows_of(name, 7)
    descent = job.descent(profile_of(rows, tuple("abcdefg"), 100, seed=0))
    values, loss = whole_run(job, descent, rows)
    in_files, its_loss = asyncio.run(sharded_run(job, descent, rows, 2, seed=0, budget_bytes=0))
    assert np.array_equal(in_files, values)
    assert its_loss == loss


@pytest.mark.parametrize("seed", range(5))
def test_a_shard_adds_in_one_order_whatever_comes_first(seed: int) -> None:
    job, rows = JOBS["softmax"], drawn_rows(3)
    descent = job.descent(profile_of(rows, tuple("abcdefg"), 100, seed=0))
    draws = np.random.default_rng(0)
    parts = [draws.standard_normal(descent.shape) * 10.0**i for i in range(SENDERS)]

    def after(order: Sequence[int]) -> FloatArray:
        shard = Shard(descent, slice(0, 8), 0, descent.first(slice(0, 8)), SENDERS)
        for sender in order:
            assert shard.push(sender, 0, parts[sender], (0.1, 0.5))
        values = shard.values(1)
        assert values is not None
        return values

    shuffled = np.random.default_rng(seed).permutation(SENDERS)
    twice = [*shuffled[:3], *shuffled]
    assert np.array_equal(after(twice), after(range(SENDERS)))


def test_every_row_has_one_owner() -> None:
    for rows in (1, 2, 7, 64):
        for owners in range(1, rows + 1):
            cut = ShardMap("run", 0, tuple(map(str, range(owners))), rows, 1, 1)
            ranges = [cut.rows_of(shard) for shard in range(owners)]
            assert [row for each in ranges for row in range(each.start, each.stop)] == list(range(rows))
            assert {each.stop - each.start for each in ranges} <= {rows // owners, -(-rows // owners)}


def opened(budget_bytes: int = 1 << 40) -> tuple[Post, ShardMap, ShardedDescent]:
    descent = JOBS["lasso"].descent(profile_of(drawn_rows(1), tuple("abcdefg"), 100, seed=0))
    post = Post(0)
    owners = ("tcp://0", "tcp://1")
    cut = ShardMap("run", 0, owners, *descent.shape, senders=1, idle_seconds=0.0, budget_bytes=budget_bytes)
    asyncio.run(post.holder("tcp://0").open(cut, descent, 0, None))
    return post, cut, descent


def test_an_owner_that_died_is_named() -> None:
    post, cut, _ = opened()
    post.dead.add("tcp://1")
    with pytest.raises(PeerLostError, match="it died") as caught:
        asyncio.run(post.holder("tcp://2").pull(cut, 0))
    assert caught.value.address == "tcp://1"


def test_a_shard_that_is_damaged_is_forgotten_and_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(relaqs.training.sharded.shards, "SMALL_BYTES", 0)
    post, cut, _ = opened(budget_bytes=0)
    owner = post.holder("tcp://1")
    assert owner.kept.disk_bytes > 0
    shard = owner._runs["run"].shard
    assert shard is not None
    kept: Any = shard._states[0]
    os.ftruncate(kept._blocks[0]._place[0]._file.fileno(), 10)
    with pytest.raises(PeerForgotError, match="its shard is damaged: 10 bytes are left") as caught:
        asyncio.run(post.holder("tcp://0").pull(cut, 0))
    assert caught.value.address == "tcp://1"
    assert owner.runs == ()


def test_a_version_that_is_not_there_is_not_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaqs.training.sharded.holder, "DEMAND_SECONDS", 0.01)
    post, cut, descent = opened()
    with pytest.raises(PeerForgotError, match="it has version 0 of the parameters and not 3"):
        asyncio.run(post.holder("tcp://0").pull(cut, 3))
    with pytest.raises(PeerForgotError, match="it has missed version 3"):
        asyncio.run(post.holder("tcp://0").push(cut, 3, 0, np.zeros(descent.shape), (0.1, 0.0)))


def test_what_nobody_asks_for_is_forgotten() -> None:
    post, cut, _ = opened()
    for address in cut.owners:
        assert post.holder(address).runs == ("run",)
        post.holder(address).sweep()
        assert post.holder(address).runs == ()
    with pytest.raises(PeerForgotError, match="it has nothing of the run"):
        asyncio.run(post.holder("tcp://0").pull(cut, 0))


def test_a_later_generation_takes_the_place_of_the_one_before() -> None:
    post, cut, descent = opened()
    later = ShardMap("run", 1, cut.owners, *descent.shape, senders=1)
    asyncio.run(post.holder("tcp://1").open(later, descent, 4, descent.first(slice(0, 8))))
    assert asyncio.run(post.holder("tcp://0").pull(later, 4)).values.shape == descent.shape
    with pytest.raises(PeerForgotError):
        asyncio.run(post.holder("tcp://0").pull(cut, 0))
    with pytest.raises(PeerForgotError, match="it has a later generation"):
        asyncio.run(post.holder("tcp://0").open(cut, descent, 0, None))


def test_former_owners_forget_a_run_that_is_over() -> None:
    post, cut, descent = opened()
    later = ShardMap("run", 1, ("tcp://0",), *descent.shape, senders=1)
    asyncio.run(post.holder("tcp://0").open(later, descent, 0, None))
    assert (post.holder("tcp://0").runs, post.holder("tcp://1").runs) == (("run",), ("run",))
    asyncio.run(post.holder("tcp://1").drop(cut))  # a late word, of the generation before
    assert (post.holder("tcp://0").runs, post.holder("tcp://1").runs) == (("run",), ())
    post, cut, _ = opened()
    asyncio.run(post.holder("tcp://0").open(later, descent, 0, None))
    asyncio.run(post.holder("tcp://0").drop(later, ("tcp://1",)))
    assert (post.holder("tcp://0").runs, post.holder("tcp://1").runs) == ((), ())


def relative(one: FloatArray, other: FloatArray) -> float:
    """Return the largest difference as a share of the largest value."""
    return float(np.abs(one - other).max() / np.abs(other).max())


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_lasso_is_that_of_scikit_learn(db: Session, data: dict[str, Data], alpha: float) -> None:
    rows = data["diabetes"]
    model = db.train(Lasso(rows.sql, "y", alpha=alpha, tolerance=1e-13)).result()
    oracle = sklearn.linear_model.Lasso(alpha=alpha, tol=1e-12, max_iter=100_000).fit(
        rows.features, rows.target
    )
    assert relative(model.coef_, oracle.coef_) < 1e-5
    assert ((model.coef_ == 0) == (oracle.coef_ == 0)).all()
    assert model.intercept_ == pytest.approx(oracle.intercept_)
    assert relative(model.predict(rows.features), oracle.predict(rows.features)) < 1e-6


@pytest.mark.parametrize(("name", "strength"), [("wine", 0.01), ("cancer", 0.001)])
def test_softmax_is_that_of_scikit_learn(
    db: Session, data: dict[str, Data], name: str, strength: float
) -> None:
    rows = data[name]
    job = SoftmaxRegression(rows.sql, "y", strength=strength, tolerance=1e-9)
    model = db.train(job).result()
    oracle = sklearn.linear_model.LogisticRegression(C=strength, tol=1e-10, solver="newton-cholesky")
    oracle.fit(rows.features, rows.target)
    assert relative(model.coef_, oracle.coef_) < 1e-2
    assert np.abs(model.predict_proba(rows.features) - oracle.predict_proba(rows.features)).max() < 1e-3


def test_a_loss_that_is_no_number_ends_the_run() -> None:
    descent = JOBS["lasso"].descent(profile_of(drawn_rows(1), tuple("abcdefg"), 100, seed=0))
    with pytest.raises(DataError, match="the loss is nan after 0 passes"):
        descent.judge(descent.begin(), (np.asarray(np.nan),), 0.0)


def test_sums_of_another_shape_are_refused() -> None:
    descent = JOBS["lasso"].descent(profile_of(drawn_rows(1), tuple("abcdefg"), 100, seed=0))
    with pytest.raises(DataError, match=r"has the shape \(1, 1\), the parameters have \(8, 1\)"):
        WholeParameters(descent).fold((np.ones((1, 1)), np.asarray(1.0)))


REFUSED: list[tuple[str, Callable[[Session], object]]] = [
    (
        'must be "auto", "client" or "sharded"',
        lambda db: db.train(Lasso("FROM diabetes", "y"), parameters="here"),
    ),  # type: ignore[arg-type]
    (
        "LinearSVM cannot cut its parameters; train KMeans, Lasso, MatrixFactorisation",
        lambda db: db.train(LinearSVM("FROM wine", "y"), parameters="sharded"),
    ),
    ("has no Dask cluster", lambda db: db.train(Lasso("FROM diabetes", "y"), parameters="sharded")),
    ("alpha", lambda db: Lasso("FROM diabetes", "y", alpha=-1)),
    ("strength", lambda db: SoftmaxRegression("FROM wine", "y", strength=0)),
]


@pytest.mark.parametrize(("why", "train"), REFUSED, ids=[why for why, _ in REFUSED])
def test_what_cannot_be_is_refused_by_name(db: Session, why: str, train: Callable[[Session], object]) -> None:
    with pytest.raises(ArgumentError, match=why):
        train(db)
    assert db.status().jobs == ()


def test_what_every_owner_is_sent_is_checked() -> None:
    descent = JOBS["matrix_factorisation"].descent(
        profile_of(rows_of("matrix_factorisation", 1), tuple("abcdefg"), 100, seed=0)
    )
    with pytest.raises(DataError, match=r"\(7, 3\), the parameters have \(7, 3\) and 3 rows that are shared"):
        WholeParameters(descent).fold((np.ones((7, 3)), np.asarray(1.0)))


def test_a_session_without_a_cluster_says_where_parameters_are(training_warehouse: Path) -> None:
    with connect(training_warehouse, threads=1) as db:
        run = db.train(Lasso("FROM diabetes", "y"), max_steps=1)
        assert run.explain() == "parameters: whole, in the client"


def test_times_of_subtasks_leave_the_first_passes_out() -> None:
    clock = SubtaskClock()
    for _ in range(SKIPPED_PASSES):
        clock.note([TaskSeconds(9.0, 9.0, 9.0)], workers=1, step_seconds=99.0)
    assert clock.seconds is None
    clock.note([TaskSeconds(0.3, 0.1, 0.1), TaskSeconds(0.5, 0.1, 0.1)], 2, step_seconds=0.75)
    assert clock.seconds is not None
    assert (clock.seconds.comp, round(clock.seconds.rest, 3)) == (0.4, 0.15)
