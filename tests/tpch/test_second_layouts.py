"""Second layouts hold the same rows in another order, are added to what is there, and never mix with it."""

from __future__ import annotations

import shutil
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import pytest
from relaqs_engine.catalog import Catalog
from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts import Layout, read_manifest
from relaqs_tpch import data, generate
from relaqs_tpch.data import ORIGINALS, SECOND_LAYOUTS, TABLES, layouts_at

from tests.conftest import Oracle

TINY = 0.001  # 6,005 rows of lineitem
FIRST = [table.name for table in TABLES]
SECOND = [table.name for table in SECOND_LAYOUTS]
KEYS = {
    "lineitem@part": "l_partkey",
    "part@part": "p_partkey",
    "partsupp@part": "ps_partkey",
    "orders@customer": "o_custkey",
    "customer@customer": "c_custkey",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    warehouse = tmp_path_factory.mktemp("tiny")
    generate(TINY, warehouse, partitions=4)
    return warehouse


@pytest.fixture(scope="module")
def tiny_twice(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same tables, to which second layouts were added later."""
    warehouse = shutil.copytree(tiny, tmp_path_factory.mktemp("twice") / "warehouse")
    assert list(generate(TINY, warehouse, partitions=4, second_layouts=True)) == [*FIRST, *SECOND]
    return Path(warehouse)


@pytest.fixture
def warehouse(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the eight tiny tables that a test may change."""
    return Path(shutil.copytree(tiny, tmp_path / "warehouse"))


def manifest_times(warehouse: Path, names: list[str]) -> dict[str, int]:
    return {name: (warehouse / name / "manifest.json").stat().st_mtime_ns for name in names}


def folders(warehouse: Path) -> list[str]:
    return sorted(path.name for path in warehouse.iterdir() if path.is_dir())


def test_they_hold_the_same_rows(tpch_laid_out_twice: Path, tpch_oracle: Oracle) -> None:
    for name in SECOND:
        layout = read_manifest(tpch_laid_out_twice / name)
        table = name.partition("@")[0]
        columns = ", ".join(column.name for column in layout.columns)
        stored = f"SELECT {columns} FROM read_parquet({[str(path) for path in layout.paths]})"
        assert tpch_oracle.rows(f"({stored}) EXCEPT ALL (FROM {table})") == []
        assert tpch_oracle.rows(f"(FROM {table}) EXCEPT ALL ({stored})") == []


def test_they_meet_partition_by_partition(tpch_laid_out_twice: Path) -> None:
    layouts = {name: read_manifest(tpch_laid_out_twice / name) for name in SECOND}
    assert {name: ", ".join(layout.cluster_key) for name, layout in layouts.items()} == KEYS
    assert layouts["lineitem@part"].is_co_clustered_with(layouts["part@part"])
    assert layouts["lineitem@part"].is_co_clustered_with(layouts["partsupp@part"])
    assert layouts["orders@customer"].is_co_clustered_with(layouts["customer@customer"])


def test_they_are_added_to_tables_that_are_there(tiny: Path, tiny_twice: Path) -> None:
    assert manifest_times(tiny_twice, FIRST) == manifest_times(tiny, FIRST)
    assert folders(tiny_twice) == sorted([*FIRST, *SECOND])  # the originals, generated again, are gone
    assert list(Catalog.open(tiny_twice).tables) == sorted(FIRST)
    assert list(generate(TINY, tiny_twice, partitions=4)) == FIRST


@pytest.mark.slow
def test_a_stopped_run_goes_on_where_it_stopped_and_keeps_what_was_to_be_kept(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_at_orders(source: str, into: Path, **options: object) -> Layout:
        if into.name == "orders@customer":
            raise KeyboardInterrupt
        return lay_out(source, into, **options)

    generate(TINY, warehouse, partitions=4, keep_raw=True)
    lay_out = data.shuffle
    with monkeypatch.context() as patch:
        patch.setattr(data, "shuffle", stop_at_orders)
        with pytest.raises(KeyboardInterrupt):
            generate(TINY, warehouse, partitions=4, second_layouts=True)
    stopped_at = manifest_times(warehouse, ["lineitem@part"])

    monkeypatch.setattr(data, "write_tables", None)  # what was generated before is used
    generate(TINY, warehouse, partitions=4, second_layouts=True)
    assert manifest_times(warehouse, ["lineitem@part"]) == stopped_at
    assert folders(warehouse) == sorted([*FIRST, *SECOND, ORIGINALS])
    assert sorted(path.stem for path in (warehouse / ORIGINALS).iterdir()) == sorted(FIRST)


@pytest.mark.slow
def test_replaced_tables_take_their_second_layouts_along(tiny_twice: Path, tmp_path: Path) -> None:
    warehouse = Path(shutil.copytree(tiny_twice, tmp_path / "warehouse"))
    generate(0.002, warehouse, partitions=4, force=True)
    assert folders(warehouse) == sorted(FIRST)
    assert Catalog.open(warehouse).table("orders").row_count == 3_000


def test_a_second_layout_of_another_origin_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "part@part").mkdir()
    with pytest.raises(LayoutError, match="already holds part@part, not made by"):
        generate(TINY, tmp_path)
    assert folders(tmp_path) == ["part@part"]


def test_the_disk_must_hold_them_too(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data.shutil, "disk_usage", lambda folder: SimpleNamespace(free=500_000))
    with pytest.raises(LayoutError, match=r"has 0\.00 GB free"):
        generate(TINY, warehouse, partitions=4, second_layouts=True)
    assert folders(warehouse) == sorted(FIRST)


def test_no_layout_is_made_twice() -> None:
    def second_at(scale: float) -> set[str]:
        return {table.name for table in layouts_at(scale, second_layouts=True) if table.is_second}

    assert second_at(1) == set(SECOND)
    assert second_at(20) == set(SECOND) - {"partsupp@part"}  # partsupp itself is sampled, by part key
    assert second_at(100) == set(SECOND) - {"partsupp@part", "part@part"}
    assert not any(table.is_second for table in layouts_at(1, second_layouts=False))


@pytest.mark.slow
def test_all_layouts_of_a_table_follow_each_other() -> None:
    tables = [table.original for table in layouts_at(1, second_layouts=True)]
    assert [name for name, _ in groupby(tables)] == FIRST
