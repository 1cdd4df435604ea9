"""A manifest comes back as it was written, or not at all and with a reason."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import duckdb
import pytest
from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts.checksums import SEAL, seal
from relaqs_engine.layouts.manifest import (
    BLOCK_COUNT,
    MANIFEST_NAME,
    Column,
    DistinctCount,
    GroupCounts,
    GroupEnds,
    Layout,
    Partition,
    StoredFile,
)
from relaqs_engine.layouts.manifest_file import read_manifest, write_manifest


def make_layout(directory: Path, **changes: Any) -> Layout:
    directory.mkdir(exist_ok=True)
    blocks = (5, *[1] * (BLOCK_COUNT - 1))
    first = StoredFile("data-0/part-00000.parquet", sum(blocks), 1234, "ab" * 32)
    empty = StoredFile("data-0/part-00001.parquet", 0, 12, "cd" * 32)
    layout = Layout(
        table=directory.name,
        directory=directory,
        kind="sampled",
        columns=(
            Column('größe "x"', "DECIMAL(12,2)", -1.25, 7, 3, 10, 99),
            Column("day", "DATE", "1992-01-02", None, 0, 5, 1, distinct=DistinctCount(4.5, 5.5, 0.01)),
            Column("flags", "BOOLEAN", False, True, 0, 2, 1, distinct=DistinctCount.of_hashes([9, 1 << 63])),
            Column("id", "BIGINT", 1, 9, 0, 9, 1, by_group=(GroupCounts("flags", (7, 3, 0), 0.5),)),
            Column(
                "x",
                "DOUBLE",
                -2.5,
                3,
                0,
                9,
                1,
                ends_by=(GroupEnds("flags", (-2.5, 1, None), (0, 3.0, None)),),
            ),
            Column("flag", "BOOLEAN", False, True, 0, 2, 1),
        ),
        partitions=(
            Partition((first,), sum(blocks), 68, blocks),
            Partition((empty,), 0, 0, (0,) * BLOCK_COUNT),
        ),
        row_count=sum(blocks),
        unit_count=68,
        cluster_key=("day",),
        seed=-3,
        hash_scheme="scheme",
        hash_probe="probe",
        max_unit_rows=7,
        source="somewhere",
        created_with="tests",
    )
    return dataclasses.replace(layout, **changes)


COUNTED = {
    "name": "day",
    "type": "DATE",
    "minimum": "1992-01-02",
    "maximum": None,
    "null_count": 2,
    "distinct_count": 5,
    "byte_count": 1,
}


TOLD_APART = {"least": 2, "most": 2, "relative_error": 0, "hashes": [3, 4]}


OF_OTHERS: dict[str, Any] = {
    "max_unit_rows": 5,
    "typical_unit_rows": 2.0,
    "unit_kurtosis_rows": 3.0,
    "columns": [{"column": "flag", "most_unit_rows": 2}],
    "outlier_counts": [1, 0],
    "outlier_block_rows": [[1, *[0] * (BLOCK_COUNT - 1)], [0] * BLOCK_COUNT],
}


def outlier_units(keys: list[str | None] | None = None, **others: Any) -> dict[str, Any]:
    """Return what a manifest says of one outlier unit, and of the others."""
    return {"keys": ["1992-01-02"] if keys is None else keys, "rows": None, "others": OF_OTHERS | others}


def test_what_is_said_of_outlier_units_is_read(tmp_path: Path) -> None:
    write_manifest(make_layout(tmp_path / "t"))
    edit(tmp_path / "t", outlier_units=outlier_units())
    found = read_manifest(tmp_path / "t").outlier_units
    assert found is not None
    assert found.others.columns[0].most_unit_rows == 2


def test_a_quotient_of_sums_may_be_rounded_up(tmp_path: Path) -> None:
    write_manifest(make_layout(tmp_path / "t", typical_unit_rows=7.000000000000001))
    assert read_manifest(tmp_path / "t").max_unit_rows == 7


def edit(directory: Path, **fields: Any) -> None:
    """Write other fields, as a program would: with a seal of the new text."""
    path = directory / MANIFEST_NAME
    entries = json.loads(path.read_text()) | fields
    del entries[SEAL]
    path.write_bytes(seal(json.dumps(entries)))


def test_a_layout_is_one_line_to_people(tmp_path: Path) -> None:
    layout = make_layout(tmp_path / "t")
    assert repr(layout) == f"<Layout t: 68 rows, 2 partitions, clustered by day (68 values), in {tmp_path}/t>"
    static = dataclasses.replace(layout, kind="static", cluster_key=())
    assert static.summary == f"t: 68 rows, static, read whole, in {tmp_path}/t"


def test_comes_back_as_written(tmp_path: Path) -> None:
    layout = make_layout(tmp_path / "t")
    write_manifest(layout)
    assert read_manifest(tmp_path / "t") == layout
    edit(tmp_path / "t", manifest_version=10, heads=[])  # as programs wrote it before there were zones
    assert read_manifest(tmp_path / "t") == layout


def test_a_moved_folder_is_the_table_of_its_new_name(tmp_path: Path) -> None:
    write_manifest(make_layout(tmp_path / "old"))
    (tmp_path / "old").rename(tmp_path / "new")
    moved = read_manifest(tmp_path / "new")
    assert (moved.table, moved.paths[0]) == ("new", tmp_path / "new" / "data-0" / "part-00000.parquet")


def test_a_newer_version_is_refused_by_its_number(tmp_path: Path) -> None:
    write_manifest(make_layout(tmp_path / "t"))
    edit(tmp_path / "t", manifest_version=12)
    with pytest.raises(
        LayoutError,
        match=r"manifest version 12 is newer than this program understands \(11\); upgrade relaqs",
    ):
        read_manifest(tmp_path / "t")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"manifest_version": None}, "no manifest_version"),
        ({"partitions": None}, "not those of a manifest"),
        ({"surprise": 1}, "surprise"),
        ({"row_count": 1}, "do not add up"),
        ({"columns": [{"name": "x"}]}, "not those of a manifest"),
        ({"row_count": "68"}, "row_count is '68', and must be of type int"),
        ({"row_count": True}, "row_count is True, and must be of type int"),
        ({"row_count": -1}, "row_count is -1, which it cannot be"),
        ({"unit_count": 1 << 63}, "unit_count is 9223372036854775808, which it cannot be"),
        ({"unit_count": 10**400}, "unit_count is 1000"),
        ({"typical_unit_rows": float("inf")}, "typical_unit_rows is inf, which it cannot be"),
        ({"unit_kurtosis_rows": "1"}, "unit_kurtosis_rows is '1', and must be of type float | None"),
        ({"typical_unit_rows": 8.0}, "typical_unit_rows is 8.0, and the largest unit has 7"),
        ({"max_unit_rows": 0}, "68 units of 0 rows at most do not have 68 rows"),
        ({"unit_count": 67}, "units do not add up"),
        ({"cluster_key": []}, "its units are rows, and have 7 rows"),
        *(
            ({"outlier_units": units}, "its outlier units are not among its units")
            for units in [
                outlier_units(max_unit_rows=0),
                outlier_units(max_unit_rows=8),
                outlier_units(typical_unit_rows=6.0),
                outlier_units(keys=[]),
                outlier_units(keys=["a", "b"]),
                outlier_units(keys=["a", "a"], outlier_counts=[2, 0]),
                outlier_units(outlier_counts=[69, 0]),
                outlier_units(columns=[{"column": "nobody", "most_unit_rows": 2}]),
                outlier_units(columns=[{"column": "flag", "most_unit_rows": 6}]),
                outlier_units(columns=[{"column": "flag", "most_unit_rows": 0}]),
                outlier_units(columns=[{"column": "flag"}, {"column": "flag"}]),
            ]
        ),
        ({"cluster_key": ["day", "id"], "outlier_units": outlier_units()}, "are not among its units"),
        ({"kind": "plain"}, "kind must be sampled or static"),
        ({"remote": "s3://bucket/t"}, "where it lies is not written in it"),
        ({"cluster_key": ["nobody"]}, "its key 'nobody' is none of its columns"),
        ({"cluster_key": [1]}, "cluster_key is 1, and must be of type str"),
        ({"batches": [None]}, "batches is None, and must be of type str"),
        *(
            ({"columns": [{**COUNTED, "distinct": distinct}]}, reason)
            for distinct, reason in [
                (7, "not those of a manifest"),
                ({"least": 2}, "not those of a manifest"),
                (
                    {"least": 2.0, "most": "2", "relative_error": 0.0},
                    "most is '2', and must be of type float",
                ),
                ({"least": 3.0, "most": 2.0, "relative_error": 0.0}, "which it cannot be"),
                ({"least": -3.0, "most": 2.0, "relative_error": 0.0}, "which it cannot be"),
                ({"least": 2.0, "most": 2.0, "relative_error": 2.0}, "which it cannot be"),
                ({"least": 2.0, "most": 2.0, "relative_error": float("nan")}, "which it cannot be"),
                ({"least": 2.0, "most": 67.0, "relative_error": 0.0}, "more distinct values than rows"),
                ({"least": 2, "most": 2, "relative_error": 0, "hashes": [1, "2"]}, "hashes is '2', and must"),
                ({"least": 2, "most": 2, "relative_error": 0, "hashes": [1, -2]}, "hashes is -2, which it"),
                ({"least": 2, "most": 2, "relative_error": 0, "hashes": [1, 1 << 64]}, "hashes is 18446744"),
                ({"least": 2, "most": 2, "relative_error": 0, "hashes": [1, 1]}, "cannot have 1 hashes"),
                ({"least": 2, "most": 2, "relative_error": 0, "hashes": 1}, "not those of a manifest"),
            ]
        ),
        *(
            ({"columns": [{**COUNTED, "distinct": TOLD_APART, "by_group": by_group}]}, reason)
            for by_group, reason in [
                (7, "not those of a manifest"),
                ([{"by": "day"}], "not those of a manifest"),
                ([{"by": 1, "counted": [1, 2, 0], "share": 1.0}], "by is 1, and must be of type str"),
                ([{"by": "day", "counted": [1, -2, 0], "share": 1.0}], "counted is -2, which it cannot"),
                ([{"by": "day", "counted": [1, "2", 0], "share": 1.0}], "counted is '2', and must be"),
                ([{"by": "day", "counted": [1, 2, 0], "share": 0.0}], "share is 0.0, which it cannot be"),
                ([{"by": "day", "counted": [1, 2, 0], "share": 1.5}], "share is 1.5, which it cannot be"),
                ([{"by": "day", "counted": [1, 2], "share": 1.0}], "not counted for each value of day"),
                ([{"by": "nobody", "counted": [1, 2, 0], "share": 1.0}], "for each value of nobody"),
            ]
        ),
        *(
            ({"columns": [{**COUNTED, "distinct": TOLD_APART, "ends_by": ends_by}]}, reason)
            for ends_by, reason in [
                (7, "not those of a manifest"),
                ([{"by": "day"}], "not those of a manifest"),
                ([{"by": "day", "lowest": [1, 2, 0], "highest": [1, 2]}], "no ends for each value of day"),
                ([{"by": "day", "lowest": [1, 2, 0], "highest": [0, 2, 0]}], "which they cannot be"),
                ([{"by": "day", "lowest": [1, "2", 0], "highest": [1, 2, 0]}], "lowest is '2', and must"),
                ([{"by": "day", "lowest": [1, None, 0], "highest": [1, 2, 0]}], "which they cannot be"),
                ([{"by": "day", "lowest": [1, float("nan"), 0], "highest": [1, 2, 0]}], "cannot be"),
                ([{"by": "day", "lowest": [1, 2], "highest": [1, 2]}], "no ends for each value of day"),
                ([{"by": "nobody", "lowest": [1], "highest": [1]}], "no ends for each value of nobody"),
            ]
        ),
    ],
)
def test_a_damaged_manifest_says_what_is_wrong(tmp_path: Path, fields: dict[str, Any], reason: str) -> None:
    write_manifest(make_layout(tmp_path / "t"))
    edit(tmp_path / "t", **fields)
    with pytest.raises(LayoutError, match=reason):
        read_manifest(tmp_path / "t")


@pytest.mark.parametrize(
    "type_",
    [
        "NOPE",
        "NOPE[]",
        "INTEGER, b INTEGER",
        "INTEGER DEFAULT 5",
        "INTEGER); CREATE TABLE more(a INTEGER); --",
        "STRUCT(a INTEGER",
        "STRUCT(a INTEGER))",
        "",
    ],
)
def test_a_type_that_is_none_is_damage(tmp_path: Path, type_: str) -> None:
    write_manifest(make_layout(tmp_path / "t", columns=(Column("day", type_, 1, 2, 0, 1, 1),)))
    with pytest.raises(LayoutError, match=r"the type of day is .*, which DuckDB does not have"):
        read_manifest(tmp_path / "t")


@pytest.mark.parametrize(
    "value",
    [
        *("NULL", "[NULL]", "1::HUGEINT", "{'a': 1, 'b)c': [1.5]}", "MAP {'a': 1}"),
        *("'a''b)'::ENUM('a''b)', 'c\"d')", "[1, 2]::INTEGER[2]", "'x'::UNION(a INTEGER, \"b, c\" VARCHAR)"),
        *(
            "'x'::BLOB",
            "'1 day'::INTERVAL",
            "TIME '1:00'",
            "'1:00+01'::TIMETZ",
            "1::BIT",
            "uuid()",
            "'1'::JSON",
        ),
    ],
)
def test_every_type_of_duckdb_is_read(tmp_path: Path, value: str) -> None:
    ((type_,),) = duckdb.sql(f"SELECT typeof({value})").fetchall()
    column = Column("day", type_, None, None, 0, 1, 1)
    layout = make_layout(tmp_path / "t", columns=(column,))
    write_manifest(layout)
    assert read_manifest(tmp_path / "t") == layout


@pytest.mark.parametrize("names", [(), ("",), ("day", "DAY")])
def test_columns_have_a_name_each(tmp_path: Path, names: tuple[str, ...]) -> None:
    columns = tuple(Column(name, "DATE", None, None, 0, 1, 1) for name in names)
    write_manifest(make_layout(tmp_path / "t", columns=columns, cluster_key=()))
    with pytest.raises(LayoutError, match="columns do not have a name each"):
        read_manifest(tmp_path / "t")


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000])
def test_brackets_without_end_are_damage(tmp_path: Path, content: str) -> None:
    (tmp_path / MANIFEST_NAME).write_text(content)
    with pytest.raises(LayoutError, match="too deep"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("what", ["pipe", "device"])
def test_a_manifest_that_is_no_file_is_not_waited_for(tmp_path: Path, what: str) -> None:
    if what == "pipe":
        os.mkfifo(tmp_path / MANIFEST_NAME)
    else:
        (tmp_path / MANIFEST_NAME).symlink_to("/dev/zero")
    with pytest.raises(LayoutError, match="is no file"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("name", ["@", "@by_day", "t\udcff"])
def test_a_folder_whose_name_is_none_of_a_table_says_so(tmp_path: Path, name: str) -> None:
    write_manifest(make_layout(tmp_path / name))
    with pytest.raises(LayoutError, match="rename it"):
        read_manifest(tmp_path / name)


@pytest.mark.parametrize("name", ["größe", "می\u200cخواهم", "a\u00a0b", "a\nb", "by day@other"])
def test_a_folder_has_any_other_name(tmp_path: Path, name: str) -> None:
    write_manifest(make_layout(tmp_path / name))
    assert read_manifest(tmp_path / name).table == name


def test_a_flipped_bit_is_found_wherever_it_is(tmp_path: Path) -> None:
    write_manifest(make_layout(tmp_path / "t"))
    path = tmp_path / "t" / MANIFEST_NAME
    written = path.read_bytes()
    for bit in range(0, 8 * len(written), 13):
        damaged = bytearray(written)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(LayoutError, match=str(path)):
            read_manifest(tmp_path / "t")


def test_a_manifest_of_before_the_seal_is_read(tmp_path: Path) -> None:
    layout = make_layout(tmp_path / "t")
    write_manifest(layout)
    path = tmp_path / "t" / MANIFEST_NAME
    entries = json.loads(path.read_text()) | {"manifest_version": 2}
    del entries[SEAL]
    path.write_text(json.dumps(entries))
    assert read_manifest(tmp_path / "t") == layout


@pytest.mark.parametrize("file", ["/etc/passwd", "../other/part-00000.parquet"])
def test_a_partition_outside_the_folder_is_refused(tmp_path: Path, file: str) -> None:
    partition = make_layout(tmp_path / "t").partitions[0]
    files = (dataclasses.replace(partition.files[0], file=file),)
    write_manifest(make_layout(tmp_path / "t", partitions=(dataclasses.replace(partition, files=files),)))
    with pytest.raises(LayoutError, match="outside the table's folder"):
        read_manifest(tmp_path / "t")


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", '"text"'])
def test_what_is_no_manifest_is_called_damaged(tmp_path: Path, content: str) -> None:
    (tmp_path / MANIFEST_NAME).write_text(content)
    with pytest.raises(LayoutError, match="is damaged"):
        read_manifest(tmp_path)


def test_a_folder_without_a_manifest_names_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="relaqs shuffle SOURCE --into"):
        read_manifest(tmp_path)


def test_a_failed_write_leaves_the_old_manifest_alone(tmp_path: Path) -> None:
    old = make_layout(tmp_path / "t")
    write_manifest(old)
    unwritable = Column("x", "DOUBLE", float("nan"), None, 0, 1, 1)
    with pytest.raises(ValueError, match="JSON"):
        write_manifest(dataclasses.replace(old, columns=(unwritable,)))
    assert read_manifest(tmp_path / "t") == old
    assert [path.name for path in (tmp_path / "t").iterdir()] == [MANIFEST_NAME]


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("INTEGER", "BIGINT", True),
        ("UTINYINT", "SMALLINT", True),
        ("FLOAT", "DOUBLE", True),
        ("DECIMAL(12,2)", "DECIMAL(30,2)", True),
        ("DECIMAL(12,2)", "DECIMAL(12,3)", False),
        ("INTEGER", "DOUBLE", False),
        ("VARCHAR", "VARCHAR", True),
        ("DATE", "TIMESTAMP", False),
    ],
)
def test_layouts_meet_on_keys_whose_equal_values_hash_equal(
    tmp_path: Path, one: str, other: str, meet: bool
) -> None:
    first, second = (
        make_layout(tmp_path / name, columns=(Column("k", kind, None, None, 0, 1, 1),), cluster_key=("k",))
        for name, kind in (("first", one), ("second", other))
    )
    assert first.is_co_clustered_with(second) is meet


@pytest.mark.parametrize(
    "change",
    [{"seed": 4}, {"hash_probe": "other"}, {"hash_scheme": "other"}, {"cluster_key": ()}, {"kind": "static"}],
)
def test_layouts_made_differently_do_not_meet(tmp_path: Path, change: dict[str, Any]) -> None:
    layout = make_layout(tmp_path / "t")
    assert layout.is_co_clustered_with(layout)
    assert not layout.is_co_clustered_with(dataclasses.replace(layout, **change))
