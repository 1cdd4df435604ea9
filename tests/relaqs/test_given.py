"""What `connect` is given, of every kind: it answers as DuckDB does for the same thing."""

from __future__ import annotations

import decimal
import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from relaqs_engine.duck import Cursor

import relaqs
from tests.relaqs.sessions import Connect, every_snapshot, exact_rows
from tests.rows import rows_of

ROWS = pa.table(
    {
        "id": range(1_000),
        "zone": [f"zone {i % 7}" if i % 11 else None for i in range(1_000)],
        "fare": [i * 0.25 for i in range(1_000)],
        "two words": [i % 3 == 0 for i in range(1_000)],
    }
)
SQL = """
    SELECT zone, count(*) AS n, sum(fare) AS fare, bool_or("two words") AS b FROM trips
    GROUP BY zone ORDER BY zone
"""


def answer(db: relaqs.Session, sql: str = SQL) -> list[tuple[object, ...]]:
    return exact_rows(db, sql)


def oracle(source: object, sql: str = SQL) -> list[tuple[object, ...]]:
    """Return what DuckDB answers over the thing itself, or over the files that SQL names."""
    with duckdb.connect() as connection:
        if isinstance(source, str):
            connection.execute(f"CREATE VIEW trips AS SELECT * FROM {source}")
        else:
            connection.register("trips", source)
        return connection.execute(sql).fetchall()


IN_MEMORY: dict[str, Callable[[], object]] = {
    "pandas": lambda: ROWS.to_pandas(),
    "polars": lambda: pl.from_arrow(ROWS),
    "a lazy frame": lambda: pl.from_arrow(ROWS).lazy().filter(pl.col("id") >= 0),
    "Arrow table": lambda: ROWS,
    "Arrow batch": lambda: ROWS.to_batches()[0],
    "Arrow reader": lambda: ROWS.to_reader(max_chunksize=64),
    "Arrow dataset": lambda: pyarrow.dataset.dataset(ROWS),
    "relation": lambda: duckdb.from_arrow(ROWS),
}


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_data_in_memory_are_a_table(connect: Connect, kind: str, tmp_path: Path) -> None:
    make = IN_MEMORY[kind]
    db = connect(tables={"trips": make()})
    assert answer(db) == answer(db) == oracle(ROWS)
    db.close()
    assert list((tmp_path / "cache").glob("sessions/*")) == []


def test_a_frame_without_a_name_is_called_data(connect: Connect) -> None:
    assert answer(connect(ROWS.to_pandas()), "SELECT count(*) AS n FROM data") == [(1_000,)]


def test_a_frame_is_as_it_was_when_it_was_given(connect: Connect) -> None:
    frame = ROWS.to_pandas()
    db = connect(tables={"trips": frame})
    frame.loc[:, "fare"] = 0.0
    frame["zone"] = "elsewhere"
    assert answer(db) == oracle(ROWS)


def test_data_in_memory_join_a_layout(connect: Connect, tmp_path: Path) -> None:
    relaqs.shuffle(ROWS, tmp_path / "warehouse" / "trips", partitions=20)
    zones = pd.DataFrame({"zone": [f"zone {i}" for i in range(7)], "city": list("aabbccd")})
    sql = "SELECT city, sum(fare) AS fare FROM trips JOIN zones USING (zone) GROUP BY city ORDER BY city"
    db = connect(tmp_path / "warehouse", tables={"zones": zones})
    first, *_, last = every_snapshot(lambda: db.online_sql(sql, batches=20))
    with duckdb.connect() as connection:
        connection.register("trips", ROWS)
        connection.register("zones", zones)
        expected = connection.execute(sql).fetchall()
    assert not first.is_exact
    assert rows_of(last.estimate) == expected


def test_data_in_memory_can_be_laid_out_for_estimates(connect: Connect, tmp_path: Path) -> None:
    frame = pa.concat_tables([ROWS] * 20).to_pandas()
    db = connect(tables={"trips": frame})
    assert db.lay_out("trips").is_sampled
    first, *_, last = every_snapshot(lambda: db.online_sql(SQL))
    assert not first.is_exact
    assert rows_of(last.estimate) == oracle(frame)
    db.close()
    assert list((tmp_path / "cache").iterdir()) == [tmp_path / "cache" / "sessions"]


def test_what_a_killed_session_left_is_removed_by_the_next(connect: Connect, tmp_path: Path) -> None:
    program = (
        "import os, signal, duckdb, relaqs\n"
        f"db = relaqs.connect(duckdb.sql('SELECT 1 AS x'), cache_directory={str(tmp_path / 'cache')!r})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=False, timeout=120)
    living = connect(duckdb.sql("SELECT 2 AS x"))
    (left,) = (tmp_path / "cache" / "sessions").iterdir()
    connect(duckdb.sql("SELECT 3 AS x")).close()
    assert left.is_dir()
    assert answer(living, "SELECT x FROM data") == [(2,)]


def write_files(folder: Path) -> dict[str, tuple[Any, str]]:
    """Return what to give, and how DuckDB reads it."""
    folder.mkdir()
    frame = ROWS.to_pandas()
    pq.write_table(ROWS, folder / "trips.parquet")
    frame.to_csv(folder / "trips.csv", index=False)
    frame.to_csv(folder / "trips.tsv.gz", index=False, sep="\t")
    frame.to_json(folder / "trips.ndjson", orient="records", lines=True)
    with gzip.open(folder / "trips.json.gz", "wt") as file:
        file.write(frame.to_json(orient="records"))
    for half, rows in enumerate((ROWS.slice(0, 400), ROWS.slice(400))):
        (folder / "hive" / f"half={half}").mkdir(parents=True)
        pq.write_table(rows, folder / "hive" / f"half={half}" / "part.parquet")
        rows.to_pandas().to_json(folder / f"part-{half}.jsonl", orient="records", lines=True)
    os.link(folder / "trips.parquet", folder / "no ending")
    hive = f"read_parquet('{folder}/hive/*/*.parquet')"
    return {
        "Parquet": (folder / "trips.parquet", f"'{folder}/trips.parquet'"),
        "no ending": (folder / "no ending", f"'{folder}/trips.parquet'"),
        "CSV": (folder / "trips.csv", f"'{folder}/trips.csv'"),
        "packed TSV": (folder / "trips.tsv.gz", f"read_csv('{folder}/trips.tsv.gz')"),
        "JSON lines": (folder / "trips.ndjson", f"'{folder}/trips.ndjson'"),
        "packed JSON": (folder / "trips.json.gz", f"read_json('{folder}/trips.json.gz')"),
        "JSON glob": (str(folder / "part-*.jsonl"), f"read_json('{folder}/part-*.jsonl')"),
        "hive folder": (folder / "hive", hive),
        "hive glob": (f"{folder}/hive/*/*.parquet", hive),
        "list": ([folder / "hive" / f"half={half}" / "part.parquet" for half in (0, 1)], hive),
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, str]]:
    return write_files(tmp_path_factory.mktemp("given") / "files")


@pytest.mark.parametrize(
    "kind",
    [
        "Parquet",
        "no ending",
        "CSV",
        "packed TSV",
        "JSON lines",
        "packed JSON",
        "JSON glob",
        "hive folder",
        "hive glob",
        "list",
    ],
)
def test_files_are_a_table(connect: Connect, files: dict[str, tuple[Any, str]], kind: str) -> None:
    source, sql = files[kind]
    db = connect(tables={"trips": source})
    assert answer(db) == oracle(sql)
    columns = [(column.name, column.type) for column in db.tables["trips"].columns]
    assert columns == [row[:2] for row in oracle(sql, "DESCRIBE SELECT * FROM trips")]


def test_a_folder_that_is_given_has_tables_by_their_names(connect: Connect, tmp_path: Path) -> None:
    write_files(tmp_path / "data")
    for name in ("trips.csv", "trips.tsv.gz", "trips.ndjson", "trips.json.gz", "no ending"):
        (tmp_path / "data" / name).unlink()
    (tmp_path / "data" / "README.txt").write_text("what is here")
    (tmp_path / "data" / "zones.csv.gz").write_bytes(gzip.compress(b"zone,city\n1,a\n"))
    (tmp_path / "data" / "_temporary").mkdir()
    pq.write_table(ROWS, tmp_path / "data" / "_temporary" / "half_written.parquet")
    assert sorted(connect(tmp_path / "data").tables) == ["hive", "part_0", "part_1", "trips", "zones"]


@pytest.mark.parametrize(
    "given", ["hive", "hive/", "hive/*/*.parquet", "hive/half=?/part.parquet", "hive/**"]
)
def test_a_hive_folder_or_a_pattern_is_one_table(
    connect: Connect, tmp_path: Path, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "data")
    monkeypatch.chdir(tmp_path / "data")
    name = "part" if "part" in given else "hive"
    assert answer(connect(given), f"SELECT half, count(*) AS n FROM {name} GROUP BY half ORDER BY half") == [
        (0, 400),
        (1, 600),
    ]


def test_a_folder_of_many_files_is_opened_by_their_footers(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them took five statements and 13 ms of a core, and 300 of them four seconds."""
    folder, ran, rows = tmp_path / "trips", list[str](), Cursor.rows
    folder.mkdir()
    for number in range(25):
        pq.write_table(ROWS.slice(number, 10), folder / f"part_{number:02d}.parquet")

    def noted(cursor: Cursor, sql: str) -> list[tuple[Any, ...]]:
        ran.append(sql)
        return rows(cursor, sql)

    with monkeypatch.context() as patch:
        patch.setattr(Cursor, "rows", noted)
        db = connect(folder)
    assert 0 < len(ran) <= 2 * 25
    assert answer(db, "SELECT count(*) AS n FROM part_07") == [(10,)]
    with pytest.raises(relaqs.SqlError, match="to read files as one table, give a pattern, as in 'data/"):
        db.online_sql("SELECT count(*) AS n FROM trips")
    assert answer(connect(folder / "*.parquet"), "SELECT count(*) AS n FROM trips") == [(250,)]


def test_a_list_is_several_tables(connect: Connect, tmp_path: Path) -> None:
    write_files(tmp_path / "data")
    db = connect([tmp_path / "data" / "trips.csv", str(tmp_path / "data" / "hive")])
    assert sorted(db.tables) == ["hive", "trips"]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(path) as connection:
        connection.register("given", ROWS)
        connection.execute("CREATE TABLE trips AS SELECT * FROM given")
        connection.execute("CREATE VIEW late AS SELECT * FROM trips WHERE id > 900")
        connection.execute(
            "CREATE SCHEMA old; CREATE TABLE old.trips AS SELECT 1 AS x; "
            "CREATE TABLE old.zones AS SELECT 2 AS x"
        )
        connection.execute(
            "CREATE TYPE mood AS ENUM ('sad', 'happy'); "
            "CREATE TABLE moods AS SELECT unnest(['happy', 'sad'])::mood AS m"
        )
        (tmp_path / "passwords.csv").write_text("name,password\na,b\n")
        connection.execute(f"CREATE VIEW passwords AS SELECT * FROM '{tmp_path}/passwords.csv'")
    return path


def test_a_duckdb_file_has_its_tables_views_and_schemas(connect: Connect, shop: Path) -> None:
    db = connect(shop)
    assert sorted(db.tables) == ["late", "moods", "old_trips", "trips", "zones"]
    assert answer(db) == oracle(ROWS)
    assert answer(db, "SELECT count(*) AS n FROM late") == [(99,)]
    assert answer(db, "SELECT o.x + z.x AS y FROM old_trips AS o, zones AS z") == [(3,)]
    assert answer(db, "SELECT m FROM moods ORDER BY m") == [("sad",), ("happy",)]
    assert answer(connect(tables={"late": shop}), "SELECT count(*) AS n FROM late") == [(99,)]


@pytest.fixture(scope="module")
def branches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a DuckDB file with one table in three schemas, and another in one."""
    path = tmp_path_factory.mktemp("branches") / "firm.duckdb"
    with duckdb.connect(path) as connection:
        for schema, count in (("north", 3), ("south", 5)):
            rows = f"SELECT i, {count} AS c FROM range({count}) t(i)"
            connection.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.sales AS {rows}")
        connection.execute("CREATE TABLE south.staff AS SELECT 7 AS i; CREATE TABLE kinds AS SELECT 2 AS i")
        connection.execute("CREATE TABLE north.kinds AS SELECT range AS i FROM range(5)")
    return path


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sum(i) FROM north.sales",
        "SELECT sales.i, south.sales.c FROM South.Sales ORDER BY i LIMIT 1",
        'SELECT count(*) FROM "south"."sales" AS s JOIN north.sales AS n ON s.i = n.i',
        "SELECT max(north.sales.c), max(south.sales.c) FROM north.sales JOIN south.sales USING (i)",
        "SELECT count(*) FROM firm.north.sales",
        "SELECT south.staff.i, staff.* FROM south.staff",
        "SELECT kinds.i FROM firm.kinds",
        "SELECT firm.kinds.i FROM firm.main.kinds",
        "WITH sales AS (SELECT 1 AS x) SELECT count(*), max(x) FROM north.sales, sales",
        "SELECT i FROM north.sales WHERE i NOT IN (SELECT i FROM south.sales WHERE i > 1) ORDER BY i",
        "SELECT count(*) FROM north.kinds WHERE NOT EXISTS (FROM kinds WHERE main.kinds.i = north.kinds.i)",
        "SELECT north.kinds.i FROM (north.kinds CROSS JOIN kinds) ORDER BY i",
        "SELECT (SELECT max(north.kinds.i) FROM south.staff AS kinds) FROM north.kinds",
        "SELECT max(i) FROM north.kinds WHERE i = (WITH kinds AS (SELECT 1) SELECT north.kinds.i FROM kinds)",
        "SELECT kinds.i FROM north.kinds UNION ALL SELECT kinds.i FROM kinds ORDER BY i",
    ],
)
def test_tables_of_schemas_are_called_as_in_duckdb(connect: Connect, branches: Path, sql: str) -> None:
    db = connect(branches)
    with duckdb.connect(branches, read_only=True) as connection:
        assert db.sql(sql).fetchall() == connection.sql(sql.replace("firm.kinds.i", "kinds.i")).fetchall()


def test_views_and_layouts_name_tables_of_schemas(connect: Connect, branches: Path) -> None:
    db = connect(
        branches,
        views={"joined": "SELECT n.c + s.c AS c FROM north.sales AS n JOIN south.sales AS s USING (i)"},
    )
    assert answer(db, "SELECT max(c), count(*) FROM joined") == [(8, 3)]
    assert db.lay_out("south.sales").row_count == db.refresh("SOUTH.sales").row_count == 5
    assert answer(db, "SELECT count(*) FROM south.sales, north.sales") == [(15,)]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT count(*) FROM sales", "did you mean 'north_sales' or 'south_sales'"),
        ("SELECT count(*) FROM east.sales", "there is no table east.sales"),
        ("SELECT north.sales.i FROM north.sales AS s", "north.sales"),
        (
            "SELECT count(*) FROM north.kinds WHERE NOT EXISTS (FROM kinds WHERE kinds.i = north.kinds.i)",
            "several tables kinds; rename one, as in north.kinds AS",
        ),
        (
            "SELECT count(*) FROM kinds WHERE EXISTS (FROM south.staff AS kinds WHERE main.kinds.i = 2)",
            "several tables kinds; rename one, as in kinds AS",
        ),
        ("SELECT * FROM ROWS FROM (generate_series(1,2))", "ROWS FROM is a table function"),
        ("WITH north_sales AS (SELECT 1 AS i) SELECT * FROM north.sales", "there is no table north.sales"),
    ],
)
def test_a_name_of_two_schemas_is_refused(connect: Connect, branches: Path, sql: str, said: str) -> None:
    with pytest.raises(relaqs.SqlError, match=said):
        connect(branches).sql(sql)


CALLS = [
    "read_csv('odd.csv', delim = ';', decimal_separator = ',', nullstr = ['-', 'NA'])",
    "READ_CSV( ['odd.csv', 'other.csv'],\n delim=';', header=true, types={'price': 'VARCHAR'})",
    "read_csv('o*.csv', delim = ';', all_varchar = true)",
    "read_csv('odd.csv', delim = ';', nullstr = 'é)(', skip = (0)) ",
    f"read_csv('odd.csv', delim = ';', header = false, names = ['{'n' * 300}', 'b'], skip = 1)",
]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_says_how_files_are_read(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("odd", "other"):
        (tmp_path / f"{name}.csv").write_text(f"shop;price\n{name};1,5\nx;-\ny;NA\n")
    rows = sorted(oracle(call, "FROM trips"), key=str)
    by_name, named = connect(call), connect(tables={"trips": call})
    (name,) = by_name.tables
    assert sorted(by_name.sql(f"FROM {name}").fetchall(), key=str) == rows
    assert sorted(named.sql("FROM trips").fetchall(), key=str) == rows
    assert relaqs.shuffle(call, tmp_path / "laid", partitions=2).row_count == len(rows)
    (tmp_path / "odd.csv").write_text("shop;price\nodd;2,5\n")
    named.refresh("trips")
    assert sorted(named.sql("FROM trips").fetchall(), key=str) == sorted(oracle(call, "FROM trips"), key=str)


def test_a_table_of_a_duckdb_file_is_laid_out_into_the_cache(connect: Connect, tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "shop.duckdb") as connection:
        connection.execute("CREATE TABLE trips AS SELECT range AS id, range % 7 AS zone FROM range(20000)")
    sql = "SELECT zone, sum(id) AS s FROM trips GROUP BY zone ORDER BY zone"
    db = connect(tmp_path / "shop.duckdb")
    before = answer(db, sql)
    assert db.lay_out("trips").is_sampled
    assert connect(tmp_path / "shop.duckdb").tables["trips"].is_sampled
    assert rows_of(db.online_sql(sql).result().estimate) == before


def test_a_duckdb_file_that_is_written_to_is_noticed(connect: Connect, shop: Path) -> None:
    db = connect(shop)
    answer(db)
    state = shop.stat()
    os.utime(shop, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    with pytest.raises(relaqs.DataError, match=r"shop\.duckdb changed since this session was opened"):
        answer(db)


def test_a_duckdb_file_that_another_connection_writes_to_says_what_to_do(
    connect: Connect, shop: Path
) -> None:
    with duckdb.connect(shop) as connection:
        connection.execute("INSERT INTO old.zones VALUES (4)")
        with pytest.raises(relaqs.DataError, match="close the connection that writes to it"):
            connect(shop)
        db = connect(tables={"trips": connection.table("trips")})
        assert answer(db) == oracle(ROWS)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (42, r"table 't': an int \(42\) is no table; give Parquet, CSV, JSON or DuckDB files"),
        (None, "table 't': None is no table"),
        (b"trips", r"a bytes \(b'trips'\) is no table; give a path as str"),
        ({"x": [1]}, r"a dict .* is no table; make a table of it, such as pyarrow\.table"),
        ([{"x": 1}, {"x": 2}], "a list of dict is no table; make a table of it"),
        ([ROWS, ROWS], "a list of Table is no table"),
        (ROWS.to_pandas()["id"], r"a Series is no table; give a DataFrame"),
        (pl.Series([1]), r"a Series is no table; give a DataFrame"),
        (pa.chunked_array([[1]]), "a ChunkedArray is no table"),
        (pd.DataFrame(), "a DataFrame without columns is no table"),
        (pd.DataFrame({"x": [1j]}), "table 't': a DataFrame cannot be read: .*complex128"),
        ("trps.parquet", r"there is no file trps\.parquet; did you mean trips\.parquet"),
        ("empty", r"the folder .*empty holds no Parquet, CSV or JSON file"),
        (
            "mixed",
            r"trips\.csv is CSV and trips\.parquet is Parquet; give files of one kind, .*/\*\.parquet",
        ),
        ("table.xlsx", r"table\.xlsx is of no known kind \(it looks like a ZIP archive"),
        ("sqlite.db", r"sqlite\.db is no DuckDB file \(it looks like SQLite\)"),
        ("text.parquet", r"text\.parquet cannot be read as Parquet .*it looks like JSON"),
        (["shop.duckdb", "shop.duckdb "], "one of 2 files; give one at a time"),
        ("read_csv('none.csv', delim=';')", r"there is no file none\.csv"),
        ("read_csv('mixed/trips.csv', delm=';')", r"cannot be read: .*delm.*did you mean 'delim'"),
        ("read_csv('mixed/trips.csv', delim=';'), read_csv('mixed/trips.csv', header=true)", "there is no"),
        ("read_csv('mixed/trips.csv', header=true -- )", "there is no"),
        ("read_csv('s3://b/trips.csv', delim=';')", "reads what is not on this machine"),
        ("shop.duckdb", "has no table 't', but a, b; name one of these, or give the file itself"),
    ],
)
def test_what_is_no_table_is_named_with_what_is_accepted(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: object, complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "README.md").write_text("nothing yet")
    (tmp_path / "mixed").mkdir()
    pq.write_table(ROWS, tmp_path / "trips.parquet")
    for name in ("trips.parquet", "trips.csv"):
        (tmp_path / "mixed" / name).write_text("id\n1\n")
    (tmp_path / "table.xlsx").write_bytes(b"PK\x03\x04")
    (tmp_path / "sqlite.db").write_bytes(b"SQLite format 3\x00")
    (tmp_path / "text.parquet").write_text('{"x": 1}')
    for name in ("shop.duckdb", "shop.duckdb "):
        with duckdb.connect(tmp_path / name) as connection:
            connection.execute("CREATE TABLE a AS SELECT 1 AS x; CREATE TABLE b AS SELECT 2 AS x")
    with pytest.raises(
        relaqs.LayoutError if "cannot be read" not in complaint else relaqs.DataError, match=complaint
    ):
        connect(tables={"t": given})
    assert not list((tmp_path / "cache").rglob("*.parquet"))


def odd_columns() -> pa.Table:
    """Return a row and a NULL of each type that people have and tests forget."""
    moments = pa.array([0, None], pa.timestamp("us", "Europe/Berlin"))
    return pa.table(
        {
            "a b": [1, None],
            'c"d': ["it's", None],
            "😀": [b"\x00", None],
            "select": [decimal.Decimal("1.50"), None],
            "s": [{"x": 1, "y": "a"}, None],
            "l": [[1, 2], None],
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "c": pa.array(["z", None]).dictionary_encode(),
            "t": moments,
            "n": pa.nulls(2),
            "u": pa.array([1, None], pa.duration("us")),
            "h": pa.array([2**64 - 1, None], pa.uint64()),
            "f": [float("nan"), None],
        }
    )


@pytest.mark.parametrize("rows", [2, 0])
@pytest.mark.parametrize(
    "make", [lambda t: t, lambda t: t.to_pandas(), pl.from_arrow], ids=["arrow", "pandas", "polars"]
)
def test_odd_columns_are_what_duckdb_makes_of_them(
    connect: Connect, make: Callable[[pa.Table], Any], rows: int
) -> None:
    given = make(odd_columns().slice(0, rows))
    db = connect(tables={"trips": given})
    with duckdb.connect() as connection:
        connection.register("trips", given)
        expected = connection.sql("FROM trips").to_arrow_table()
        types = [row[:2] for row in connection.execute("DESCRIBE FROM trips").fetchall()]
    assert [(column.name, column.type) for column in db.tables["trips"].columns] == types
    found = db.online_sql("SELECT * FROM trips").result().estimate
    assert repr(found.to_pylist()) == repr(expected.to_pylist())


def test_columns_of_an_enum_are_not_laid_out_behind_the_questions(connect: Connect) -> None:
    """A layout would have texts, which have another order."""
    db = connect(tables={"trips": odd_columns().to_pandas(), "zones": ROWS})
    tables = db.tables
    assert not tables["trips"].answers_alike_laid_out  # type: ignore[attr-defined]
    assert tables["zones"].answers_alike_laid_out  # type: ignore[attr-defined]


def test_no_library_of_frames_is_imported_to_tell_what_was_given(tmp_path: Path) -> None:
    program = (
        "import sys, duckdb, relaqs\n"
        "rows = duckdb.sql('SELECT 1 AS x').to_arrow_table()\n"
        f"db = relaqs.connect(rows, cache_directory={str(tmp_path)!r})\n"
        "print([name for name in ('pandas', 'polars', 'deltalake', 'pyiceberg') if name in sys.modules])\n"
        "db.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "[]\n"


def test_an_empty_path_is_not_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(ROWS, tmp_path / "trips.parquet")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(relaqs.LayoutError, match="the path is empty"):
        relaqs.connect("")
    with pytest.raises(relaqs.LayoutError, match="the path is empty"):
        relaqs.shuffle("", tmp_path / "laid out")
    relaqs.connect(".").close()


def test_a_reader_that_was_read_before_is_no_empty_table(connect: Connect) -> None:
    reader = ROWS.to_reader()
    assert answer(connect(reader), "SELECT count(*) AS n FROM data") == [(1_000,)]
    with pytest.raises(relaqs.DataError, match="has already been consumed"):
        connect(reader)


CODES = "SELECT i AS id, {column} AS size FROM range(40) AS r(i)"
BY_ALPHABET = CODES.format(column="['big', 'small'][1 + i % 2]::ENUM ('big', 'small')")
OTHERWISE = (
    CODES.format(column="['big', 'small'][1 + i % 2]::ENUM ('small', 'big')"),
    CODES.format(column="[['big', 'it''s'][1 + i % 2]::ENUM ('it''s', 'big')]"),
    CODES.format(column="{'a': 'big'::ENUM ('small', 'big')}"),
)


@pytest.mark.parametrize(
    ("kind", "rows"),
    [("pandas", OTHERWISE[0]), *((kind, rows) for kind in ("relation", "duckdb") for rows in OTHERWISE)],
)
def test_categories_in_another_order_than_the_alphabet_are_not_copied(
    tmp_path: Path, kind: str, rows: str
) -> None:
    source = _as(kind, rows, tmp_path)
    for copy in (relaqs.add_static, relaqs.shuffle):
        with pytest.raises(
            relaqs.LayoutError, match=r"categories of column 'size' are in the order .*cast it"
        ):
            copy(source, tmp_path / copy.__name__)


@pytest.mark.parametrize("kind", ["relation", "pandas", "duckdb"])
def test_categories_in_the_order_of_the_alphabet_are_texts_in_a_layout(
    connect: Connect, tmp_path: Path, kind: str
) -> None:
    source = _as(kind, BY_ALPHABET, tmp_path)
    relaqs.shuffle(source, tmp_path / "laid" / "t", partitions=3)
    relaqs.add_static(source, tmp_path / "laid" / "s")
    for table in ("t", "s"):
        sql = f"SELECT max(size) AS most, min(size) AS least, count(*) FROM {table} WHERE size <= 'big'"
        assert answer(connect(tmp_path / "laid"), sql) == [("big", "big", 20)]


def _as(kind: str, rows: str, folder: Path) -> Any:
    connection = duckdb.connect(folder / "codes.duckdb")
    relation = connection.sql(rows)
    if kind == "relation":
        return relation
    if kind == "pandas":
        return relation.df()
    connection.execute(f"CREATE TABLE codes AS {rows}")
    connection.close()
    return folder / "codes.duckdb"


def test_a_layout_of_a_duckdb_file_is_of_the_table_that_its_folder_is_called_like(tmp_path: Path) -> None:
    shop = tmp_path / "shop.duckdb"
    with duckdb.connect(shop) as connection:
        connection.execute("CREATE TABLE a AS SELECT 1 AS x; CREATE TABLE b AS FROM range(2) AS t(x)")
    assert relaqs.shuffle(shop, tmp_path / "laid" / "B").row_count == 2
    with pytest.raises(relaqs.LayoutError, match="has no table 'c' or 'shop', but a, b; name one of these"):
        relaqs.shuffle(shop, tmp_path / "laid" / "c")


def test_a_warehouse_among_files_is_left_out_by_its_name(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "trips.parquet")
    relaqs.shuffle(tmp_path / "trips.parquet", tmp_path / "warehouse" / "trips")
    with relaqs.connect(tmp_path) as db:
        assert list(db.tables) == ["trips"]
        why = str(db.left_out["warehouse"])
    assert "is a warehouse, with tables of its own; open it alone: --data" in why
