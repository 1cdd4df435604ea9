"""Folders that grew: files with other columns than those before, and tables that cannot be opened."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from relaqs_engine.duck import quote_name
from relaqs_engine.planning.exact import RowGroupRules
from relaqs_engine.plans.composite import SampledThenExact

import relaqs
from benchmarks.server_process import serving
from relaqs.cli import program
from relaqs.queries import start
from tests.relaqs.sessions import Connect, exact_rows

ROWS = 6_000
KINDS: dict[str, pa.Array | None] = {
    "missing": None,
    "all NULL": pa.nulls(ROWS),
    "int": pa.array([None if i % 11 == 0 else i % 50 for i in range(ROWS)], pa.int32()),
    "bigint": pa.array([i % 70 - 5 for i in range(ROWS)], pa.int64()),
    "float": pa.array([0.5 + i % 30 for i in range(ROWS)], pa.float32()),
    "double": pa.array([float("nan") if i % 13 == 0 else 0.1 * (i % 90) for i in range(ROWS)]),
    "text": pa.array([f"v{i % 9}" for i in range(ROWS)]),
    "date": pa.array([19_800 + i % 40 for i in range(ROWS)], pa.date32()),
    "moment": pa.array([1_710_000_000_000_000 + i * 10**9 for i in range(ROWS)], pa.timestamp("us")),
    "zoned": pa.array([1_710_000_000_000_000 + i * 10**9 for i in range(ROWS)], pa.timestamp("us", "UTC")),
    "struct": pa.array([{"a": i % 5} for i in range(ROWS)]),
    "wider struct": pa.array([{"a": i % 5, "b": "x"} for i in range(ROWS)]),
}
EVOLUTIONS = [
    ("double", "missing"),
    ("missing", "text"),
    ("int", "all NULL"),
    ("all NULL", "zoned"),
    ("int", "double"),
    ("double", "int"),
    ("float", "double"),
    ("int", "float"),
    ("bigint", "int"),
    ("bigint", "text"),
    ("date", "moment"),
    ("moment", "zoned"),
    ("struct", "wider struct"),
]


def write_evolved(folder: Path, kinds: tuple[str, ...]) -> list[Path]:
    """Write a file for each kind, in folders that are a column: y=0, y=1, …"""
    files = []
    for i, kind in enumerate(kinds):
        rows = pa.table({"id": range(i * ROWS, (i + 1) * ROWS), "k": [n % 7 for n in range(ROWS)]})
        if (values := KINDS[kind]) is not None:
            rows = rows.append_column("v", values)
        files.append(folder / f"y={i}" / "a.parquet")
        files[-1].parent.mkdir(parents=True)
        pq.write_table(rows, files[-1], row_group_size=300)
    return files


class United:
    """Plain DuckDB over the files, each read alone, and put together by name."""

    def __init__(self, files: list[Path], zone: str) -> None:
        self._connection = duckdb.connect()
        self._connection.execute(f"SET TimeZone = '{zone}'")
        parts = (
            f"SELECT *, {i} AS y FROM read_parquet('{each}', can_have_nan = true, hive_partitioning = false)"
            for i, each in enumerate(files)
        )
        self._connection.execute(f"CREATE TABLE t AS {' UNION ALL BY NAME '.join(parts)}")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        table = self._connection.sql(sql).to_arrow_table()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def questions(self) -> list[str]:
        """Return questions about v, about its NULLs, and about what its bounds could leave out."""
        ((type_text,),) = self.rows("SELECT typeof(v) FROM t LIMIT 1")
        asked = [
            "SELECT count(*) AS n, count(v) AS m, count(*) FILTER (v IS NULL) AS o FROM t",
            "SELECT count(*) AS n FROM t WHERE v IS NULL",
            "SELECT y, k, count(v) AS n FROM t GROUP BY ALL ORDER BY ALL",
            "SELECT v::VARCHAR AS v, count(*) AS n FROM t GROUP BY 1 ORDER BY n DESC, 1 NULLS FIRST LIMIT 5",
            "SELECT k, sum(id) AS s FROM t WHERE y = 1 GROUP BY k ORDER BY k",
        ]
        if not type_text.startswith("STRUCT"):
            ends = "min(v)::VARCHAR AS low, median(v)::VARCHAR AS mid, max(v)::VARCHAR AS high"
            asked.append("SELECT min(v)::VARCHAR AS a, max(v)::VARCHAR AS b, count(DISTINCT v) AS n FROM t")
            ((low, mid, high),) = self.rows(f"SELECT {ends} FROM t")
            for sign, value in ((">", low), ("<=", mid), ("=", mid), ("<>", high), ("<", high)):
                asked.append(f"SELECT count(*) AS n FROM t WHERE v {sign} CAST('{value}' AS {type_text})")
        if type_text in ("INTEGER", "BIGINT", "FLOAT", "DOUBLE"):
            asked.append(
                "SELECT k, round(avg(v), 3) AS m, round(sum(v)::DOUBLE, 1) AS s FROM t "
                "WHERE NOT isnan(v::DOUBLE) GROUP BY k ORDER BY k"
            )
        return asked


@pytest.mark.parametrize("kinds", EVOLUTIONS, ids=" then ".join)
def test_columns_are_united_by_name_plain_and_laid_out(
    connect: Connect, tmp_path: Path, kinds: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "RowGroupRules", lambda cores: RowGroupRules(cores, 1e-5, 16, 0.2))
    united = United(write_evolved(tmp_path / "lake" / "t", kinds), "UTC")
    open_lake = partial(connect, tmp_path / "lake", timezone="UTC", background_layouts=False)
    plain, laid_out = open_lake(), open_lake()
    assert laid_out.lay_out("t").kind == "sampled"
    assert sorted(column.name for column in plain.tables["t"].columns) == ["id", "k", "v", "y"]
    for sql in united.questions():
        for db in (plain, laid_out):
            assert exact_rows(db, sql) == united.rows(sql), sql
    plan = plain.plan("SELECT k, sum(id) AS s FROM t GROUP BY k")
    assert isinstance(plan, SampledThenExact)
    assert plan.groups
    assert not isinstance(plain.plan("SELECT k, count(v) AS s FROM t GROUP BY k"), SampledThenExact)


def test_moments_without_a_zone_are_united_in_that_of_the_session(connect: Connect, tmp_path: Path) -> None:
    """A layout of them is of one zone, too."""
    files = write_evolved(tmp_path / "lake" / "t", ("moment", "zoned"))
    sql = "SELECT y, min(v)::VARCHAR AS a, count(*) FILTER (hour(v) = 2) AS n FROM t GROUP BY y ORDER BY y"
    for zone in ("America/New_York", "Asia/Kolkata"):
        true = United(files, zone).rows(sql)
        with connect(tmp_path / "lake", timezone=zone, background_layouts=False) as db:
            assert db.tables["t"].is_plain
            assert exact_rows(db, sql) == true
            assert not db.lay_out("t").is_plain
            assert exact_rows(db, sql) == true
    with connect(tmp_path / "lake", timezone=zone) as db:
        assert not db.tables["t"].is_plain


CSV = {
    "a column more": ("id,v\n1,1\n2,2\n", "id,v,note\n3,3.5,x\n"),
    "a column less": ("id,v,note\n3,3.5,x\n", "id,v\n1,1\n2,2\n"),
    "both": ("id,v\n1,1\n", "note,id\nx,2\n", "id\n3\n"),
    "another order": ("id,v\n1,1\n", "v,id\n20,2\n"),
    "no header": ("1,a\n2,b\n", "3,c\n4,d\n"),
    "the same": ("id,v\n1,1\n", "id,v\n2,2.5\n"),
}


@pytest.mark.parametrize("name", CSV)
def test_csv_files_are_united_too(connect: Connect, tmp_path: Path, name: str) -> None:
    files = []
    for i, text in enumerate(CSV[name]):
        files.append(tmp_path / "lake" / "t" / f"y={i}" / "a.csv")
        files[-1].parent.mkdir(parents=True)
        files[-1].write_text(text)
    with duckdb.connect() as connection:
        read = f"read_csv({[str(file) for file in files]}, union_by_name = true)"
        true = connection.sql(f"FROM {read} ORDER BY ALL")
        columns, expected = true.columns, true.fetchall()
    db = connect(tmp_path / "lake")
    sql = f"SELECT {', '.join(columns)} FROM t ORDER BY ALL"
    assert exact_rows(db, sql) == expected
    db.lay_out("t")
    assert exact_rows(db, sql) == expected


def test_commands_read_and_lay_out_what_grew(tmp_path: Path) -> None:
    united = United(write_evolved(tmp_path / "lake" / "t", ("int", "missing", "double")), "UTC")
    sql = "SELECT count(v) AS n, round(sum(v) FILTER (NOT isnan(v))) AS s FROM t"
    ((count, total),) = united.rows(sql)
    run = CliRunner().invoke
    laid_out = run(program, ["shuffle", str(tmp_path / "lake" / "t"), "--into", str(tmp_path / "wh" / "t")])
    assert laid_out.exit_code == 0
    for data in ("lake", "wh"):
        said = run(program, ["sql", "--data", str(tmp_path / data), "--format", "csv", sql]).output
        assert said.splitlines()[-1].startswith(f"{count},")
        assert f"{total}" in said


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A folder of two tables that open, and three that do not."""
    folder = tmp_path / "lake"
    write_evolved(folder / "grown", ("int", "missing"))
    write_evolved(folder / "unfit", ("int", "date"))
    pq.write_table(pa.table({"x": [1, 2, 3]}), folder / "ok.parquet")
    (folder / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    (folder / "damaged.duckdb").write_bytes(bytes(8) + b"DUCK" + bytes(5000))
    return folder


def test_a_table_that_does_not_open_is_left_out(
    connect: Connect, lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = connect(lake, views={"few": "SELECT x FROM ok WHERE x < 3"})
    assert list(db.tables) == ["grown", "ok"]
    assert list(db.left_out) == ["broken", "damaged", "unfit"]
    said = capsys.readouterr().err
    for name, words in (
        ("broken", "cannot be read as Parquet"),
        ("unfit", "no type holds"),
        ("damaged", "duckdb"),
    ):
        assert f"relaqs: {name} is left out: " in said
        for ask in (db.plan, db.explain, db.online_sql):
            with pytest.raises(relaqs.DataError, match=words):
                ask(f"SELECT count(*) AS n FROM ok, {quote_name(name.upper())}")
    assert exact_rows(db, "SELECT count(*) AS n FROM few") == [(2,)]
    with pytest.raises(relaqs.SqlError, match="there is no table nix in the catalog, which has: grown, ok"):
        db.plan("SELECT * FROM nix")
    with pytest.raises(relaqs.DataError, match="no type holds"):
        connect(lake, views={"bad": "SELECT * FROM unfit"})


def test_a_table_that_was_mended_can_be_opened_again(connect: Connect, lake: Path) -> None:
    db = connect(lake)
    with pytest.raises(relaqs.DataError, match="cannot be read as Parquet"):
        db.refresh("Broken")
    pq.write_table(pa.table({"x": [5]}), lake / "broken.parquet")
    assert db.refresh("Broken").row_count == 1
    assert exact_rows(db, "SELECT x FROM broken") == [(5,)]
    assert list(db.left_out) == ["damaged", "unfit"]
    assert exact_rows(db, "SELECT count(*) AS n FROM grown") == [(2 * ROWS,)]
    db.refresh("ok")
    with pytest.raises(relaqs.DataError, match="no type holds"):
        db.plan("SELECT * FROM unfit")


def test_what_is_named_must_open(connect: Connect, lake: Path) -> None:
    for arguments in (
        {"data": lake / "broken.parquet"},
        {"data": [lake / "ok.parquet", lake / "broken.parquet"]},
        {"data": lake, "tables": {"other": lake / "unfit"}},
        {"data": lake / "unfit"},
    ):
        with pytest.raises(relaqs.DataError, match=r"cannot be read as Parquet|no type holds"):
            connect(**arguments)
    db = connect(lake, tables={"broken": lake / "ok.parquet"})
    assert exact_rows(db, "SELECT count(*) AS n FROM broken") == [(3,)]


def test_a_layout_with_a_damaged_manifest_is_left_out(connect: Connect, tmp_path: Path) -> None:
    for name in ("one", "two"):
        relaqs.shuffle(pa.table({"x": range(100)}), tmp_path / "wh" / name, partitions=2)
    (tmp_path / "wh" / "one" / "manifest.json").write_text("{")
    db = connect(tmp_path / "wh")
    assert exact_rows(db, "SELECT count(*) AS n FROM two") == [(100,)]
    with pytest.raises(relaqs.LayoutError, match=r"manifest\.json"):
        db.plan("SELECT * FROM one")
    (tmp_path / "wh" / "two" / "manifest.json").write_text("{")
    with pytest.raises(relaqs.LayoutError, match=r"manifest\.json"):
        connect(tmp_path / "wh")


@pytest.mark.parametrize("odd", ["@", "ONE", "one@other"])
def test_a_layout_that_cannot_stand_beside_the_others_is_left_out(
    connect: Connect, tmp_path: Path, odd: str
) -> None:
    for name, count in (("one", 100), (odd, 50), ("two", 10)):
        relaqs.shuffle(pa.table({"x": range(count)}), tmp_path / "wh" / name, partitions=2)
    db = connect(tmp_path / "wh")
    assert list(db.left_out) == ["one" if odd == "ONE" else odd]  # the first by name stays
    assert exact_rows(db, "SELECT count(*) AS n FROM two") == [(10,)]


def test_commands_go_on_with_the_tables_that_open(lake: Path) -> None:
    run = CliRunner().invoke
    listed = run(program, ["tables", "--data", str(lake)])
    assert listed.exit_code == 0
    assert [line.split()[-2:] for line in listed.stdout.splitlines()[3:6]] == [["left", "out"]] * 3
    asked = run(program, ["sql", "--data", str(lake), "--format", "csv", "SELECT count(*) AS n FROM ok"])
    assert asked.stdout == "n\n3\n"
    failed = run(program, ["sql", "--data", str(lake), "SELECT count(*) AS n FROM unfit"])
    assert failed.exit_code == 1
    assert "no type holds the values of both" in failed.stderr


def test_a_server_goes_on_with_the_tables_that_open(lake: Path) -> None:
    with serving(lake, "--threads", "1") as running, psycopg.connect(running.address()) as connection:
        connection.autocommit = True
        grown = connection.execute("SELECT count(*), count(v) FROM grown").fetchone()
        assert grown == (2 * ROWS, ROWS - len(range(0, ROWS, 11)))
        shown = connection.execute("SELECT tablename FROM pg_tables ORDER BY 1").fetchall()
        assert shown == [("grown",), ("ok",)]
        with pytest.raises(psycopg.DataError, match="no type holds the values of both"):
            connection.execute("SELECT * FROM public.unfit")
