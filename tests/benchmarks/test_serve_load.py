"""The load of a server is measured beside a session, and an answer that is wrong, late or lost is counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import record, serve_load
from benchmarks.serve_askers import ERROR, LOST, WRONG, AskingProcess, EmbeddedDoor, Order, ServerDoor
from benchmarks.server_process import serving
from tests.relaqs.serve.served_tables import lay_out

pytestmark = pytest.mark.slow  # a server, and clients for some seconds

A_FEW = Order(askers=1, seconds=60.0, questions=4)


def test_it_measures_both_doors(
    tpch_warehouse: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(serve_load, "LISTS_ALONE", 1)
    monkeypatch.setattr(serve_load, "WIDE", "SELECT * FROM lineitem WHERE l_orderkey <= 1000")
    serve_load.main([str(tpch_warehouse), "--connections", "2", "--seconds", "3"])
    [path] = tmp_path.iterdir()
    found = json.loads(path.read_text(encoding="utf-8"))
    assert len(found["figures"]) == 8
    assert all(each["answers"] > 0 for each in found["figures"])
    assert all(set(each) == {"right", "estimated"} for each in found["verdicts"].values())
    assert found["values_per_second"] > 0
    printed = capsys.readouterr().out
    assert "One client alone has its first answer after" in printed


def test_an_answer_that_is_not_duckdbs_is_wrong(tpch_warehouse: Path) -> None:
    truths = serve_load.truths_of(tpch_warehouse, 1)[::-1]
    with AskingProcess(EmbeddedDoor(tpch_warehouse, 1), truths) as process:
        verdicts = [each.verdict for each in process.take(A_FEW)]
    assert verdicts == [WRONG, "estimated", WRONG, "estimated"]


def test_a_refusal_is_an_error_and_what_a_server_takes_with_it_is_lost(
    tpch_warehouse: Path, tmp_path: Path
) -> None:
    truths = serve_load.truths_of(tpch_warehouse, 1)
    without_the_tables = lay_out(tmp_path)
    with (
        serving(without_the_tables, "--threads", "1") as server,
        AskingProcess(ServerDoor.of(server, 1), truths) as process,
    ):
        refused = process.take(A_FEW)
        server.process.kill()
        server.process.wait()
        lost = process.take(A_FEW)
    assert [each.verdict for each in refused] == [ERROR] * 4
    assert [each.verdict for each in lost] == [LOST] * 4
