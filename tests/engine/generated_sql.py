"""Random SELECTs over TPC-H and the flights, each valid SQL with one right answer.

Nothing here depends on how a query is rewritten: the shapes are those that people write, and a few that run
exactly. An answer is determined up to the order of rows, and wholly where the query says `ordered`: rows are
then ordered by all their keys, and doubles, whose last digits depend on the order of adding, decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hypothesis import strategies as st

Kind = Literal["integer", "decimal", "double", "text", "date"]

NUMERIC: tuple[Kind, ...] = ("integer", "decimal", "double")
EXACT: tuple[Kind, ...] = ("integer", "decimal", "text", "date")


@dataclass(frozen=True, slots=True)
class Field:
    """A column as a query names it. literals: values that occur in it, as SQL. is_key: it has few values."""

    sql: str
    kind: Kind
    literals: tuple[str, ...]
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class From:
    """A FROM clause and the columns it offers. conditions: joins written in WHERE. subqueries: predicates."""

    sql: str
    fields: tuple[Field, ...]
    conditions: tuple[str, ...] = ()
    subqueries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Generated:
    """One query. ordered: its rows have one order only. params: the values of its parameters."""

    sql: str
    ordered: bool = False
    params: list[Any] | dict[str, Any] | None = None


def _fields(prefix: str, *specs: tuple[str, Kind, str, bool]) -> tuple[Field, ...]:
    return tuple(
        Field(prefix + name, kind, tuple(values.split("|")), key) for name, kind, values, key in specs
    )


def lineitem(alias: str = "") -> tuple[Field, ...]:
    return _fields(
        alias,
        ("l_orderkey", "integer", "7|3000|30000", False),
        ("l_partkey", "integer", "100|1000|1900", False),
        ("l_suppkey", "integer", "10|50|90", False),
        ("l_linenumber", "integer", "1|2|5", True),
        ("l_quantity", "decimal", "1|24|45.00", False),
        ("l_extendedprice", "decimal", "1000|20000.5|60000", False),
        ("l_discount", "decimal", "0|0.05|0.1", True),
        ("l_tax", "decimal", "0.00|0.03|0.08", True),
        ("l_returnflag", "text", "'A'|'N'|'R'", True),
        ("l_linestatus", "text", "'O'|'F'", True),
        ("l_shipmode", "text", "'AIR'|'REG AIR'|'SHIP'", True),
        ("l_shipdate", "date", "DATE '1993-05-01'|DATE '1995-06-17'|DATE '1998-01-01'", False),
        ("l_receiptdate", "date", "DATE '1993-05-01'|DATE '1997-06-17'", False),
    )


def orders(alias: str = "") -> tuple[Field, ...]:
    return _fields(
        alias,
        ("o_orderkey", "integer", "7|3000|30000", False),
        ("o_custkey", "integer", "10|700|1400", False),
        ("o_totalprice", "decimal", "10000|150000|300000", False),
        ("o_orderstatus", "text", "'O'|'F'|'P'", True),
        ("o_orderpriority", "text", "'1-URGENT'|'5-LOW'", True),
        ("o_orderdate", "date", "DATE '1993-05-01'|DATE '1996-06-17'", False),
    )


SUPPLIER = _fields("", ("s_nationkey", "integer", "3|12|20", True), ("s_acctbal", "decimal", "0|5000", False))
NATION = _fields("", ("n_name", "text", "'CHINA'|'PERU'", True), ("n_regionkey", "integer", "0|2|4", True))
PART = _fields(
    "",
    ("p_brand", "text", "'Brand#12'|'Brand#44'", True),
    ("p_size", "integer", "5|25|40", True),
    ("p_retailprice", "decimal", "950|1100", False),
)
CUSTOMER = _fields(
    "",
    ("c_mktsegment", "text", "'BUILDING'|'MACHINERY'", True),
    ("c_nationkey", "integer", "3|12", True),
    ("c_acctbal", "decimal", "0|5000", False),
)
FLIGHTS = _fields(
    "f.",
    ("month", "integer", "1|6|12", True),
    ("day", "integer", "1|15|31", True),
    ("hour", "integer", "6|12|20", True),
    ("dep_delay", "integer", "-5|0|60", False),
    ("arr_delay", "integer", "-20|0|120", False),
    ("air_time", "integer", "60|150|300", False),
    ("distance", "integer", "200|1000|2500", False),
    ("flight", "integer", "100|1000", False),
    ("carrier", "text", "'UA'|'B6'|'OO'", True),
    ("origin", "text", "'JFK'|'LGA'|'EWR'", True),
    ("dest", "text", "'LAX'|'ATL'|'ORD'", True),
    ("tailnum", "text", "'N14228'|'N9'", False),
    ("time_hour", "date", "TIMESTAMP '2013-03-01 05:00:00'|TIMESTAMP '2013-09-01'", False),
)
PLANES = _fields(
    "", ("manufacturer", "text", "'BOEING'|'AIRBUS'", True), ("seats", "integer", "55|149|200", True)
)
WEATHER = _fields(
    "w.", ("wind_speed", "double", "5|10.35702|20", True), ("precip", "double", "0|0.01", False)
)
AIRPORTS = _fields("", ("tzone", "text", "'America/Chicago'", True), ("lat", "double", "35|41.9", False))

_IN_SUPPLIERS = "l_suppkey IN (SELECT s_suppkey FROM supplier WHERE s_nationkey < 12)"
_ABOVE_MEAN = "l_quantity > (SELECT avg(p_size) FROM part)"
_PER_PART = "l_quantity > (SELECT max(p_size) FROM part WHERE p_partkey = l_partkey)"
_NO_SUPPLIER = "NOT EXISTS (SELECT 1 FROM supplier WHERE s_suppkey = l_suppkey AND s_acctbal < 0)"
_LATE_LINE = "EXISTS (SELECT 1 FROM lineitem AS x WHERE x.l_orderkey = o_orderkey AND x.l_tax > 0.06)"
_NO_LINE = "o_orderkey NOT IN (SELECT l_orderkey FROM lineitem AS x WHERE x.l_quantity > 30)"
_DEAR = (
    "o_totalprice > (SELECT 2 * sum(x.l_extendedprice) FROM lineitem AS x WHERE x.l_orderkey = o_orderkey)"
)
_BIG = "o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 150)"
_LINES_OF_ORDERS = "SELECT l_orderkey AS k, count(*) AS lines, max(l_tax) AS most FROM lineitem GROUP BY 1"
_NATIONS_OF_REGIONS = (
    "SELECT n_regionkey AS r, max(n_name) AS last, min(n_nationkey) AS k FROM nation GROUP BY 1"
)

# Compared with aggregates over all partitions.
_ABOVE_ALL = "l_extendedprice > (SELECT 1.2 * avg(x.l_extendedprice) FROM lineitem AS x WHERE x.l_tax > 0.01)"
_BELOW_ALL = "(SELECT max(x.l_linenumber) - 2 FROM lineitem AS x) > l_linenumber"
_OF_SUPPLIER = (
    "l_extendedprice < (SELECT 0.5 * max(x.l_extendedprice) FROM lineitem AS x WHERE x.l_suppkey = l_partkey)"
)
_BUSY = "l_suppkey IN (SELECT x.l_suppkey FROM lineitem AS x GROUP BY 1 HAVING count(*) > 600)"
_CHEAP = "o_totalprice <= (SELECT avg(x.o_totalprice) FROM orders AS x)"
_FEW = "2 >= (SELECT count(*) FROM lineitem AS x WHERE x.l_partkey = o_custkey)"
_STAGES = (_ABOVE_ALL, _BELOW_ALL, _OF_SUPPLIER, _BUSY)
# Asked of rows in all partitions.
_MEMBERS = (
    "EXISTS (SELECT 1 FROM orders AS y WHERE y.o_custkey = l_suppkey AND y.o_orderdate > l_shipdate)",
    "NOT EXISTS (SELECT * FROM orders AS y WHERE y.o_custkey = l_partkey)",
    "l_suppkey NOT IN (SELECT nullif(y.o_custkey, 4) FROM orders AS y WHERE y.o_totalprice > 350000)",
    "(l_suppkey, l_linenumber) IN (SELECT y.o_custkey, y.o_shippriority + 2 FROM orders AS y)",
    "EXISTS (SELECT 1 FROM lineitem AS y WHERE y.l_partkey = l_suppkey AND y.l_tax < lineitem.l_tax)",
    "(l_tax > 0.06 OR nullif(l_suppkey, 9) IN (SELECT y.o_custkey FROM orders AS y WHERE y.o_custkey < 60))",
)
_IN_OPEN = "l_suppkey IN (SELECT y.o_custkey FROM orders AS y WHERE y.o_orderstatus = 'P')"
_OF_DEAR = "EXISTS (SELECT 1 FROM orders AS y WHERE y.o_orderkey = l_orderkey AND y.o_totalprice > 90000)"
_ASKED = _fields(
    "",
    (f"CASE WHEN {_IN_OPEN} THEN 1 ELSE 2 END", "integer", "1|2", True),
    (f"({_OF_DEAR})::INT", "integer", "0", True),
)

TPCH_SOURCES: tuple[From, ...] = (
    From("lineitem", lineitem(), subqueries=(_IN_SUPPLIERS, _ABOVE_MEAN, _PER_PART, _NO_SUPPLIER)),
    From("lineitem", lineitem(), subqueries=_STAGES),
    From("lineitem", lineitem() + _ASKED, subqueries=_MEMBERS),
    From("lineitem SEMI JOIN orders ON l_orderkey = o_orderkey AND o_totalprice > 90000", lineitem()),
    From("lineitem ANTI JOIN orders ON l_suppkey = o_custkey AND o_orderstatus = 'P'", lineitem()),
    From("lineitem AS l", lineitem("l.")),
    From("orders", orders(), subqueries=(_LATE_LINE, _NO_LINE, _DEAR, _BIG)),
    From("orders", orders(), subqueries=(_CHEAP, _FEW)),
    From(
        "lineitem JOIN orders ON l_orderkey = o_orderkey",
        lineitem() + orders(),
        subqueries=(_IN_SUPPLIERS, _ABOVE_ALL, _CHEAP),
    ),
    From("lineitem, orders", lineitem() + orders(), ("l_orderkey = o_orderkey",)),
    From("lineitem JOIN supplier ON l_suppkey = s_suppkey", lineitem() + SUPPLIER),
    From(
        "lineitem, supplier, nation",
        lineitem() + SUPPLIER + NATION,
        ("l_suppkey = s_suppkey", "n_nationkey = s_nationkey"),
    ),
    From("lineitem LEFT JOIN part ON l_partkey = p_partkey AND p_size < 20", lineitem() + PART),
    From("orders LEFT JOIN customer ON o_custkey = c_custkey AND c_acctbal > 3000", orders() + CUSTOMER),
    From("orders LEFT JOIN lineitem ON o_orderkey = l_orderkey AND l_tax > 0.05", orders() + lineitem()),
    From("lineitem RIGHT JOIN orders ON o_orderkey = l_orderkey AND l_quantity > 40", orders() + lineitem()),
    From(
        "lineitem FULL JOIN orders ON o_orderkey = l_orderkey AND l_tax > 0.05 AND o_custkey < 700",
        orders() + lineitem(),
    ),
    From(
        "orders JOIN customer ON o_custkey = c_custkey JOIN nation ON c_nationkey = n_nationkey "
        "LEFT JOIN lineitem ON l_orderkey = o_orderkey AND l_linenumber = 1",
        orders() + CUSTOMER + NATION + lineitem(),
    ),
    From(
        "lineitem AS a JOIN lineitem AS b ON a.l_orderkey = b.l_orderkey AND a.l_linenumber < b.l_linenumber",
        lineitem("a.") + lineitem("b."),
    ),
    From("lineitem JOIN orders ON l_partkey = o_custkey", lineitem() + orders()),
    From("nation LEFT JOIN supplier ON n_nationkey = s_nationkey", NATION + SUPPLIER),
    From(
        f"orders JOIN ({_LINES_OF_ORDERS}) AS t ON k = o_orderkey",
        orders() + _fields("t.", ("lines", "integer", "1|4", True), ("most", "decimal", "0.05", True)),
    ),
    From(
        f"({_LINES_OF_ORDERS}) AS t",
        _fields(
            "",
            ("k", "integer", "30000", False),
            ("most", "decimal", "0.05", True),
            ("lines", "integer", "3", True),
        ),
    ),
    From(
        f"lineitem JOIN ({_NATIONS_OF_REGIONS}) AS t ON l_suppkey = t.k",
        lineitem() + _fields("t.", ("r", "integer", "2", True), ("last", "text", "'PERU'", True)),
    ),
)
FLIGHTS_SOURCES: tuple[From, ...] = (
    From(
        "flights AS f", FLIGHTS, subqueries=("f.carrier IN (SELECT carrier FROM airlines WHERE name > 'H')",)
    ),
    From("flights AS f LEFT JOIN planes AS p ON f.tailnum = p.tailnum", FLIGHTS + PLANES),
    From("flights AS f JOIN planes AS p USING (tailnum)", FLIGHTS[:-2] + PLANES),
    From("flights AS f LEFT JOIN airports ON f.dest = faa", FLIGHTS + AIRPORTS),
    From(
        "flights AS f, weather AS w", FLIGHTS + WEATHER, ("f.origin = w.origin", "f.time_hour = w.time_hour")
    ),
)


@st.composite
def queries(draw: st.DrawFn, sources: Sequence[From]) -> Generated:
    """Return one query over one of the FROM clauses."""
    source = draw(st.sampled_from(sources))
    if draw(st.integers(0, 6)) == 0:
        return draw(other_queries(source))
    return draw(grouped_queries(draw(wrapped(source))))


@st.composite
def wrapped(draw: st.DrawFn, source: From) -> From:
    """Return the source itself, or behind a CTE or a derived table that filters and renames."""
    how = draw(st.sampled_from(["as it is"] * 4 + ["cte", "derived"]))
    if how == "as it is" or len(source.fields) < 4:
        return source
    chosen = draw(st.lists(st.sampled_from(source.fields), min_size=4, max_size=7, unique=True))
    chosen += [field for field in source.fields if field.kind in NUMERIC and field not in chosen][:1]
    outputs = ", ".join(f"{field.sql} AS c{i}" for i, field in enumerate(chosen))
    inner = f"SELECT {outputs} FROM {source.sql}" + where_clause(draw(conditions(source)))
    fields = tuple(replace(field, sql=f"c{i}") for i, field in enumerate(chosen))
    name = draw(st.sampled_from(["t", "lineitem", "nation"])) if how == "cte" else "t"
    return From(f"({inner}) AS t" if how == "derived" else f"WITH {name} AS ({inner}) | {name}", fields)


def where_clause(parts: Sequence[str]) -> str:
    return " WHERE " + " AND ".join(parts) if parts else ""


def _select(outputs: str, source: From, parts: Sequence[str]) -> str:
    """Return SELECT … FROM … WHERE …, a WITH before it where the source has one."""
    with_, _, name = source.sql.rpartition(" | ")
    return f"{with_} SELECT {outputs} FROM {name}{where_clause(parts)}".strip()


@st.composite
def conditions(draw: st.DrawFn, source: From) -> list[str]:
    """Return conditions for WHERE: the source's own joins, and some more."""
    extra = draw(st.lists(predicates(source.fields), max_size=2))
    if source.subqueries and draw(st.integers(0, 3)) == 0:
        extra.append(draw(st.sampled_from(source.subqueries)))
    return [*source.conditions, *extra]


@st.composite
def predicates(draw: st.DrawFn, fields: Sequence[Field]) -> str:
    field = draw(st.sampled_from(fields))
    value, other = draw(st.sampled_from(field.literals)), draw(st.sampled_from(field.literals))
    operator = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    plain = f"{field.sql} {operator} {value}"
    forms = [
        plain,
        f"NOT ({plain})",
        f"{field.sql} BETWEEN {value} AND {other}",
        f"{field.sql} IN ({value}, {other}, NULL)",
        f"{field.sql} IS NOT NULL",
        f"({plain} OR {field.sql} IS NULL)",
        f"coalesce({plain}, false)",
    ]
    if field.kind == "text":
        forms += [f"{field.sql} LIKE '%A%'", f"length({field.sql}) > 3", f"upper({field.sql}) >= {value}"]
    if draw(st.integers(0, 4)) == 0:
        second = draw(st.sampled_from(fields))
        forms = [f"({plain} OR {second.sql} > {draw(st.sampled_from(second.literals))})"]
    return draw(st.sampled_from(forms))


@st.composite
def numbers(draw: st.DrawFn, fields: Sequence[Field], depth: int = 2) -> tuple[str, Kind]:
    """Return an expression over a row, and its kind."""
    field = draw(st.sampled_from([field for field in fields if field.kind in NUMERIC]))
    form = draw(st.integers(0, 8)) if depth else 0
    if form <= 3:
        return field.sql, field.kind
    inner, kind = draw(numbers(fields, depth - 1))
    if form == 4:
        return f"({inner} {draw(st.sampled_from('+-'))} {draw(st.sampled_from(['1', '0.5', '100']))})", kind
    if form == 5 and field.kind == kind == "integer":
        return f"({inner} % 7)", kind
    if form == 6:
        condition = draw(predicates(fields))
        default = draw(st.sampled_from(["", " ELSE 0", " ELSE NULL"]))
        return f"CASE WHEN {condition} THEN {inner}{default} END", kind
    if form == 7:
        call = draw(st.sampled_from(["abs({})", "coalesce({}, 0)", "-({})", "nullif({}, 0)", "round({}, 0)"]))
        return call.format(inner), kind
    return f"({inner}) / 4", "double"


@st.composite
def keys(draw: st.DrawFn, fields: Sequence[Field]) -> str:
    """Return an expression to group by."""
    few = [field for field in fields if field.is_key] or list(fields)
    field = draw(st.sampled_from(few))
    form = draw(st.integers(0, 7))
    if form >= 5:
        other = draw(st.sampled_from(fields))
        return {
            "integer": f"{other.sql} % 5",
            "decimal": f"CASE WHEN {other.sql} > {other.literals[0]} THEN 'much' ELSE 'little' END",
            "double": f"{other.sql} > {other.literals[0]}",
            "text": f"substring({other.sql}, 1, 1)",
            "date": f"year({other.sql})",
        }[other.kind]
    return field.sql


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate expression. is_exact: no double takes part, so that it may order and select rows."""

    sql: str
    is_exact: bool


@st.composite
def aggregates(draw: st.DrawFn, fields: Sequence[Field]) -> Aggregate:
    names = ["count(*)", "count", "sum", "sum", "avg", "avg", "min", "max", "spread", "mean time"]
    name = draw(st.sampled_from(names))
    condition = f" FILTER (WHERE {draw(predicates(fields))})" if draw(st.integers(0, 3)) == 0 else ""
    if name == "count(*)":
        return Aggregate(f"count(*){condition}", True)
    if name == "mean time" and (dates := [field.sql for field in fields if field.kind == "date"]):
        as_day = draw(st.sampled_from(["", "", "::DATE"]))
        return Aggregate(f"avg({draw(st.sampled_from(dates))}){condition}{as_day}", False)
    if name in ("min", "max", "count", "mean time"):
        name = "count" if name == "mean time" else name
        field = draw(st.sampled_from(fields))
        return Aggregate(f"{name}({field.sql}){condition}", field.kind in EXACT or name == "count")
    expression, kind = draw(numbers(fields))
    if name == "spread":
        name = draw(st.sampled_from(["stddev", "stddev_pop", "var_samp", "var_pop", "variance"]))
        return Aggregate(f"{name}({expression}){condition}", False)
    return Aggregate(f"{name}({expression}){condition}", name == "sum" and kind in EXACT)


@st.composite
def values(draw: st.DrawFn, fields: Sequence[Field]) -> Aggregate:
    """Return an output: an aggregate or a scalar expression over aggregates."""
    first = draw(aggregates(fields))
    form = draw(st.integers(0, 9))
    if form <= 5:
        return first
    expression, kind = draw(numbers(fields, 1))
    total, count = f"sum({expression})", "count(*)"
    if form == 6:
        return Aggregate(f"{total} / nullif({count}, 0)", False)
    if form == 7:
        return Aggregate(f"100.0 * {total} / (1 + abs(sum({draw(numbers(fields, 1))[0]})))", False)
    if form == 8:
        return Aggregate(f"coalesce({total}, 0) + {count}", kind in EXACT)
    return Aggregate(f"CASE WHEN {count} > 100 THEN {count} ELSE -1 END", True)


@st.composite
def grouped_queries(draw: st.DrawFn, source: From) -> Generated:
    """Return an aggregation: keys and aggregates, HAVING, ORDER BY, LIMIT."""
    fields = source.fields
    key_list: list[str] = draw(st.lists(keys(fields), max_size=3, unique=True))
    value_list: list[Aggregate] = draw(st.lists(values(fields), min_size=1, max_size=4))
    outputs = [f"{key} AS g{i}" for i, key in enumerate(key_list)]
    outputs += [f"{value.sql} AS v{i}" for i, value in enumerate(value_list)]
    sql = _select(", ".join(outputs), source, draw(conditions(source)))
    sql += _group_by(draw(st.integers(0, 3)), key_list)
    if draw(st.integers(0, 3)) == 0:
        sql += f" HAVING {draw(_having(value_list, _sampled_table(source)))}"
    if not key_list or draw(st.booleans()):
        return Generated(sql)
    leading = [f"v{i}" for i, value in enumerate(value_list) if value.is_exact][: draw(st.integers(0, 2))]
    directions = [draw(st.sampled_from(["", " DESC", " NULLS FIRST", " DESC NULLS LAST"])) for _ in leading]
    terms = [f"{name}{way}" for name, way in zip(leading, directions, strict=True)]
    sql += " ORDER BY " + ", ".join(terms + [str(i + 1) for i in range(len(key_list))])
    limit = draw(
        st.sampled_from(["", " LIMIT 3", " LIMIT 5 OFFSET 2", " OFFSET 1", " LIMIT 1000", " LIMIT 0"])
    )
    return Generated(sql + limit, ordered=True)


def _group_by(style: int, key_list: Sequence[str]) -> str:
    if not key_list:
        return ""
    ways = [
        ", ".join(key_list),
        ", ".join(str(i + 1) for i in range(len(key_list))),
        ", ".join(f"g{i}" for i in range(len(key_list))),
        "ALL",
    ]
    return f" GROUP BY {ways[style]}"


def _sampled_table(source: From) -> str:
    """Return a sampled table of the data that the source is of."""
    return "flights" if "flights" in source.sql else "orders"


@st.composite
def _having(draw: st.DrawFn, value_list: Sequence[Aggregate], table: str) -> str:
    totals = [v.sql for v in value_list if v.is_exact and not v.sql.startswith(("min", "max"))]
    chosen = draw(st.sampled_from([*totals, "count(*)"]))
    limits = ["0", "20", "500", f"(SELECT count(*) / 90 FROM {table} AS x)"]
    return f"{chosen} {draw(st.sampled_from(['>', '<', '<>']))} {draw(st.sampled_from(limits))}"


@st.composite
def other_queries(draw: st.DrawFn, source: From) -> Generated:
    """Return a query that is no single level of aggregates: rows, distinct values, what has no estimate."""
    fields = source.fields
    key, number = draw(keys(fields)), draw(numbers(fields, 1))[0]
    column, other = (draw(st.sampled_from([f for f in fields if f.kind in EXACT])).sql for _ in range(2))
    base = f"FROM {source.sql}{where_clause(draw(conditions(source)))}"
    groups = f"SELECT {key} AS a, count(*) AS n {base} GROUP BY 1"
    ranked = f"SELECT {column} AS a, {other} AS b, {key} AS c {base} ORDER BY 1 DESC NULLS LAST, b, c"
    forms = [
        Generated(f"{ranked} LIMIT 20 OFFSET 3", ordered=True),
        Generated(f"{ranked} LIMIT 1", ordered=True),
        Generated(f"SELECT DISTINCT {key} AS a, {draw(keys(fields))} AS b {base}"),
        Generated(f"SELECT DISTINCT {key} AS a {base} ORDER BY a LIMIT 4", ordered=True),
        Generated(f"SELECT {key} AS a, count(DISTINCT {column}) AS b, sum({number}) AS c {base} GROUP BY 1"),
        Generated(f"SELECT count(DISTINCT {column}) AS b, count(*) AS n {base}"),
        Generated(f"SELECT count(DISTINCT {column}) AS b, count(DISTINCT {other}) AS c {base}"),
        Generated(f"SELECT *, rank() OVER (ORDER BY n DESC) AS r FROM ({groups}) AS t"),
        Generated(f"SELECT {key} AS a, median({number}) AS m, count(*) AS n {base} GROUP BY 1"),
        Generated(f"SELECT {key} AS a, count(*) AS n {base} GROUP BY ROLLUP (1)"),
        Generated(f"{groups} HAVING count(*) > (SELECT 20)"),
        Generated(f"{groups} UNION ALL {groups}"),
        Generated(f"SELECT max(n) AS most, count(*) AS groups FROM ({groups}) AS t"),
        Generated(f"SELECT bool_and({column} IS NOT NULL) AS a, list_sort(list(DISTINCT {key})) AS b {base}"),
    ]
    return draw(st.sampled_from(forms))
