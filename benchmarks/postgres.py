"""Ask the same statements of a real Postgres and of `relaqs serve` over the same rows, and compare.

    python -m benchmarks.postgres [--count 3000] [--seed 1] [--show 20]

Statements are drawn from what BI tools and people write: arithmetic of integers and decimals, casts,
rounding, NULLs in ORDER BY, patterns, times as texts, series, groups, windows. The exit status is 1
where an answer, the name of a column or a division by zero differs and the server did not refuse. It needs
the programs of a Postgres server (`postgresql` in Debian).
"""

from __future__ import annotations

import argparse
import math
import os
import pwd
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from benchmarks.server_process import serving

ROWS = 400
_COLUMNS = (
    *(
        ("a", "int"),
        ("b", "bigint"),
        ("s", "smallint"),
        ("x", "float8"),
        ("n", "numeric(10,2)"),
        ("d", "date"),
    ),
    *(("m", "timestamp"), ("w", "text"), ("k", "int")),
)
_OF_DUCKDB = {"float8": "DOUBLE", "numeric(10,2)": "DECIMAL(10,2)", "text": "VARCHAR"}
_FORMS = ("YYYY-MM", "YYYY-MM-DD", "DD.MM.YYYY", "HH24:MI", "YYYY", "Mon YYYY", "IYYY-IW", "yyyy-mm-dd")
_OTHERS = (
    *(
        "SELECT generate_series(1, 3)",
        "SELECT k, generate_series(1, 2) FROM t WHERE k < 3 ORDER BY 1, 2",
        "SELECT 7/2",
    ),
    *(
        "SELECT 1/0",
        "SELECT k FROM t ORDER BY k FOR UPDATE",
        "SELECT s, count(*) FROM t GROUP BY s ORDER BY count DESC, s",
    ),
    *(
        "SELECT * FROM current_schema()",
        "SELECT s / 2, sum FROM (SELECT s, sum(a) FROM t GROUP BY s) q ORDER BY 2 DESC, 1",
    ),
    *(
        "SELECT faer FROM t",
        "SELECT k FROM tt",
        "SELECT nope(k) FROM t",
        "SELECT 'a'::int",
        "SELECT 1 FROM t GROUP",
    ),
    *("SELECT round(0.0179005::float8::numeric, 6)", "SELECT 1.5::numeric", "SELECT -7 / 2, -7 % 3, 7.0 / 2"),
    *(
        "SELECT a IS DISTINCT FROM s FROM t ORDER BY k",
        "SELECT DISTINCT s FROM t ORDER BY s DESC",
        "SELECT k FROM t LIMIT 0",
    ),
    *(
        "SELECT max(count) FROM (SELECT count(*) FROM t GROUP BY s) q",
        "SELECT coalesce(sum(a), 0) / count(*) FROM t WHERE k < 0",
    ),
    *(
        "SELECT 2147483647 + 1",
        "SELECT 5 / 2.0, 5 / 2::float8",
        "SELECT true, null, current_date IS NULL",
        "SELECT '1'::int + 1",
    ),
    *(
        "SELECT a FROM t WHERE w = $$a$$ ORDER BY k",
        "SELECT x FROM t ORDER BY x DESC LIMIT 70",
        "SELECT k FROM t FETCH FIRST 3 ROWS ONLY",
    ),
)
_CODES_THAT_TOOLS_READ = {"42601", "42703", "42P01", "42883", "22P02", "22012"}
_KEYS = ("s", "w", "date_trunc('month', d)", "a / 5", "to_char(d, 'YYYY-MM')", "extract(year from d)")
_PATTERNS = ("a%", "%b", "_a%", "(a|b)%", "%[bc]", "a.c", "%", "ab+")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said: its columns' names and rows, or an error's SQLSTATE and words."""

    names: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    code: str = ""
    said: str = ""


def programs() -> Path | None:
    """Return the folder of the programs of a Postgres server, None where none is installed."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((each for each in reversed(folders) if (each / "postgres").exists()), None)


@contextmanager
def postgres(bin_: Path) -> Iterator[str]:
    """Give the address of a Postgres server of its own. It ends with the block."""
    user = "postgres" if os.getuid() == 0 else None  # it does not run as root
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        if user is not None:
            entry = pwd.getpwnam(user)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        common: dict[str, Any] = {"user": user, "check": True, "stdout": subprocess.DEVNULL, "cwd": folder}
        subprocess.run(
            [bin_ / "initdb", "-D", data, "-U", "ana", "-A", "trust", "-E", "UTF8", "--locale=C"], **common
        )
        options = f"-k {folder} -c listen_addresses='' -c fsync=off -c timezone=UTC"
        subprocess.run(
            [bin_ / "pg_ctl", "-D", data, "-w", "-l", data / "log", "-o", options, "start"], **common
        )
        try:
            yield f"host={folder} user=ana dbname=postgres"
        finally:
            subprocess.run([bin_ / "pg_ctl", "-D", data, "-m", "immediate", "stop"], **common)


def rows_of(rng: random.Random) -> list[tuple[Any, ...]]:
    """Return rows of the table `t`. One value in eight is NULL but for k, which numbers the rows."""

    def some(value: Any) -> Any:
        return None if rng.random() < 0.125 else value

    return [
        (
            some(rng.randint(-20, 20)),
            some(rng.randint(-(10**12), 10**12)),
            some(rng.randint(-5, 5)),
            some(rng.choice([rng.uniform(-3, 3), rng.uniform(0, 1e6), float(rng.randint(-4, 4))])),
            some(Decimal(rng.randint(-100_000, 100_000)) / 100),
            some(f"{rng.randint(2019, 2024)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"),
            some(f"2023-{rng.randint(1, 12):02d}-0{rng.randint(1, 9)} {rng.randint(0, 23):02d}:07:11"),
            some("".join(rng.choice("abc.") for _ in range(rng.randint(0, 4)))),
            k,
        )
        for k in range(ROWS)
    ]


class Drawn:
    """Draws statements. The same seed gives the same."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def statement(self) -> str:
        """Return a statement whose rows have one order, or are a set."""
        shape = self._rng.randrange(8)
        if shape == 0:
            return f"SELECT {self._several(self._scalar)} FROM t ORDER BY k"
        if shape == 1:
            return f"SELECT {self._several(self._total)} FROM t{self._where()}"
        if shape == 2:
            key = self._rng.choice(_KEYS)
            selected, way = f"{key}, {self._several(self._total)}", self._way()
            return f"SELECT {selected} FROM t{self._where()} GROUP BY 1 ORDER BY 1{way}"
        if shape == 3:
            by = self._rng.choice(("a", "n", "d", 'w COLLATE "C"', "x"))
            most = self._rng.randint(1, 60)
            return f"SELECT k, {self._scalar()} FROM t ORDER BY {by}{self._way()}, k LIMIT {most}"
        if shape == 4:
            return f"SELECT k, {self._window()} FROM t ORDER BY k"
        if shape == 7:
            return self._rng.choice(_OTHERS)
        if shape == 5:
            inner = "SELECT k, a, b, s, x, n, d, m, w FROM t"
            return f"SELECT {self._scalar()} FROM ({inner}) q{self._where()} ORDER BY k"
        inner = f"SELECT s, {self._total()} AS v FROM t GROUP BY s"
        outer = self._rng.choice(("v", "s * 3 / 2", "s::numeric / 4"))
        return f"WITH q AS ({inner}) SELECT s, v, {outer} FROM q ORDER BY s"

    def _several(self, one: Any) -> str:
        return ", ".join(one() for _ in range(self._rng.randint(1, 3)))

    def _way(self) -> str:
        return self._rng.choice(("", " ASC", " DESC", " DESC", " DESC NULLS LAST", " NULLS FIRST"))

    def _where(self) -> str:
        return self._rng.choice(("", "", f" WHERE {self._condition()}"))

    def _condition(self) -> str:
        rng = self._rng
        return rng.choice(
            (
                f"{self._integer(1)} > {rng.randint(-3, 9)}",
                f"w SIMILAR TO '{rng.choice(_PATTERNS)}'",
                f"w NOT SIMILAR TO '{rng.choice(_PATTERNS)}'",
                f"w LIKE '{rng.choice(('a%', '%b_', '_'))}'",
                f"a BETWEEN SYMMETRIC {rng.randint(-9, 9)} AND {rng.randint(-9, 9)}",
                "a / 2 = s",
                "x IS NOT NULL AND n > 1",
                "d >= to_date('2021-03-01', 'YYYY-MM-DD')",
                "a IN (1, 2, 3, NULL)",
            )
        )

    def _integer(self, depth: int) -> str:
        rng = self._rng
        if not depth:
            return rng.choice(
                ("a", "b", "s", "k", str(rng.randint(1, 9)), "length(w)", "7", "coalesce(a, 0)")
            )
        left, right = self._integer(depth - 1), self._integer(depth - 1)
        return rng.choice(
            (
                *(f"({left} {sign} {rng.randint(2, 9)})" for sign in "+-*/%"),
                f"({left} + {right})",
                f"({left} / {rng.randint(2, 7)})",
                f"({left} / nullif({right}, 0))",
                f"CASE WHEN {left} > 3 THEN {right} ELSE 1 END / 2",
                f"abs({left}) / 2",
            )
        )

    def _real(self) -> str:
        rng = self._rng
        return rng.choice(
            (
                f"round(x::numeric, {rng.randint(0, 6)})",
                f"round(n, {rng.randint(0, 1)})",
                "n * 2",
                "n / 4",
                "n::numeric",
                "x::numeric",
                "a::numeric / 8",
                "x / 3",
                "a / 2.0",
                "x * n::float8",
                "abs(x)",
                "a::float8 / 7",
                "round(a / 7.0, 3)",
                "ceil(n)",
                "floor(x)",
                "trunc(n, 1)",
                "sqrt(abs(x))",
                "n / s",
                "x / nullif(s, 0)",
                "x / (a - 3)",
                "0.00012::numeric * a",
            )
        )

    def _text(self) -> str:
        rng = self._rng
        return rng.choice(
            (
                f"to_char(d, '{rng.choice(_FORMS)}')",
                f"to_char(m, '{rng.choice(_FORMS)} HH24:MI:SS')",
                "format('%s-%s', w, a)",
                "format('%s %%', a)",
                "btrim(w)",
                "btrim(w, 'a')",
                "upper(w) || '-' || coalesce(a, 0)",
                "w SIMILAR TO 'a%'",
                "left(w, 2)",
                "split_part(w, 'b', 1)",
                "substring(w from 2 for 2)",
                "strpos(w, 'b')",
                "replace(w, 'a', 'xy')",
                "lpad(w, 6, '*')",
                "concat(w, a, NULL, 'z')",
                "position('b' in w)",
                "w || NULL",
                "CASE WHEN a > 0 THEN 'up' WHEN a < 0 THEN 'down' END",
                "nullif(w, 'a')",
                "greatest(a, s, 3)",
                "extract(year from d)::int",
                "extract(dow from d)",
                "date_trunc('month', m)",
                "d + 3",
                "d - date '2020-01-01'",
                "a::text",
                "(a > 3)::int",
                "n::int",
                "x::int",
                "1",
                "'text'",
            )
        )

    def _scalar(self) -> str:
        drawn = self._rng.randrange(3)
        if drawn == 0:
            return self._integer(self._rng.randint(1, 2))
        return self._real() if drawn == 1 else self._text()

    def _total(self) -> str:
        rng = self._rng
        return rng.choice(
            (
                "count(*)",
                "count(a)",
                "count(DISTINCT s)",
                "sum(a)",
                "sum(s) / count(*)",
                "sum(b) / 3",
                "avg(a)",
                "avg(n)",
                "round(avg(x)::numeric, 4)",
                "round(avg(n), 2)",
                "sum(n)",
                "sum(n) / count(*)",
                "sum(x) / sum(s)",
                "avg(x) / min(a)",
                "min(n) / count(*) FILTER (WHERE a > 19)",
                "max(w)",
                "min(d)",
                "max(a) / 2",
                "min(a / 3)",
                "sum(a / 2)",
                "count(*) / 7",
                "count(*) FILTER (WHERE a > 0) * 100 / count(*)",
                "100.0 * count(a) / count(*)",
                "sum(a)::numeric / count(*)",
                "string_agg(w, ',' ORDER BY w DESC, k)",
                "stddev(x)",
                "bool_or(a > 3)",
                "count(*)::float8 / 3",
                "max(n) - min(n)",
                "sum(CASE WHEN a > 0 THEN 1 ELSE 0 END) / 2",
                "percentile_cont(0.5) WITHIN GROUP (ORDER BY x)",
            )
        )

    def _window(self) -> str:
        return self._rng.choice(
            (
                f"row_number() OVER (ORDER BY a{self._way()}, k)",
                f"rank() OVER (ORDER BY d{self._way()})",
                "sum(a) OVER (PARTITION BY s) / 2",
                "lag(a) OVER (ORDER BY k) / 2",
                "count(*) OVER (PARTITION BY w)",
                f"first_value(a) OVER (PARTITION BY s ORDER BY n{self._way()}, k)",
                "ntile(4) OVER (ORDER BY k)",
                "avg(n) OVER (PARTITION BY s)",
            )
        )


def asked(connection: psycopg.Connection[Any], sql: str) -> Answer:
    """Return what a server answers."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql.encode())
            names = tuple(each.name for each in cursor.description or ())
            return Answer(names, tuple(cursor.fetchall()))
    except psycopg.Error as error:
        return Answer(code=error.sqlstate or "?", said=str(error).splitlines()[0])


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same to a reader: numbers to 1e-11 of themselves, whatever their type."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float | Decimal) and isinstance(other, int | float | Decimal):
        return math.isclose(one, other, rel_tol=1e-11, abs_tol=1e-11) or (one != one and other != other)
    if isinstance(one, datetime) and isinstance(other, datetime):  # date_trunc of a date has no zone here
        return one.replace(tzinfo=None) == other.replace(tzinfo=None)
    return bool(one == other)


def difference(sql: str, theirs: Answer, ours: Answer) -> str:
    """Return what differs without a word to the reader, "" where nothing does."""
    if ours.code and theirs.code and ours.code != theirs.code and theirs.code in _CODES_THAT_TOOLS_READ:
        return f"{ours.code} {ours.said[:80]}, in Postgres {theirs.code} {theirs.said[:80]}"
    if ours.code:
        return ""
    if theirs.code == "22012" and " LIMIT " in sql:
        return ""  # rows that LIMIT leaves out are not computed here
    if theirs.code:
        return f"Postgres refuses ({theirs.code} {theirs.said[:80]}), and there is an answer"
    if theirs.names != ours.names:
        return f"columns {ours.names}, in Postgres {theirs.names}"
    if len(theirs.rows) != len(ours.rows):
        return f"{len(ours.rows)} rows, in Postgres {len(theirs.rows)}"
    for place, (one, other) in enumerate(zip(theirs.rows, ours.rows, strict=True)):
        for value, mine in zip(one, other, strict=True):
            if not is_same(value, mine):
                return f"row {place}: {mine!r}, in Postgres {value!r}"
    return ""


def compare(
    count: int, seed: int, bin_: Path
) -> tuple[Counter[str], list[tuple[str, str]], list[tuple[str, str]]]:
    """Ask statements of both servers.

    Returns:
        How many were equal, refused and different; the silent differences; what we alone refuse.
    """
    rng = random.Random(seed)
    rows = rows_of(rng)
    with tempfile.TemporaryDirectory() as folder, postgres(bin_) as address:
        _lay_out(Path(folder), rows)
        with serving(Path(folder)) as server, psycopg.connect(address, autocommit=True) as real:
            _fill(real, rows)
            with psycopg.connect(server.address(), autocommit=True) as connection:
                drawn = Drawn(rng)
                counted, different, refused = Counter[str](), list[tuple[str, str]](), list[tuple[str, str]]()
                for _ in range(count):
                    sql = drawn.statement()
                    theirs, ours = asked(real, sql), asked(connection, sql)
                    said = difference(sql, theirs, ours)
                    if said:
                        different.append((sql, said))
                    elif ours.code and not theirs.code:
                        refused.append((sql, f"{ours.code} {ours.said}"))
                    counted[
                        "different" if said else "refused" if ours.code and not theirs.code else "equal"
                    ] += 1
                return counted, different, refused


def _lay_out(folder: Path, rows: list[tuple[Any, ...]]) -> None:
    with duckdb.connect() as connection:
        columns = ", ".join(f"{name} {_OF_DUCKDB.get(type_, type_)}" for name, type_ in _COLUMNS)
        connection.execute(f"CREATE TABLE t ({columns})")
        connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(_COLUMNS))})", rows)
        connection.execute(f"COPY t TO '{folder / 't.parquet'}'")


def _fill(connection: psycopg.Connection[Any], rows: list[tuple[Any, ...]]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE t ({', '.join(f'{name} {type_}' for name, type_ in _COLUMNS)})".encode()
        )
        cursor.executemany(f"INSERT INTO t VALUES ({', '.join(['%s'] * len(_COLUMNS))})".encode(), rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=20)
    options = parser.parse_args()
    bin_ = programs()
    if bin_ is None:
        sys.exit("no Postgres server is installed; in Debian: apt install postgresql")
    counted, different, refused = compare(options.count, options.seed, bin_)
    for title, found in (("refused", refused), ("different", different)):
        reasons = Counter(said[:70] for _, said in found)
        shown = {said[:70]: (sql, said) for sql, said in found}
        for reason, times in reasons.most_common(options.show):
            sql, said = shown[reason]
            print(f"{title} {times}: {said}\n    {sql}")
    print(", ".join(f"{counted[each]} {each}" for each in ("equal", "refused", "different")))
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
