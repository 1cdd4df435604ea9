"""Models in parts, in one process: the same bits as in one piece, and what is said where none can be cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from relaqs import ArgumentError, DataError, Session
from relaqs.training import KMeans, MiniBatchLinear, ModelParts, TorchModule, TrainingRun
from relaqs.training.parted.placing import even_starts
from tests.relaqs.training.conftest import Data

torch = pytest.importorskip("torch")

SQL = "SELECT COLUMNS('x.*') / 16 AS 'x\\0', y FROM digits"
MODULES = "tests.relaqs.training.torch_modules:"
DEEP = TorchModule(
    SQL,
    "y",
    f"{MODULES}deep",
    optimizer="adam",
    scaling="none",
    first_rate=0.003,
    start_rows=32,
    passes_most=1,
)
LARGER = replace(DEEP, start_rows=64)
BATCH_ROWS = 320  # five pieces


def numbers(run: TrainingRun) -> dict[str, Any]:
    found: dict[str, Any] = run.result().state_dict()
    return found


@pytest.fixture(scope="module")
def whole(db: Session) -> TrainingRun:
    """The model that is not cut."""
    run = db.train(LARGER, batch=BATCH_ROWS)
    run.wait()
    return run


@pytest.mark.parametrize(
    "parts", [1, 4, ModelParts((2, 7)), ModelParts(2, replicas=3), ModelParts(3, replicas=5)], ids=repr
)
def test_parts_change_no_bit(db: Session, whole: TrainingRun, parts: int | ModelParts) -> None:
    """It has dropout in two stages, batch norms, and a layer that changes what it gets."""
    cut = db.train(LARGER, batch=BATCH_ROWS, parts=parts)
    found, wanted = numbers(cut), numbers(whole)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert cut.losses == whole.losses
    assert {part.worker for part in cut.placement} == {"this process"}
    assert whole.placement == ()


@pytest.mark.parametrize(
    ("module", "parts"),
    [("perceptron", 4), ("convolutional", ModelParts(2, replicas=2)), ("recurrent", 2)],
    ids=str,
)
def test_models_of_other_kinds_keep_their_bits(db: Session, module: str, parts: int | ModelParts) -> None:
    job = replace(LARGER, module=f"benchmarks.placed_models:{module}")
    whole, cut = db.train(job, batch=BATCH_ROWS), db.train(job, batch=BATCH_ROWS, parts=parts)
    found, wanted = numbers(cut), numbers(whole)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert cut.losses == whole.losses


def test_a_loss_that_is_no_number_ends_the_run_with_parts_as_without(db: Session) -> None:
    wild = replace(LARGER, module="benchmarks.placed_models:perceptron", optimizer="sgd", first_rate=1e38)
    for parts in (None, 2):
        with pytest.raises(DataError, match="loss is nan"):
            db.train(wild, batch=BATCH_ROWS, parts=parts).result()


def test_parts_are_as_good_as_plain_torch(db: Session, data: dict[str, Data]) -> None:
    """An oracle that knows nothing of pieces, stages and replicas: 20 steps over all rows, in 64 bits."""
    job = TorchModule(
        SQL,
        "y",
        f"{MODULES}double",
        start_rows=512,  # two pieces
        first_rate=0.1,
        scaling="none",
        passes_most=20,
        tolerance=0.0,
        patience_passes=20,
        seed=3,
    )
    run = db.train(job, batch=4096, parts=ModelParts(2, replicas=2))
    found = run.result()
    features = torch.tensor(data["digits"].features.to_numpy() / 16, dtype=torch.float32)
    target = torch.tensor(data["digits"].target)
    from tests.relaqs.training.torch_modules import double

    with torch.random.fork_rng():
        torch.manual_seed(job.seed)
        module = double()
    optimiser = torch.optim.SGD(module.parameters(), job.first_rate, momentum=job.momentum)
    losses = []
    for _ in range(20):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(features), target)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    np.testing.assert_allclose(run.losses, losses, rtol=1e-6)
    for one, other in zip(found.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("sizes", "stages", "starts"),
    [
        ([5], 1, (0,)),
        ([0, 5, 0, 5], 2, (0, 3)),
        ([9, 1, 1, 1, 9], 3, (0, 1, 4)),
        ([1, 2, 3, 4, 5, 6], 3, (0, 3, 5)),
    ],
)
def test_stages_are_as_even_as_can_be(sizes: list[int], stages: int, starts: tuple[int, ...]) -> None:
    assert even_starts(sizes, stages) == starts


@pytest.mark.parametrize(
    ("change", "given", "said"),
    [
        ({}, {"parts": 0}, "stages is 0; it must be a whole number from 1 on"),
        ({}, {"parts": 5}, "stages is 5, but '.*:deep' has 4 layers with parameters"),
        ({}, {"parts": 2, "batch": "elastic"}, "batch is 'elastic', but nobody measures the noise"),
        ({"scaling": "gain"}, {"parts": 2, "batch": 64}, "scaling is 'gain', but nobody .* or batch=32"),
        ({"module": f"{MODULES}lines"}, {"parts": 2}, "lines' makes a Growing; only a torch.nn.Sequential"),
        ({"module": f"{MODULES}tied"}, {"parts": 2}, "layers 0 and 2 of '.*:tied' share a parameter"),
    ],
)
def test_what_cannot_be_cut_is_said_before_training(
    db: Session, change: dict[str, Any], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ArgumentError, match=said):
        db.train(replace(DEEP, **change), **given)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            ModelParts((2, 8)),
            r"stages is \(2, 8\), so stage 2 has the layers from 8 to before 8",
        ),
        (ModelParts((2, 3)), "so stage 1 has the layers from 2 to before 3"),
        (
            ModelParts(2, replicas=2),
            "replicas is 2, but a step of 32 rows is one piece of 32 rows; .*batch=64",
        ),
        (ModelParts(1, placed={(0, 0): "tcp://one:1"}), "placed names workers, but there is no cluster"),
    ],
    ids=repr,
)
def test_parts_that_cannot_be_are_said_before_training(db: Session, parts: ModelParts, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        db.train(DEEP, parts=parts)


def test_only_modules_of_torch_are_cut(db: Session) -> None:
    for job in (KMeans("SELECT x0 FROM digits"), MiniBatchLinear(SQL, "y")):
        with pytest.raises(ArgumentError, match=f"{type(job).__name__} cannot be cut"):
            db.train(job, parts=2)
    with pytest.raises(ArgumentError, match="placed is 3; give the name of a placed policy"):
        ModelParts(2, placed=3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"stages is \(3, 3\); give layers that rise"):
        ModelParts((3, 3))
