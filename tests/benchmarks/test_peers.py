"""The runner of other engines' test files reads them, asks their queries, and fails on a wrong answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import peers

RECORDS = """# name: sums
#comment
statement ok
CREATE TABLE t AS SELECT i AS id, i % 3 AS g, i * 0.5 AS x FROM range(30) AS r(i)

require parquet

query II rowsort
SELECT g, sum(x) FROM t GROUP BY g
----
0	67.5

statement error
SELECT nothing FROM t

foreach f sum avg max

query I
SELECT ${f}(id) FROM t
----
1

endloop

statement ok
DELETE FROM t WHERE id > 9

query I
SELECT first(id) FROM t
----
0

query I
SELECT missing FROM t
----

query I
SELECT current_setting('threads')
----
"""
SCRIPT = """\\set ON_ERROR_STOP
CREATE TABLE t AS SELECT i AS id FROM range(5) AS r(i);
SELECT count(*) FROM t; -- five; no more
-- the last ones
BEGIN; EXPLAIN (costs off) SELECT id FROM t
WHERE id > 2 ORDER BY id;
SELECT id FROM t
WHERE id > 2 ORDER BY id;
"""
SETUP = r"""\getenv here PG_ABS_SRCDIR
\set filename :here '/data/u.data'
/* the tables */
CREATE TABLE u (id int, word name);
COPY u FROM :'filename';
COPY u (id, word) FROM stdin;
3|it's
4|\N
5|a\\b;
\.
SELECT count(*) FROM u \gset
CREATE VIEW w AS SELECT id + 1 AS id FROM u;
""".replace("|", "\t")


def test_statements_are_read_from_both_kinds_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.test").write_text(RECORDS)
    (tmp_path / "b.sql").write_text(SCRIPT)
    records = list(peers.statements_of(tmp_path / "a.test"))
    assert records[:4] == [
        "CREATE TABLE t AS SELECT i AS id, i % 3 AS g, i * 0.5 AS x FROM range(30) AS r(i)",
        "SELECT g, sum(x) FROM t GROUP BY g",
        "SELECT sum(id) FROM t",
        "SELECT avg(id) FROM t",
    ]
    assert list(peers.statements_of(tmp_path / "b.sql"))[1:] == [
        "SELECT count(*) FROM t",
        "SELECT id FROM t\nWHERE id > 2 ORDER BY id",
    ]


def test_a_script_for_psql_makes_tables_for_others(tmp_path: Path) -> None:
    (tmp_path / "sql").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "sql" / "setup.sql").write_text(SETUP)
    (tmp_path / "data" / "u.data").write_text("1\tone\n2\t\\N\n")
    peer = peers.Peer(tmp_path, "rows")
    peer.set_up([tmp_path / "sql" / "setup.sql"])
    rows = peer._duckdb.sql("FROM u ORDER BY id").fetchall()
    assert rows == [(1, "one"), (2, None), (3, "it's"), (4, None), (5, "a\\b;")]
    for sql in ("SELECT max(word) FROM u", "SELECT sum(id) FROM w"):
        found = peer.outcome(sql)
        assert found is not None
        assert found.kind == "equal"


@pytest.mark.slow
def test_each_query_is_asked_in_each_way(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.test").write_text(RECORDS)
    (tmp_path / "b.sql").write_text(SCRIPT)
    assert peers.main([str(tmp_path), "--ways", "file,rows,key"]) == 0
    printed = " ".join(capfd.readouterr().out.split())
    for said in (
        "2 files, 24 queries, 21 asked that DuckDB answers 15 equal",
        "3 both refuse",
        "3 ambiguous",
        "3 refused: the function",
    ):
        assert said in printed


def test_a_wrong_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = peers.Peer(tmp_path, "rows")
    assert peer.outcome("CREATE TABLE t AS SELECT i AS id FROM range(40) AS r(i)") is None
    found = peer.outcome("SELECT count(*) FROM t")
    assert found is not None
    assert found.kind == "equal"
    (tmp_path / "1" / "t" / "0.parquet").write_bytes((tmp_path / "1" / "t" / "1.parquet").read_bytes())
    monkeypatch.setattr(peers, "_ORDERS", ("",))
    peers.duckdb.sql("FROM range(41)").write_parquet(str(tmp_path / "1" / "t" / "0.parquet"))
    found = peer.outcome("SELECT count(*) FROM t")
    assert found is not None
    assert (found.kind, found.detail) == ("wrong", "values: (40,), DuckDB has (41,)")
