"""Small tables of every kind, made from the seed, and their true rows in plain DuckDB.

A world is all kinds of tables over the same rows, with one kind of odd values: NULL alone, the ends of types,
NaN. `t_key` is the main table laid out by a key, `u_arrow` the second table as Arrow data, `d` a static one.
Each has the columns id, k (the cluster key, with NULL), g and h (few values), n, r, w (skewed), day, and one
column of each type: x_double, x_text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pyarrow as pa
import pyarrow.parquet
from relaqs_engine.layouts import add_static, column_statistics, compact, heavy_units, outliers

import relaqs
from benchmarks.grid.dimensions import DIMENSIONS, FILES, IN_MEMORY, LAID_OUT

ORDERS = 3
"""Row orders in which DuckDB is asked. Where its answers differ, the question has several right answers."""
RARE = (
    "utinyint",
    "smallint",
    "uinteger",
    "uhugeint",
    "timestamp_s",
    "timestamp_ms",
    "timetz",
    "bit",
    "array",
)
TYPES = (*(each for each in DIMENSIONS["type"] if each != "rare"), *RARE)
_NOT_IN_PARQUET = ("interval", "timetz", "bit")  # relaqs says so of each when the table is laid out
NOT_KEPT: dict[str, tuple[str, ...]] = {
    # kind of table → types that it cannot have, by the word of relaqs or of the library that writes it
    **dict.fromkeys((*FILES, *IN_MEMORY), _NOT_IN_PARQUET),
    # relations come over Arrow, which has decimals for them
    **dict.fromkeys((*LAID_OUT, "relation"), (*_NOT_IN_PARQUET, "hugeint", "uhugeint")),
    "duckdb": (),
    "csv": (),
    "json": ("hugeint", "uhugeint", "ubigint"),  # a number beyond BIGINT is read as one, and refused
    "delta": (
        *_NOT_IN_PARQUET,
        "time",
        "uuid",
        "hugeint",
        "uhugeint",
        "ubigint",
        "uinteger",
        "utinyint",
        "enum",
    ),
    "pandas": (*_NOT_IN_PARQUET, "uhugeint"),
}
_TABLE = re.compile(r"\b(?:[tu]_[a-z]+|d)\b")
SIZES = (20, 150, 600, 2_000)
_ENDS = {
    "tinyint": ("-128", "127"),
    "smallint": ("-32768", "32767"),
    "integer": ("-2147483648", "2147483647"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "hugeint": ("-170141183460469231731687303715884105727", "170141183460469231731687303715884105727"),
    "utinyint": ("0", "255"),
    "uinteger": ("0", "4294967295"),
    "ubigint": ("0", "18446744073709551615"),
    "uhugeint": ("0", "340282366920938463463374607431768211455"),
    "decimal": ("-9999999.99", "9999999.99"),
    "decimal38": ("-9999999999999999999999999999.9999999999", "9999999999999999999999999999.9999999999"),
    "float": ("-3.4028235e38", "1e-45"),
    "double": ("-1.7976931348623157e308", "5e-324"),
    "date": ("0001-01-01", "9999-12-31"),
    "time": ("00:00:00", "23:59:59.999999"),
    "timetz": ("00:00:00+15:59", "23:59:59.999999-15:59"),
    "timestamp": ("0001-01-01", "9999-12-31 23:59:59.999999"),
    "timestamp_s": ("0001-01-01", "9999-12-31 23:59:59"),
    "timestamp_ms": ("0001-01-01", "9999-12-31 23:59:59.999"),
    "timestamp_ns": ("1677-09-22", "2262-04-11 23:47:16.854775806"),
    "timestamptz": ("0002-01-01 00:00:00+00", "9998-12-31 23:59:59.999999+00"),
    "interval": ("0 days", "99 years 11 months 30 days 23:59:59.999999"),
    "text": ("", "\U0010ffff"),
    "uuid": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
}
_NAMES = {
    "decimal": "DECIMAL(9, 2)",
    "decimal38": "DECIMAL(38, 10)",
    "text": "VARCHAR",
    "bool": "BOOLEAN",
    "enum": "ENUM ('high', 'low', 'middle', 'é')",  # layouts take those in the order of the alphabet
    "struct": "STRUCT(a INTEGER, b VARCHAR)",
    "list": "INTEGER[]",
    "map": "MAP(VARCHAR, INTEGER)",
    "array": "INTEGER[2]",
}


def type_name(kind: str) -> str:
    return _NAMES.get(kind, kind.upper())


def usual_value(kind: str, whole: str) -> str:
    """Return SQL that makes a value of a type of a whole number from 0 to 39."""
    made = {
        "bool": f"{whole} % 3 = 0",
        "float": f"({whole} - 11) / 8",
        "double": f"({whole} - 11) / 7",
        "decimal": f"({whole} - 11) * 1.25",
        "decimal38": f"({whole} - 11) * 12345678.0625",
        "date": f"DATE '2023-12-20' + CAST({whole} AS INTEGER)",
        "time": f"TIME '00:30:00' + to_minutes({whole} * 17)",
        "timetz": f"CAST(TIME '00:30:00' + to_minutes({whole} * 17) AS TIMETZ)",
        # Both clocks of New York are in it, and the hour that it has twice.
        "timestamp": f"TIMESTAMP '2023-11-05 03:30:00' + to_minutes({whole} * 20)",
        "timestamptz": f"TIMESTAMPTZ '2023-11-05 03:30:00+00' + to_minutes({whole} * 20)",
        "interval": f"to_days({whole} % 5) + to_hours({whole})",
        "text": f"['a', 'B', 'bc', 'zoë', 'x y', '10', 'NULL', 'ä'][1 + {whole} % 8]",
        "blob": f"encode('b' || {whole} % 9)",
        "enum": f"['high', 'low', 'middle', 'é'][1 + {whole} % 4]",
        "uuid": f"'00000000-0000-4000-8000-0000000000' || (10 + {whole})",
        "struct": f"struct_pack(a := CAST({whole} % 4 AS INTEGER), b := 's' || {whole} % 3)",
        "list": f"list_transform(range({whole} % 4), lambda e: CAST(e + {whole} % 3 AS INTEGER))",
        "map": f"MAP {{'k': CAST({whole} % 4 AS INTEGER)}}",
        "bit": f"CAST(CAST({whole} AS INTEGER) AS BIT)",
        "array": f"[{whole} % 4, {whole} % 3]",
    }
    wide = made.get(kind) or (
        made["timestamp"] if kind.startswith("timestamp") else whole if kind[0] == "u" else f"{whole} - 7"
    )
    return f"CAST({wide} AS {type_name(kind)})"


def odd_values(kind: str, odd: str) -> tuple[str, ...]:
    """Return SQL of the values that one in four rows has in a world of such odd values."""
    if odd == "ends":
        return tuple(f"CAST('{each}' AS {type_name(kind)})" for each in _ENDS.get(kind, ()))
    special = {
        ("nan", "float"): ("'nan'", "'-nan'"),
        ("nan", "double"): ("'nan'", "NULL"),
        ("nan", "text"): ("'a' || chr(0) || 'b'", "'e' || chr(769)", "chr(233)", "'''quoted\"'"),
        ("nan", "blob"): ("'\\x00'", "'\\xFF\\x00a'"),
        ("nan", "list"): ("[]", "[NULL]", "[1, NULL, 2]"),
        ("nan", "struct"): ("{'a': NULL, 'b': 'x'}", "{'a': 1, 'b': NULL}", "{'a': NULL, 'b': NULL}"),
        ("nan", "map"): ("MAP {}", "MAP {'k': NULL}", "MAP {'a': 1, 'b': 2}"),
        ("nan", "date"): ("'0044-03-15 (BC)'", "'1582-10-10'"),
        ("infinite", "float"): ("'inf'", "'-inf'", "'-0.0'"),
        ("infinite", "double"): ("'inf'", "'-inf'", "'-0.0'"),
        ("infinite", "date"): ("'infinity'", "'-infinity'"),
        ("infinite", "timestamp"): ("'infinity'", "'-infinity'"),
        ("infinite", "timestamptz"): ("'infinity'", "'-infinity'"),
        ("infinite", "text"): ("''", "repeat('long ', 500)", "' '", "'a' || chr(10) || 'b,c'"),
        ("infinite", "blob"): ("''",),
    }
    found = special.get((odd, kind), ("NULL",))
    return tuple(f"CAST({each} AS {type_name(kind)})" for each in found)


COLUMNS = ("id", "k", "g", "h", "n", "r", "w", "day")


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one table, as the SELECT that makes them.

    Attributes:
        count: how many.
        seed: of the values.
        odd: which odd values there are.
        is_second: whether it is the second table, which has other keys.
        types: of which there is a column each.
        kept: the ids that there are, None for all.
        is_skewed: whether one row in a hundred is far out.
        columns: that there are beside those of types.
        text: the SELECT itself, where it is given.
    """

    count: int
    seed: int
    odd: str
    is_second: bool = False
    types: tuple[str, ...] = TYPES
    kept: tuple[int, ...] | None = None
    is_skewed: bool = False
    columns: tuple[str, ...] = COLUMNS
    text: str = ""

    def draw(self, column: int, below: int) -> str:
        return f"CAST(hash(i * 64 + {column} + {self.seed * 7919}) % {below} AS BIGINT)"

    @property
    def sql(self) -> str:
        if self.text:
            return self.text
        keys, shift = max(2, self.count // 6), 1 + self.count // 40 if self.is_second else 0
        first = int(self.is_second)
        made = {
            "id": "i",
            "k": f"CASE WHEN {self.draw(0, 12)} > 0 THEN CAST({self.draw(1, keys)} + {shift} AS INTEGER) END",
            "g": f"CASE WHEN {self.draw(2, 9)} > 0 THEN CAST({self.draw(3, 4)} + {first} AS INTEGER) END",
            "h": f"'h' || {self.draw(4, 3)}",
            "n": f"CAST({self.draw(5, 30)} AS INTEGER)",
            "r": f"{self.draw(6, 1000)} / 8.0::DOUBLE",
            "w": f"CASE WHEN {self.draw(7, 100)} = 0 THEN 1e6 ELSE 1 + {self.draw(8, 50)} END::DOUBLE",
            "day": f"DATE '2024-02-20' + CAST({self.draw(9, 40)} AS INTEGER)",
        }
        columns = [
            *(f"{made[name]} AS {name}" for name in self.columns),
            *(
                f"{self.value(place, kind)} AS x_{kind}"
                for place, kind in enumerate(TYPES)
                if kind in self.types
            ),
        ]
        text = f"SELECT {', '.join(columns)} FROM range({self.count}) AS made(i)"
        if self.kept is not None:
            text += f" WHERE i IN ({', '.join(map(str, self.kept)) or 'NULL'})"
        return text

    def value(self, place: int, kind: str) -> str:
        column = 10 + 2 * place
        usual = usual_value(kind, self.draw(column, 40))
        if self.is_skewed and kind in (
            "integer",
            "bigint",
            "hugeint",
            "decimal",
            "decimal38",
            "float",
            "double",
        ):
            usual = f"CASE WHEN {self.draw(7, 100)} = 0 THEN 100000 ELSE {usual} END::{type_name(kind)}"
        if self.odd == "plain":
            return usual
        if self.odd == "null_alone":
            return f"CAST(NULL AS {type_name(kind)})"
        if self.odd == "nulls" or not (odd := odd_values(kind, self.odd)):
            odd = (f"CAST(NULL AS {type_name(kind)})",)
        drawn = self.draw(column + 1, 4 * len(odd))
        whens = " ".join(f"WHEN {number} THEN {value}" for number, value in enumerate(odd))
        return f"CASE {drawn} {whens} ELSE {usual} END"


DIMENSION_SQL = (
    "SELECT g, 'g' || g AS label, g * 1.5 AS rate FROM (VALUES (0), (1), (2), (5), (NULL)) AS v(g)"
)


@dataclass(frozen=True, slots=True)
class Made:
    """One table that is there.

    Attributes:
        name: of the table: t_key.
        truth: SELECT of its true rows, for a connection that knows `base`.
        source: what `connect` takes for it; None where it is in the folder of layouts.
        refused: type → why the kind of table cannot have it.
    """

    name: str
    truth: str
    source: Any = None
    refused: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def small_indexes() -> Iterator[None]:
    """Let small tables have indexes of outliers and of heavy units, and zones, which large ones have."""
    fewest = ((outliers, "FEWEST_ROWS"), (heavy_units, "FEWEST_ROWS"), (column_statistics, "ZONED_ROWS"))
    with ExitStack() as stack:
        for module, name in fewest:
            stack.enter_context(mock.patch.object(module, name, 100))
        yield


class World:
    """All kinds of tables over the same rows, below one folder. They are made when they are first asked for.

    Args:
        folder: where they are.
        t: the main table's rows.
        u: the second table's.
        is_shared: whether another process may make the same tables there.
    """

    def __init__(self, folder: Path, t: Rows, u: Rows) -> None:
        self.folder, self.t, self.u = folder, t, u
        self.warehouse, self.files = folder / "warehouse", folder / "files"
        for each in (self.warehouse, self.files):
            each.mkdir(parents=True, exist_ok=True)
        self.made: dict[str, Made] = {}
        self._maker = duckdb.connect(config={"threads": 1})

    @classmethod
    def of_seed(cls, folder: Path, seed: int, odd: str) -> World:
        place = DIMENSIONS["odd"].index(odd)
        count = SIZES[(seed + place) % len(SIZES)]
        t = Rows(count, seed * 100 + place, odd)
        u = Rows(max(15, count * 2 // 3), seed * 100 + place + 50, odd, is_second=True)
        return cls(folder / f"{seed}-{odd}", t, u)

    def make(self, names: Sequence[str]) -> None:
        """Make the tables of these names that are not there yet."""
        for name in names:
            if name not in self.made:
                self.made[name] = self._make(name)

    def _make(self, name: str) -> Made:
        if name == "d":
            add_static(self._arrow(DIMENSION_SQL), self.warehouse / "d", force=True)
            self._maker.sql(DIMENSION_SQL).write_parquet(str(self.files / "d.parquet"))
            return Made("d", DIMENSION_SQL)
        letter, kind = name.split("_", 1)
        rows = self.t if letter == "t" else self.u
        if kind == "outliers":
            rows = replace(rows, is_skewed=True)
        rows = replace(rows, types=tuple(each for each in rows.types if each not in NOT_KEPT.get(kind, ())))
        return _Maker(self, name, kind, rows).made()

    def _arrow(self, sql: str) -> pa.Table:
        return self._maker.sql(sql).to_arrow_table()

    @cached_property
    def oracles(self) -> list[Oracle]:
        return [Oracle(self, order) for order in range(ORDERS)]

    def tables(self) -> dict[str, Any]:
        """Return what `connect` takes beside the folder of layouts."""
        return {name: made.source for name, made in self.made.items() if made.source is not None}

    def close(self) -> None:
        self._maker.close()
        for oracle in self.oracles:
            oracle.close()


class Oracle:
    """Plain DuckDB with the true rows in memory. order: 0 as made, 1 reversed, others shuffled."""

    def __init__(self, world: World, order: int) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        self._connection.execute("SET enable_progress_bar = false")
        number = "row_number() OVER ()"
        orders = {0: "", 1: f" ORDER BY {number} DESC"}
        self._by = orders.get(order, f" ORDER BY hash({number} + {order})")
        self._world, self._there = world, set[str]()

    def table(self, sql: str, params: Any = None) -> pa.Table:
        for name in set(_TABLE.findall(sql)) & self._world.made.keys() - self._there:
            truth = self._world.made[name].truth
            self._connection.execute(f"CREATE TABLE {name} AS SELECT * FROM ({truth}){self._by}")
            self._there.add(name)
        return self._connection.sql(sql, params=params or None).to_arrow_table()

    def interrupt(self) -> None:
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()


class _Maker:
    """Makes one table."""

    def __init__(self, world: World, name: str, kind: str, rows: Rows) -> None:
        self.world, self.name, self.kind, self.rows = world, name, kind, rows
        self.refused: dict[str, str] = {}
        self.connection = world._maker

    def made(self) -> Made:
        """Return the table. Types that the kind cannot have are left out, one at a time."""
        while True:
            try:
                return self._made()
            except Exception as error:
                self._leave_out(error)

    def _leave_out(self, error: Exception) -> None:
        """Leave out a type with which alone the table cannot be made."""
        tried = self.rows.types
        for kind in tried:
            self.rows = self._with((kind,))
            try:
                self._made()
            except Exception as own:
                self.refused[kind] = f"{type(own).__name__}: {own}"
        left = tuple(kind for kind in tried if kind not in self.refused)
        if left == tried:
            raise error
        self.rows = self._with(left)

    def _with(self, types: tuple[str, ...]) -> Rows:
        return replace(self.rows, types=types)

    def _made(self) -> Made:
        make: Callable[[], Made] = getattr(self, f"_{'laid_out' if self.kind in LAID_OUT else self.kind}")
        return make()

    def _query(self, sql: str = "") -> duckdb.DuckDBPyRelation:
        return self.connection.sql(sql or self.rows.sql)

    def _laid_out(self) -> Made:
        into = self.world.warehouse / self.name
        partitions = 3 + self.rows.seed % 5
        if self.kind == "static":
            add_static(self._query(), into, force=True)
        elif self.kind in ("appended", "compacted"):
            rest = f"SELECT * FROM ({self.rows.sql}) WHERE id % 3"
            key = "k" if self.rows.seed % 2 else None
            first, second = self._query(f"{rest} > 0"), self._query(f"{rest} = 0")
            with small_indexes():
                relaqs.shuffle(first, into, partitions=partitions, cluster_by=key, force=True, threads=1)
                relaqs.append(second, into, threads=1)
                if self.kind == "compacted":
                    compact(into, threads=1)
        else:
            key = "k" if self.kind in ("key", "heavy") else None
            with small_indexes():
                relaqs.shuffle(
                    self._query(), into, partitions=partitions, cluster_by=key, force=True, threads=1
                )
                if self.kind == "two":
                    relaqs.shuffle(
                        self._query(),
                        f"{into}@k",
                        partitions=partitions,
                        cluster_by="k",
                        force=True,
                        threads=1,
                    )
        return Made(self.name, self._as_stored(), refused=self.refused)

    def _as_stored(self) -> str:
        """Return SELECT of the rows as Parquet has them: enums as text, moments in µs, arrays as lists."""
        stored = {
            "timestamp_s": "TIMESTAMP",
            "timestamp_ms": "TIMESTAMP",
            "enum": "VARCHAR",
            "array": "INTEGER[]",
        }
        kinds = [kind for kind in stored if kind in self.rows.types and not self.rows.text]
        casts = ", ".join(f"x_{kind}::{stored[kind]} AS x_{kind}" for kind in kinds)
        return f"SELECT *{f' REPLACE ({casts})' * bool(kinds)} FROM ({self.rows.sql})"

    def _file(self, ending: str) -> Path:
        return self.world.files / f"{self.name}.{ending}"

    def _plain(self, path: Path, reader: str) -> Made:
        return Made(self.name, f"FROM {reader}('{path}')", str(path), self.refused)

    def _parquet(self) -> Made:
        path = self._file("parquet")
        self._query().write_parquet(str(path), row_group_size=2048)
        return self._plain(path, "read_parquet")

    def _pyarrow(self) -> Made:
        path = self._file("parquet")
        pa.parquet.write_table(self._query().to_arrow_table(), path, row_group_size=100)
        return self._plain(path, "read_parquet")

    def _polars(self) -> Made:
        import polars

        path = self._file("parquet")
        polars.DataFrame(self._query().to_arrow_table()).write_parquet(path)
        return self._plain(path, "read_parquet")

    def _csv(self) -> Made:
        path = self._file("csv")
        self._query().write_csv(str(path))
        return self._plain(path, "read_csv")

    def _json(self) -> Made:
        path = self._file("json")
        self.connection.execute(f"COPY ({self.rows.sql}) TO '{path}' (FORMAT json)")
        made = self._plain(path, "read_json")
        # DuckDB takes whole numbers for HUGEINT where one is below zero. Here they are BIGINT.
        read = self.connection.execute(f"DESCRIBE {made.truth}").fetchall()
        casts = ", ".join(f"{name}::BIGINT AS {name}" for name, kind, *_ in read if kind == "HUGEINT")
        return replace(made, truth=f"{made.truth} SELECT * REPLACE ({casts})") if casts else made

    def _duckdb(self) -> Made:
        path = self._file("duckdb")
        path.unlink(missing_ok=True)
        with duckdb.connect(str(path)) as connection:
            connection.execute(f"CREATE TABLE {self.name} AS {self.rows.sql}")
        return Made(self.name, self.rows.sql, str(path), self.refused)

    def _delta(self) -> Made:
        import shutil

        from deltalake import DeltaTable, write_deltalake

        path = self.world.files / self.name
        shutil.rmtree(path, ignore_errors=True)
        write_deltalake(path, self._query().to_arrow_table())
        files = DeltaTable(path).file_uris()
        return Made(self.name, f"FROM read_parquet({list(files)})", str(path), self.refused)

    def _pandas(self) -> Made:
        return self._in_memory(self._query().df())

    def _arrow(self) -> Made:
        return self._in_memory(self._query().to_arrow_table())

    def _relation(self) -> Made:
        return Made(self.name, self._as_stored(), self._query(), self.refused)

    def _in_memory(self, data: Any) -> Made:
        """Return data of this process as a table. What DuckDB takes it for is kept as its truth."""
        path = self.world.folder / f"{self.name}-truth.parquet"
        kept = f"FROM read_parquet('{path}')"
        self.connection.register("given", data)
        self.connection.sql("FROM given").write_parquet(str(path))
        types = [
            dict(self.connection.sql(f"SELECT column_name, column_type FROM (DESCRIBE {each})").fetchall())
            for each in ("FROM given", kept)
        ]
        self.connection.unregister("given")
        casts = ", ".join(
            f'"{name}"::{kind} AS "{name}"' for name, kind in types[0].items() if kind != types[1][name]
        )
        truth = f"{kept} SELECT * REPLACE ({casts})" if casts else kept
        return Made(self.name, truth, data, self.refused)
