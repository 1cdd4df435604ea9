"""TPC-H is made once, whole tables at a time, and never mixed with another scale or somebody's tables."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts import Layout, read_manifest
from relaqs_tpch import data, generate
from relaqs_tpch.data import ORIGINALS, TABLES

TINY = 0.001  # 6,005 rows of lineitem
ROWS = {
    "lineitem": 60_175,
    "orders": 15_000,
    "partsupp": 8_000,
    "customer": 1_500,
    "part": 2_000,
    "supplier": 100,
    "nation": 25,
    "region": 5,
}


def manifest_times(warehouse: Path) -> dict[str, int]:
    return {table.name: (warehouse / table.name / "manifest.json").stat().st_mtime_ns for table in TABLES}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    warehouse = tmp_path_factory.mktemp("tiny")
    generate(TINY, warehouse, partitions=4)
    return warehouse


@pytest.fixture
def warehouse(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the tiny tables that a test may change."""
    return Path(shutil.copytree(tiny, tmp_path / "warehouse"))


def test_every_table_is_whole(tpch_warehouse: Path, tpch_oracle) -> None:
    for name, rows in ROWS.items():
        layout = read_manifest(tpch_warehouse / name)
        files = [str(path) for path in layout.paths]
        columns = ", ".join(column.name for column in layout.columns)
        stored = f"SELECT {columns} FROM read_parquet({files})"
        assert layout.row_count == rows
        assert tpch_oracle.rows(f"({stored}) EXCEPT ALL (FROM {name})") == []
        assert tpch_oracle.rows(f"(FROM {name}) EXCEPT ALL ({stored})") == []


def test_lineitem_joins_orders_inside_each_partition(tpch_warehouse: Path, tpch_oracle) -> None:
    lineitem, orders = (read_manifest(tpch_warehouse / name) for name in ("lineitem", "orders"))
    assert lineitem.is_co_clustered_with(orders)
    for lines, heads in zip(lineitem.paths, orders.paths, strict=True):
        keys = f"SELECT DISTINCT l_orderkey FROM '{lines}'"
        assert tpch_oracle.rows(f"({keys}) EXCEPT (SELECT o_orderkey FROM '{heads}')") == []


def test_small_tables_are_static(tpch_warehouse: Path) -> None:
    sampled = {name for name in ROWS if read_manifest(tpch_warehouse / name).is_sampled}
    assert sampled == {"lineitem", "orders"}


@pytest.mark.parametrize(
    ("scale", "sampled"),
    [
        (10, {"lineitem", "orders"}),
        (20, {"lineitem", "orders", "partsupp"}),
        (100, {"lineitem", "orders", "partsupp", "part", "customer"}),
        (3000, {"lineitem", "orders", "partsupp", "part", "customer", "supplier"}),
    ],
)
def test_what_no_worker_should_read_whole_is_sampled(scale: float, sampled: set[str]) -> None:
    assert {table.name for table in TABLES if table.is_sampled_at(scale)} == sampled


@pytest.mark.slow
def test_what_is_there_is_not_made_again(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = manifest_times(warehouse)
    monkeypatch.setattr(data, "write_tables", None)
    layouts = generate(TINY, warehouse, partitions=4)
    assert list(layouts) == [table.name for table in TABLES]
    assert manifest_times(warehouse) == before


def test_originals_are_kept_only_if_asked_for(warehouse: Path) -> None:
    assert not (warehouse / ORIGINALS).exists()
    before = manifest_times(warehouse)
    generate(TINY, warehouse, partitions=4, keep_raw=True)
    assert sorted(path.stem for path in (warehouse / ORIGINALS).iterdir()) == sorted(ROWS)
    assert manifest_times(warehouse) == before


def test_a_stopped_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop_at_orders(source: str, into: Path, **options: object) -> Layout:
        if into.name == "orders":
            raise KeyboardInterrupt
        return lay_out(source, into, **options)

    lay_out = data.shuffle
    with monkeypatch.context() as patch:
        patch.setattr(data, "shuffle", stop_at_orders)
        with pytest.raises(KeyboardInterrupt):
            generate(TINY, tmp_path, partitions=4)
    stopped_at = (tmp_path / "lineitem" / "manifest.json").stat().st_mtime_ns
    assert not (tmp_path / "orders").exists()

    made: list[str] = []
    monkeypatch.setattr(data, "write_tables", lambda tables, *_: made.extend(tables))
    layouts = generate(TINY, tmp_path, partitions=4)
    assert len(layouts) == 8
    assert manifest_times(tmp_path)["lineitem"] == stopped_at
    assert made == []  # what was generated before the stop was used
    assert not (tmp_path / ORIGINALS).exists()


def test_a_table_that_was_removed_comes_back(warehouse: Path) -> None:
    before = manifest_times(warehouse)
    shutil.rmtree(warehouse / "orders")
    generate(TINY, warehouse, partitions=4)
    after = manifest_times(warehouse)
    assert {name for name in after if after[name] != before[name]} == {"orders"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scale": 0.002}, "scale 0.001.*scale 0.002"),
        ({"seed": 1}, "seed 0.*seed 1"),
        ({"partitions": 5}, "4 partitions.*5 partitions"),
    ],
)
def test_two_recipes_do_not_mix(warehouse: Path, options: dict[str, float], words: str) -> None:
    before = manifest_times(warehouse)
    with pytest.raises(LayoutError, match=words):
        generate(**{"scale": TINY, "into": warehouse, "partitions": 4, **options})
    assert manifest_times(warehouse) == before


@pytest.mark.slow
def test_force_replaces_another_scale(warehouse: Path) -> None:
    layouts = generate(0.002, warehouse, partitions=4, force=True)
    assert layouts["orders"].row_count == 3_000
    assert layouts["lineitem"].is_co_clustered_with(layouts["orders"])


def test_tables_of_another_origin_are_left_alone(tmp_path: Path) -> None:
    own = tmp_path / "orders" / "mine.txt"
    own.parent.mkdir()
    own.write_text("mine")
    with pytest.raises(LayoutError, match=r"already holds orders, not made by .* --force"):
        generate(TINY, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["orders"]
    assert own.read_text() == "mine"


def test_a_damaged_record_is_named(warehouse: Path) -> None:
    (warehouse / "tpch.json").write_text('{"scale": 1')
    with pytest.raises(LayoutError, match=r"tpch\.json is not a record"):
        generate(TINY, warehouse, partitions=4)


@pytest.mark.parametrize("scale", [0, -1, float("nan"), float("inf")])
def test_a_scale_that_is_none_is_refused(scale: float, tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="must be above 0"):
        generate(scale, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_disk_that_is_too_small_is_noticed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data.shutil, "disk_usage", lambda folder: SimpleNamespace(free=5 << 30))
    with pytest.raises(LayoutError, match=r"scale 10 needs about 7\.30 GB .* which has 5\.37 GB free"):
        generate(10, tmp_path)
    assert not (tmp_path / ORIGINALS).exists()
    assert len(generate(TINY, tmp_path, partitions=4)) == 8  # as the message says: a smaller scale


def test_the_generators_own_words_are_passed_on(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"tpchgen-cli could not make nosuch at scale 1 \(exit 2\): .*nosuch"):
        data.write_tables(["nosuch"], 1, tmp_path)


def test_a_missing_generator_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "_installed_files", list)
    monkeypatch.setattr(data.sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(DataError, match=r"pip install 'relaqs\[demo\]'"):
        data.find_program()


def test_progress_rises_to_the_end(tmp_path: Path) -> None:
    told: list[tuple[float, str]] = []
    generate(TINY, tmp_path, partitions=4, progress=lambda share, doing: told.append((share, doing)))
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert 0.0 <= shares[0] <= shares[-1] <= 1.0
    assert {"laying out lineitem", "laying out region"} <= {doing for _, doing in told}


@pytest.mark.slow
def test_an_interrupt_leaves_no_process_and_no_half_file(tmp_path: Path) -> None:
    script = f"from relaqs_tpch import generate; generate(1, {str(tmp_path)!r})"
    run = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(f"{ORIGINALS}/*.inprogress")):
            assert run.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
        started = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(signal.SIGINT)
        assert run.wait(30) != 0
    finally:
        run.kill()
    assert started
    assert psutil.wait_procs(started, timeout=10)[1] == []
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["tpch.json"]
