"""Every aggregate of DuckDB, over every type, in every place of a query, beside plain DuckDB.

A cell of the grid is one statement. Plain DuckDB answers it over the same rows in three orders. Where the
three answers differ, the statement has several right answers (`first(x)` without ORDER BY), and any of them,
or any other of as many rows, is taken. Before an answer is called wrong, DuckDB answers in more orders, and
one of its answers is right: `hash` and GROUP BY turn the last digit of a sum of doubles, which may be another
in one order of ten, into another answer. So is any other, if the value itself is equal but for rounding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import duckdb
import pyarrow as pa
from relaqs_engine.duck import is_kept_by_arrow
from relaqs_engine.errors import RelaqsError, TooManyGroupsError
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.layouts import add_static, append, shuffle
from relaqs_engine.planning.exact import plan_whole

from tests.conftest import Oracle
from tests.engine.world import World, difference, flaws, own_columns

ROWS = 240
MORE_ORDERS = 30
PARTITIONS = 4
# The key `id` tells the rows apart. Other columns have NULLs, and values that are in several partitions.
TABLE = f"""
SELECT i::INTEGER AS id,
    CASE WHEN i % 5 < 4 THEN i % 5 END AS g,
    i * 7 % 3 AS h,
    CASE WHEN i % 60 = 7 THEN 5000.5 WHEN i % 9 > 0 THEN i * 31 % 13 / 4 - 1 END::DOUBLE AS v,
    CASE WHEN i % 4 > 0 THEN i % 3 = 0 END AS bool,
    CASE WHEN i % 7 > 0 THEN i % 11 - 5 END::TINYINT AS i8,
    CASE WHEN i % 7 > 0 THEN i * 17 % 19 END::SMALLINT AS i16,
    CASE WHEN i % 7 > 0 THEN i * 17 % 23 - 9 END::INTEGER AS i32,
    CASE WHEN i % 7 > 0 THEN i * 17 % 29 * 1000000007 END::BIGINT AS i64,
    9223372036854775807 - i % 50 AS most,
    CASE WHEN i % 7 > 0 THEN i % 12 END::UTINYINT AS u8,
    CASE WHEN i % 7 > 0 THEN i % 13 END::USMALLINT AS u16,
    CASE WHEN i % 7 > 0 THEN i % 14 END::UINTEGER AS u32,
    CASE WHEN i % 7 > 0 THEN 18446744073709551615 - i % 15 END::UBIGINT AS u64,
    CASE WHEN i % 7 > 0 THEN i * 37 % 41 / 8 END::DECIMAL(4, 1) AS d4,
    CASE WHEN i % 7 > 0 THEN i * 37 % 41 / 8 END::DECIMAL(9, 2) AS d9,
    CASE WHEN i % 7 > 0 THEN i * 37 % 43 / 8 - 2 END::DECIMAL(18, 3) AS d18,
    CASE WHEN i % 7 > 0 THEN i * 37 % 47 / 8 END::DECIMAL(38, 4) AS d38,
    CASE WHEN i % 7 > 0 THEN i * 3 % 17 / 4 END::FLOAT AS f32,
    CASE WHEN i % 7 > 0 THEN i * 3 % 17 / 8 + 0.5 END::DOUBLE AS f64,
    CASE WHEN i % 7 = 0 THEN NULL WHEN i % 31 = 3 THEN 'nan'::DOUBLE WHEN i % 31 = 4 THEN 'inf'::DOUBLE
        WHEN i % 31 = 5 THEN '-inf'::DOUBLE WHEN i % 31 = 6 THEN -0.0 ELSE i * 3 % 8 END::DOUBLE AS odd,
    CASE WHEN i % 7 = 0 THEN NULL WHEN i % 31 = 3 THEN 'inf'::DOUBLE ELSE i * 3 % 8 END::DOUBLE AS infinite,
    CASE WHEN i % 7 > 0 THEN DATE '2019-12-25' + (i % 17)::INTEGER END AS day,
    CASE WHEN i % 7 > 0 THEN TIME '10:00:00.5' + to_seconds(i % 18) END AS clock,
    CASE WHEN i % 7 > 0 THEN TIMESTAMP '2020-02-28 23:00:00.25' + to_hours(i % 19) END AS ts,
    CASE WHEN i % 7 > 0 THEN 'v' || i * 3 % 13 END AS text,
    CASE WHEN i % 7 > 0 THEN ('x' || i * 3 % 12)::BLOB END AS blob,
    CASE WHEN i % 7 > 0 THEN ('00000000-0000-0000-0000-0000000000' || (10 + i % 14))::UUID END AS uuid,
    CASE WHEN i % 7 > 0 THEN [i % 3, NULL, i % 2] END AS list,
    CASE WHEN i % 7 > 0 THEN {{'a': i % 3, 'b': CASE WHEN i % 2 = 0 THEN 'x' END}} END AS pair
FROM range({ROWS}) AS r(i)
"""

# Types that no layout stores are computed from columns.
TYPES: Mapping[str, str] = {
    "BOOLEAN": "t.bool",
    "TINYINT": "t.i8",
    "SMALLINT": "t.i16",
    "INTEGER": "t.i32",
    "BIGINT": "t.i64",
    "BIGINT near its end": "t.most",
    "HUGEINT": "t.i64::HUGEINT",
    "UTINYINT": "t.u8",
    "USMALLINT": "t.u16",
    "UINTEGER": "t.u32",
    "UBIGINT": "t.u64",
    "UHUGEINT": "t.u64::UHUGEINT",
    "DECIMAL(4,1)": "t.d4",
    "DECIMAL(9,2)": "t.d9",
    "DECIMAL(18,3)": "t.d18",
    "DECIMAL(38,4)": "t.d38",
    "FLOAT": "t.f32",
    "DOUBLE": "t.f64",
    "DOUBLE with NaN": "t.odd",
    "DOUBLE with infinity": "t.infinite",
    "FLOAT with NaN": "t.odd::FLOAT",
    "DATE": "t.day",
    "TIME": "t.clock",
    "TIMETZ": "t.clock::TIMETZ",
    "TIMESTAMP": "t.ts",
    "TIMESTAMP_S": "t.ts::TIMESTAMP_S",
    "TIMESTAMP_MS": "t.ts::TIMESTAMP_MS",
    "TIMESTAMP_NS": "t.ts::TIMESTAMP_NS",
    "TIMESTAMPTZ": "t.ts::TIMESTAMPTZ",
    "INTERVAL": "to_hours(t.i16)",
    "VARCHAR": "t.text",
    "BLOB": "t.blob",
    "UUID": "t.uuid",
    "BIT": "t.u8::BIT",
    "ENUM": "('e' || t.u8 % 3)::ENUM ('e2', 'e0', 'e1')",
    "LIST": "t.list",
    "ARRAY": "[t.i8, 1]::TINYINT[2]",
    "STRUCT": "t.pair",
    "MAP": "MAP {'k': t.i8}",
    "NULL": "NULL",
}

# How each function is called. {x} is the value of a type, {m} is DISTINCT, {o} is ORDER BY.
ONE = "{f}({m}{x}{o})"
CALLS: Mapping[str, Sequence[str]] = {
    "approx_quantile": ("{f}({m}{x}, 0.3{o})", "{f}({m}{x}, [0.1, 0.5]{o})"),
    "approx_top_k": ("{f}({m}{x}, 3{o})",),
    "avg": (ONE,),
    "bitstring_agg": (ONE, "{f}({m}{x}, -100, 1000{o})"),
    "count": (ONE,),
    "count_if": (ONE, "{f}({m}{x} IS NULL{o})"),
    "count_star": ("{f}()",),
    "countif": (ONE, "{f}({m}{x} IS NULL{o})"),
    "histogram": (ONE, "{f}({m}{x}, [{x}]{o})"),
    "lttb": ("{f}({m}t.v, {x}, 5{o})", "{f}({m}{x}, t.v, 5{o})"),
    "variant_group_object": ("{f}({m}t.text, {x}::VARIANT{o})",),
    "quantile": (ONE, "{f}({m}{x}, 0.3{o})", "{f}({m}{x}, [0.1, 0.5]{o})"),
    "quantile_disc": (ONE, "{f}({m}{x}, 0.3{o})", "{f}({m}{x}, [0.1, 0.5]{o})"),
    "quantile_cont": ("{f}({m}{x}, 0.3{o})", "{f}({m}{x}, [0.1, 0.5]{o})"),
    "reservoir_quantile": ("{f}({m}{x}, 0.3, 10000{o})", "{f}({m}{x}, [0.1, 0.5], 10000{o})"),
    "histogram_exact": ("{f}({m}{x}, [{x}]{o})", "{f}({m}t.i8, [1, 2, 3]{o})"),
    **dict.fromkeys(("max", "min"), (ONE, "{f}({m}{x}, 3{o})")),
    **dict.fromkeys(("string_agg", "group_concat", "listagg"), (ONE, "{f}({m}{x}, '-'{o})")),
    **dict.fromkeys(
        (
            "arg_max",
            "argmax",
            "max_by",
            "arg_min",
            "argmin",
            "min_by",
            "arg_max_nulls_last",
            "arg_min_nulls_last",
        ),
        ("{f}({m}t.id, {x}{o})", "{f}({m}{x}, t.id{o})", "{f}({m}{x}, t.id, 3{o})"),
    ),
    **dict.fromkeys(("arg_max_null", "arg_min_null"), ("{f}({m}t.id, {x}{o})", "{f}({m}{x}, t.id{o})")),
    **dict.fromkeys(
        (
            *("corr", "covar_pop", "covar_samp", "regr_slope", "regr_intercept", "regr_r2", "regr_count"),
            *("regr_avgx", "regr_avgy", "regr_sxx", "regr_syy", "regr_sxy"),
        ),
        ("{f}({m}{x}, t.id{o})", "{f}({m}t.id, {x}{o})"),
    ),
    **dict.fromkeys(("weighted_avg", "wavg"), ("{f}({x}, t.id)", "{f}(t.id, {x})")),
    "json_group_object": ("{f}(t.id, {x})",),
    **dict.fromkeys(
        ("json_group_array", "json_group_structure", "geomean", "geometric_mean", "variant_group_array"),
        ("{f}({x})",),
    ),
    "mode": (ONE, "{f}() WITHIN GROUP (ORDER BY {x})"),
    "percentile_cont": ("{f}(0.3) WITHIN GROUP (ORDER BY {x})", "{f}(0.3) WITHIN GROUP (ORDER BY {x} DESC)"),
    "percentile_disc": ("{f}(0.3) WITHIN GROUP (ORDER BY {x})", "{f}(0.3) WITHIN GROUP (ORDER BY {x} DESC)"),
}
STAR = ("count(*)", "count()")
# What takes any of several values, or puts them in any order, unless an order is asked for.
TAKES_ANY = frozenset(
    (
        *("first", "last", "arbitrary", "any_value", "mode", "list", "array_agg", "approx_quantile"),
        *("string_agg", "group_concat", "listagg", "json_group_array", "json_group_object"),
        *("json_group_structure", "variant_group_array", "variant_group_object", "approx_top_k"),
        *("arg_max", "argmax", "max_by", "arg_min", "argmin", "min_by", "arg_max_null", "arg_min_null"),
        *(
            "arg_max_nulls_last",
            "arg_min_nulls_last",
            "reservoir_quantile",
            "lttb",
            "histogram",
            "histogram_exact",
        ),
    )
)
COMPENSATED = frozenset(("fsum", "kahan_sum", "sumkahan", "favg"))
SUMS_OF_PRODUCTS = frozenset(("covar_pop", "covar_samp", "regr_sxy"))
MACROS = (
    *("weighted_avg", "wavg", "json_group_object", "json_group_array", "json_group_structure"),
    *("geomean", "geometric_mean", "variant_group_array", "percentile_cont", "percentile_disc"),
)

# DISTINCT, ORDER BY, FILTER.
MODIFIERS: Mapping[str, tuple[str, str, str]] = {
    "plain": ("", "", ""),
    "distinct": ("DISTINCT ", "", ""),
    "some": ("", "", " FILTER (WHERE t.id % 3 = 1)"),
    "none": ("", "", " FILTER (WHERE t.id < 0)"),
    "a group": ("", "", " FILTER (WHERE t.g = 2)"),
    "by id": ("", " ORDER BY t.id DESC", ""),
    "by itself": ("", " ORDER BY {x}", ""),
    "distinct by itself": ("DISTINCT ", " ORDER BY {x} DESC", ""),
    "distinct of some": ("DISTINCT ", "", " FILTER (WHERE t.id % 3 = 1)"),
    "some by id": ("", " ORDER BY t.id", " FILTER (WHERE t.id % 3 = 1)"),
    "ignoring NULLs": ("", " IGNORE NULLS", ""),
}

# Places where each row, or each group, tells the call's value.
# Places that make another answer of the last digit of a double, and one beside each that shows the value.
BY_LAST_DIGIT = {
    "inside": "SELECT t.h, {a} AS a FROM t GROUP BY t.h",
    **dict.fromkeys(("as text", "cte", "distinct"), "SELECT t.g, {a} AS a FROM t GROUP BY t.g"),
}
ALONE = ("ranked", "cte", "cte, joined", "stage", "of each", "distinct")
AT_ONCE = 24
PLACES: Mapping[str, str] = {
    "unnamed": "SELECT {a} FROM t",
    "as text": "SELECT t.g, ({a})::VARCHAR AS a FROM t GROUP BY t.g",
    "global": "SELECT {a} AS a, count(*) AS n FROM t",
    "grouped": "SELECT t.g, {a} AS a FROM t GROUP BY t.g",
    "beside others": "SELECT t.h, avg(t.v) AS m, {a} AS a, max(t.v) AS x FROM t GROUP BY t.h",
    "beside distinct": "SELECT t.h, count(DISTINCT t.i8) AS n, {a} AS a FROM t GROUP BY t.h",
    "inside": "SELECT t.h, {a} IS NULL AS a, hash({a}) AS b FROM t GROUP BY t.h",
    "having": "SELECT t.g, count(*) AS n FROM t GROUP BY t.g HAVING ({a})::VARCHAR > '3'",
    "ranked": "SELECT t.g, {a} AS a FROM t GROUP BY t.g ORDER BY a DESC, t.g LIMIT 2",
    "rollup": "SELECT t.g, t.h, {a} AS a FROM t GROUP BY ROLLUP (t.g, t.h)",
    "sets": "SELECT t.g, {a} AS a FROM t GROUP BY GROUPING SETS ((t.g), ())",
    "refined by itself": "SELECT {a} AS a FROM t WHERE t.v > (SELECT avg(v) FROM t)",
    "refined by another": "SELECT t.g, {a} AS a FROM t WHERE t.v < (SELECT avg(v) FROM u) GROUP BY t.g",
    "refined by its group": "SELECT {a} AS a FROM t WHERE t.v > (SELECT avg(v) FROM u WHERE u.g = t.g)",
    "compared with another": "SELECT t.g, {a} AS a FROM t GROUP BY t.g "
    "HAVING avg(t.v) > (SELECT avg(v) FROM u)",
    "members of another": "SELECT {a} AS a FROM t WHERE t.id IN "
    "(SELECT id FROM u WHERE v > (SELECT avg(v) FROM t))",
    "no members": "SELECT t.h, {a} AS a FROM t WHERE t.id NOT IN "
    "(SELECT id FROM u WHERE v > (SELECT avg(v) FROM t)) GROUP BY t.h",
    "undecided": "SELECT t.g, {a} AS a FROM t WHERE t.h IN "
    "(SELECT h FROM u GROUP BY h HAVING sum(v) > 100) GROUP BY t.g",
    "undecided of all": "SELECT {a} AS a FROM t "
    "WHERE t.h IN (SELECT h FROM u GROUP BY h HAVING sum(v) > 1e9)",
    "stage": "SELECT t.id, (SELECT {a} FROM u AS t) AS a FROM t WHERE t.id < 9",
    "stage in where": "SELECT count(*) AS n FROM u WHERE (SELECT {a} FROM t) IS NOT NULL AND u.v > 1",
    "stage of a group": "SELECT count(*) AS n FROM u WHERE (SELECT {a} FROM t WHERE t.g = u.g) IS NOT NULL",
    "of each": "SELECT d.g, (SELECT {a} FROM t WHERE t.g = d.g) AS a FROM dim AS d",
    "in": "SELECT count(*) AS n FROM u WHERE u.id::VARCHAR IN (SELECT ({a})::VARCHAR FROM t GROUP BY t.h)",
    "exists": "SELECT d.g FROM dim AS d WHERE EXISTS "
    "(SELECT 1 FROM t WHERE t.g = d.g GROUP BY t.h HAVING ({a}) IS NOT NULL)",
    "window": "SELECT t.g, {a} AS a, row_number() OVER (ORDER BY t.g) AS r FROM t GROUP BY t.g",
    "window over it": "SELECT t.g, last_value({a}) OVER (ORDER BY t.g) AS a FROM t GROUP BY t.g",
    "of nothing": "SELECT {a} AS a FROM t WHERE t.id < 0",
    "of nothing, grouped": "SELECT t.g, {a} AS a FROM t WHERE t.id < 0 GROUP BY t.g",
    "of nothing, refined": "SELECT {a} AS a FROM t WHERE t.v > (SELECT 100 * max(v) + avg(v) FROM u)",
    "cte": "WITH c AS (SELECT t.g, {a} AS a FROM t GROUP BY t.g) SELECT a, count(*) AS n FROM c GROUP BY a",
    "cte, joined": "WITH c AS (SELECT t.g, {a} AS a FROM t GROUP BY t.g) "
    "SELECT c.a, d.name FROM c JOIN dim AS d USING (g)",
    "union": "SELECT t.g, {a} AS a FROM (SELECT * FROM t UNION ALL SELECT * FROM u) AS t GROUP BY t.g",
    "union of all": "SELECT {a} AS a FROM (SELECT * FROM t UNION ALL SELECT * FROM u WHERE id < 0) AS t",
    "twice": "SELECT x.a AS a, y.a AS b FROM (SELECT {a} AS a FROM t WHERE t.h = 1) AS x, "
    "(SELECT {a} AS a FROM t WHERE t.h = 2) AS y",
    "distinct": "SELECT DISTINCT {a} AS a FROM t GROUP BY t.g",
    "of groups": "SELECT {a} AS a FROM (SELECT max(id) AS id, max(g) AS g, i8, max(v) AS v, "
    "max(text) AS text, max(f64) AS f64, max(odd) AS odd, max(day) AS day, max(d9) AS d9, "
    "max(bool) AS bool, max(i32) AS i32, max(i64) AS i64 FROM t GROUP BY i8) AS t",
    "join": "SELECT {a} AS a, count(*) AS n FROM t JOIN u ON t.id = u.id",
    "join, grouped": "SELECT u.h, {a} AS a FROM t JOIN u ON t.id = u.id GROUP BY u.h",
    "left join": "SELECT u.h, {a} AS a FROM t LEFT JOIN u ON t.id = u.id AND u.v > 1 GROUP BY u.h",
    "join with static": "SELECT d.name, {a} AS a FROM t JOIN dim AS d ON t.g = d.g GROUP BY d.name",
    "pivot": "SELECT * FROM (SELECT t.g AS k, t.h AS l, t.* FROM t) AS t "
    "PIVOT ({a} FOR l IN (0, 1) GROUP BY k)",
}


_NO_NUMBER = re.compile(r"= (nan|-?inf) in \[\1, \1\], certified True")


@dataclass(frozen=True, slots=True)
class Ways:
    """One table laid out in one way, beside plain DuckDB over its rows in three orders."""

    world: World
    oracles: tuple[Oracle, ...]

    def in_more_orders(self, sql: str) -> Iterator[pa.Table]:
        """Yield what DuckDB answers over the same rows in one order after the other."""
        names = self.oracles[0].rows("SELECT view_name FROM duckdb_views() WHERE NOT internal")
        for order in range(MORE_ORDERS):
            with closing(duckdb.connect(config={"threads": 1})) as connection:
                for (name,) in names:
                    rows = self.oracles[0].table(f"FROM {name} ORDER BY hash(COLUMNS(*)::VARCHAR, {order})")
                    types = self.oracles[0].rows(f"DESCRIBE {name}")  # Arrow has text for some of them
                    columns = ", ".join(f"{column}::{type_} AS {column}" for column, type_, *_ in types)
                    connection.register("rows_in_order", rows)
                    connection.execute(f"CREATE TABLE {name} AS SELECT {columns} FROM rows_in_order")
                with suppress(duckdb.Error):  # an order in which DuckDB refuses says nothing
                    yield connection.sql(sql).to_arrow_table()


@contextmanager
def opened(folder: Path, kind: str) -> Iterator[Ways]:
    """Yield `t` and `u` laid out by rows, by their key, or by a group, and the static table `dim`."""
    originals = [folder / name for name in ("forward", "backward", "mixed")]
    warehouse = folder / "warehouse"
    keys = {"rows": None, "key": "id", "group": "g", "appended": None}
    with closing(duckdb.connect(config={"threads": 1})) as connection:
        tables = {"t": TABLE, "u": f"FROM ({TABLE}) SELECT * REPLACE ((id * 7 + 3) % 240 AS id)"}
        tables["dim"] = "SELECT i AS g, 'n' || i AS name FROM range(5) AS r(i)"
        for name, sql in tables.items():
            key = "g" if name == "dim" else "id"
            orders = (key, f"{key} DESC", f"hash({key} + 1)")
            for original, order in zip(originals, orders, strict=True):
                original.mkdir(exist_ok=True, parents=True)
                connection.sql(f"FROM ({sql}) ORDER BY {order}").write_parquet(
                    str(original / f"{name}.parquet")
                )
            rows = connection.sql(f"FROM '{originals[2] / name}.parquet'")
            if name == "dim":
                add_static(rows, warehouse / name)
            elif kind == "appended":
                shuffle(rows.limit(ROWS // 2), warehouse / name, partitions=PARTITIONS)
                append(rows.limit(ROWS, offset=ROWS // 2), warehouse / name)
            else:
                shuffle(rows, warehouse / name, partitions=PARTITIONS, cluster_by=keys[kind])
    oracles = tuple(map(Oracle, originals))
    try:
        yield Ways(World.open(warehouse, oracles[0]), oracles)
    finally:
        for oracle in oracles:
            oracle.close()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a call.

    Attributes:
        verdict: "equal", "ambiguous", "both refuse", "refused", "wrong" or "raw".
        detail: what was said, or what is different.
        mode: the class of the plan.
    """

    verdict: str
    detail: str = ""
    mode: str = ""


def outcome(ways: Ways, sql: str) -> Outcome:
    """Return what became of a statement as a whole."""
    return outcomes(ways, sql, ())[0]


def outcomes(ways: Ways, sql: str, names: Sequence[str]) -> list[Outcome]:
    """Return what became of each output of these names, each beside all outputs that have others.

    It is one outcome where there are no names, or where there is no answer.
    """
    wanted: list[pa.Table] = []
    failure = ""
    for oracle in ways.oracles:
        try:
            wanted.append(oracle.table(sql))
        except (duckdb.Error, pa.ArrowException) as error:
            failure = str(error)
    try:
        mode, estimates = _run(ways.world, sql)
    except RelaqsError as error:
        said = f"{type(error).__name__}: {error}"
        return [Outcome("both refuse" if failure else "refused", said)]
    except Exception as error:
        return [Outcome("raw", f"{type(error).__name__}: {error}")]
    if failure:
        return [Outcome("equal" if wanted else "DuckDB refuses", failure, mode)]
    if around := list(_flaws(estimates)):
        return [Outcome("wrong", "; ".join(around[:2]), mode)]
    got = own_columns(estimates[-1])
    if not names:
        found = _compared(got, wanted, mode)
        if found.verdict == "wrong" and any(not _differences(got, each) for each in ways.in_more_orders(sql)):
            return [Outcome("equal", "", mode)]
        return [found]
    beside = [i for i, name in enumerate(got.column_names) if name not in names]
    places = [[*beside, i] for i, name in enumerate(got.column_names) if name in names]
    return [_compared(got.select(each), [table.select(each) for table in wanted], mode) for each in places]


def _flaws(estimates: Sequence[Estimate]) -> Iterator[str]:
    """Yield what is wrong with a run's estimates. A complete group may be NaN or infinite for certain."""
    with suppress(OverflowError):  # a moment that Python has none for, such as the last of a histogram
        for flaw in flaws(estimates):
            if not _NO_NUMBER.search(flaw):
                yield flaw


def _compared(got: pa.Table, wanted: Sequence[pa.Table], mode: str) -> Outcome:
    problems = [_differences(got, each) for each in wanted]
    if not all(problems):
        return Outcome("equal", "", mode)
    said = "; ".join(problems[0][:2])
    if any(_differences(each, wanted[0]) for each in wanted[1:]):
        alike = got.schema.equals(wanted[0].schema) and len({got.num_rows, *map(len, wanted)}) == 1
        return Outcome("ambiguous" if alike else "wrong", said, mode)
    return Outcome("wrong", said, mode)


def _differences(got: pa.Table, wanted: pa.Table) -> list[str]:
    try:
        return list(difference(got, wanted, ordered=False))
    except (OverflowError, ValueError):
        return list(difference(_as_text(got), _as_text(wanted), ordered=False))


def _as_text(table: pa.Table) -> pa.Table:
    """Return the table with each value as DuckDB writes it, and its type."""
    types = "".join(map(str, table.schema.types)).replace("'", "''")
    with closing(duckdb.connect()) as connection:
        connection.register("shown", table)
        return connection.sql(f"SELECT COLUMNS(*)::VARCHAR, '{types}' AS types FROM shown").to_arrow_table()


def _run(world: World, sql: str) -> tuple[str, list[Estimate]]:
    plan = world.plan(sql)
    estimates: list[Estimate] = []
    try:
        estimates.extend(world.estimates(plan, batches=3))
    except TooManyGroupsError as error:
        estimates.extend(world.estimates(plan_whole(plan, plan.sql, world.catalog, str(error))))
    return type(plan).__name__, estimates


@dataclass(frozen=True, slots=True)
class Cell:
    """One call in one place: function, type, modifier and place by their names here, and the call itself."""

    function: str
    type: str
    modifier: str
    place: str
    call: str

    @property
    def sql(self) -> str:
        return PLACES[self.place].replace("{a}", self.call)


def functions() -> list[str]:
    """Return the names of DuckDB's aggregates, its macros that aggregate, and percentiles WITHIN GROUP."""
    with closing(duckdb.connect()) as connection:
        found = connection.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
        ).fetchall()
    return sorted({name for (name,) in found} | set(MACROS))


def calls(function: str, value: str, modifier: str) -> Iterator[str]:
    """Yield each way to call a function over a value."""
    distinct, order, condition = MODIFIERS[modifier]
    for template in CALLS.get(function, (ONE,)):
        if "{m}" in template or not (distinct or order):
            call = template.format(f=function, m=distinct, o=order.format(x=value), x=value)
            yield call + condition


def cells(types: Iterable[str], places: Iterable[str]) -> list[Cell]:
    """Return all calls of all functions over some types in some places, whether DuckDB takes them or not."""
    return [
        Cell(function, type_, modifier, place, call)
        for place, function, type_, modifier in product(places, functions(), types, MODIFIERS)
        for call in calls(function, TYPES[type_], modifier)
    ]


def outcomes_of(ways: Ways, tried: Iterable[Cell]) -> Iterator[tuple[Cell, Outcome]]:
    """Yield what became of each cell that DuckDB's binder takes.

    One statement asks many of them, where that can be. A cell that is wrong in it is asked by itself.
    """
    together: dict[str, list[Cell]] = {}
    for cell in tried:
        if (bound := _bound(ways.oracles[0], cell)) is None:
            continue
        if _with_outputs(bound.place, ["1"]) is None:
            yield bound, _alone(ways, bound)
        else:
            together.setdefault(bound.place, []).append(bound)
    for place, alike in together.items():
        for start in range(0, len(alike), AT_ONCE):
            yield from _together(ways, place, alike[start : start + AT_ONCE])


def _alone(ways: Ways, cell: Cell) -> Outcome:
    found = outcome(ways, cell.sql)
    is_ordered = " ORDER BY " in cell.call and not cell.function.startswith(("arg", "min_by", "max_by"))
    if cell.place == "union":  # of two tables with the same ids
        is_ordered = is_ordered and " ORDER BY t.id" not in cell.call
    has_sign = "NaN" in cell.type and cell.place in ("as text", "having")  # a NaN's, which is as it falls
    takes_any = cell.function in TAKES_ANY and not is_ordered
    if cell.function in COMPENSATED and not is_ordered:  # an infinite value makes NaN, unless it comes last
        has_sign = has_sign or "infinity" in cell.type or "NaN" in cell.type
    if cell.function in SUMS_OF_PRODUCTS and not is_ordered:
        has_sign = has_sign or "infinity" in cell.type
    if found.verdict != "wrong" or found.detail.startswith("schema"):
        return found
    may_differ = takes_any or has_sign or _differs_by_last_digit(ways, cell)
    return replace(found, verdict="ambiguous") if may_differ else found


def _differs_by_last_digit(ways: Ways, cell: Cell) -> bool:
    """Whether a cell has several answers, and the value it is made of is DuckDB's own but for rounding."""
    if cell.place not in BY_LAST_DIGIT:
        return False
    first, *others = ways.in_more_orders(cell.sql)
    shown = BY_LAST_DIGIT[cell.place].replace("{a}", cell.call)
    has_several = any(_differences(each, first) for each in others)
    return has_several and outcome(ways, shown).verdict == "equal"


def _bound(oracle: Oracle, cell: Cell) -> Cell | None:
    """Return a cell that DuckDB takes, as text if Arrow has no such type."""
    try:
        types = "".join(type_ for _, type_, *_ in oracle.rows(f"DESCRIBE {cell.sql}"))
    except duckdb.Error:
        return None
    return cell if is_kept_by_arrow(types) or cell.place != "grouped" else replace(cell, place="as text")


def _together(ways: Ways, place: str, several: Sequence[Cell]) -> Iterator[tuple[Cell, Outcome]]:
    sql = _with_outputs(place, [cell.call for cell in several])
    assert sql is not None
    found = outcomes(ways, sql, [f"a{i}" for i in range(len(several))])
    if len(found) == len(several):
        for cell, each in zip(several, found, strict=True):
            yield cell, _alone(ways, cell) if each.verdict == "wrong" else each
    elif len(several) == 1:
        yield several[0], found[0]
    else:  # what one of them says is said of all: ask half of them at a time
        half = len(several) // 2
        yield from _together(ways, place, several[:half])
        yield from _together(ways, place, several[half:])


def _with_outputs(place: str, given: Sequence[str]) -> str | None:
    """Return the statement of a place with several calls as outputs, None where a call is more than that."""
    sql = PLACES[place]
    mark = next((mark for mark in ("({a})::VARCHAR AS a", "{a} AS a") if mark in sql), None)
    if place in ALONE or mark is None or sql.count("{a}") > 1:
        return None
    named = (mark.removesuffix(" AS a").replace("{a}", call) for call in given)
    return sql.replace(mark, ", ".join(f"{call} AS a{i}" for i, call in enumerate(named)))
