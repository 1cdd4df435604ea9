"""Modules of PyTorch trained over a table: by the same steps as by hand, and the same bits however shared."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import relaqs.training.elastic.step_job as step_job
from relaqs import ArgumentError, DataError, Session, plugins
from relaqs.plugins import MissingPackageError
from relaqs.training import TorchModule, replay
from relaqs.training.elastic.torch_module import TorchState, ready_module
from tests.relaqs.training.ordered import ordered_steps

torch = pytest.importorskip("torch")
modules = pytest.importorskip("tests.relaqs.training.torch_modules")

SQL = "SELECT COLUMNS('x.*') / 16 AS 'x\\0', y FROM digits"
HOME = "tests.relaqs.training.torch_modules"


def weights(module: torch.nn.Module) -> list[list[float]]:
    return [each.flatten().tolist() for each in module.state_dict().values()]


@pytest.mark.parametrize(("optimizer", "kind"), [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam)])
def test_steps_are_those_of_a_loop_by_hand(db: Session, optimizer: str, kind: type) -> None:
    job = TorchModule(SQL, "y", modules.small, optimizer=optimizer, start_rows=32, passes_most=2, seed=4)
    trained = db.train(job).result()
    torch.manual_seed(4)
    by_hand = modules.small()
    options = {"momentum": 0.9} if optimizer == "sgd" else {}
    steps = kind(by_hand.parameters(), 0.01, **options)
    for rows in ordered_steps(db, job, passes=2):
        steps.zero_grad()
        features = torch.as_tensor(rows.features, dtype=torch.float32)
        torch.nn.functional.cross_entropy(by_hand(features), torch.as_tensor(rows.target)).backward()
        steps.step()
    for one, other in zip(trained.parameters(), by_hand.parameters(), strict=True):
        np.testing.assert_allclose(one.detach(), other.detach(), atol=2e-5)
    assert trained.classes_.tolist() == list(range(10))
    assert not trained.training


def test_the_same_bits_however_steps_are_shared_out(db: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """With dropout, batch normalisation and more and more rows. The process's own draws stay its own."""
    job = TorchModule(SQL, "y", modules.random, start_rows=16, passes_most=3, first_rate=0.05, held_out=0.3)
    torch.manual_seed(1)
    before = torch.rand(1)
    torch.manual_seed(1)
    run = db.train(job, batch="elastic")
    module = run.result()
    assert torch.rand(1) == before
    assert run.steps[-1].accuracy > 0.6
    assert run.batch_rows > 16
    monkeypatch.setattr(step_job, "SPLIT_SECONDS", 0.0)
    monkeypatch.setattr(step_job, "LEAST_SECONDS", 1e-6)
    assert weights(db.train(job, batch="elastic").result()) == weights(module)
    assert weights(replay(run.journal, job, db)) == weights(module)


def test_what_cannot_be_trained_is_said_by_name() -> None:
    with pytest.raises(ArgumentError, match="which workers cannot import; put the function into a file"):
        TorchModule(SQL, "y", lambda: modules.small())
    with pytest.raises(ArgumentError, match="module is 'no_such:net', which cannot be imported here"):
        TorchModule(SQL, "y", "no_such:net")
    with pytest.raises(ArgumentError, match="which makes 3, and not a torch"):
        TorchModule(SQL, "y", modules.no_module)
    with pytest.raises(ArgumentError, match="which has no parameters"):
        TorchModule(SQL, "y", "torch.nn:ReLU")
    with pytest.raises(ArgumentError, match="start_rows is 1, and the module normalises batches"):
        TorchModule(SQL, "y", modules.random, start_rows=1)
    with pytest.raises(ArgumentError, match="loss is 'nll'; it must be one of cross_entropy"):
        TorchModule(SQL, "y", modules.small, loss="nll")


def test_runs_end_with_what_is_wrong(db: Session) -> None:
    with pytest.raises(DataError, match=r"the buffer 'seen' changed its shape from \(1,\) to \(2,\)"):
        db.train(TorchModule(SQL, "y", modules.Growing)).result()
    with pytest.raises(DataError, match="mse_loss takes one output a row"):
        db.train(TorchModule(SQL, "y", modules.small, loss="mse_loss")).result()
    with pytest.raises(DataError, match="which cannot take the 1 features of the SELECT"):
        db.train(TorchModule("SELECT x20, y FROM digits", "y", modules.small)).result()
    with pytest.raises(DataError, match=r"which gives \(2, 3\) for 2 rows, and 'y' has 10 classes; cross"):
        db.train(TorchModule(SQL, "y", modules.few)).result()
    two = TorchModule(SQL, "y", modules.small, loss="binary_cross_entropy_with_logits")
    with pytest.raises(DataError, match="has 10 classes; for more than two use cross_entropy"):
        db.train(two).result()
    with pytest.raises(DataError, match=r"torch is .* here, but 1\.0 where training began"):
        ready_module(two, TorchState({}, {}, {}, None, version="1.0"))


def test_a_missing_torch_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"torch, which is not installed; .* 'relaqs\[torch\]'"):
        plugins.require("torch")


def test_torch_is_imported_by_its_own_jobs_alone() -> None:
    code = "import sys, relaqs.training; relaqs.training.TorchModule; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
