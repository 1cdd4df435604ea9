"""Random queries of the forms that people and tools write: moments, lists, sets, rows, several answers."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.engine.generated_sql import (
    EXACT,
    From,
    Generated,
    conditions,
    keys,
    predicates,
    where_clause,
)


@st.composite
def base(draw: st.DrawFn, source: From, *more: str) -> str:
    """Return FROM and WHERE, with more conditions."""
    return f"FROM {source.sql}{where_clause([*draw(conditions(source)), *more])}"


def column(source: From) -> st.SearchStrategy[str]:
    """Return a column without doubles, so that it may order and select."""
    return st.sampled_from([field.sql for field in source.fields if field.kind in EXACT])


def exact_number(source: From) -> st.SearchStrategy[str]:
    return st.sampled_from([f.sql for f in source.fields if f.kind in ("integer", "decimal")])


@st.composite
def forms(draw: st.DrawFn, source: From) -> Generated:
    """Return a query of one of the forms below."""
    of_aggregates = (moments, listed, below_unions, largest_groups, several_answers, one_row_values)
    of_rows = (sets, compared_rows, asked, first_of_each, ordered_by_all, pivoted, by_all_constants)
    return draw(draw(st.sampled_from((*of_aggregates, *of_rows)))(source))


@st.composite
def moments(draw: st.DrawFn, source: From) -> Generated:
    """Return correlations, regressions and moments of small whole numbers, which doubles hold exactly."""
    x, y = (f"({draw(exact_number(source))})::INT % 50" for _ in range(2))
    pairs = ["corr", "covar_pop", "covar_samp", "regr_slope", "regr_intercept", "regr_r2", "regr_count"]
    pairs += ["regr_avgx", "regr_sxx", "regr_sxy"]
    calls = [f"{name}({y}, {x})" for name in pairs] + [f"{name}({x})" for name in ("skewness", "sem")]
    calls += [f"{name}({x})" for name in ("kurtosis", "kurtosis_pop", "var_pop")]
    chosen = draw(st.lists(st.sampled_from(calls), min_size=1, max_size=3, unique=True))
    condition = f" FILTER (WHERE {draw(predicates(source.fields))})" if draw(st.booleans()) else ""
    values = ", ".join(f"{call}{condition} AS v{i}" for i, call in enumerate(chosen))
    return Generated(f"SELECT {draw(keys(source.fields))} AS g, {values} {draw(base(source))} GROUP BY 1")


@st.composite
def listed(draw: st.DrawFn, source: From) -> Generated:
    """Return aggregates that need all values of a group, beside some that do not."""
    a, b, key = draw(column(source)), draw(column(source)), draw(keys(source.fields))
    calls = [
        f"string_agg({key}, '|' ORDER BY {key})",
        f"list({a} ORDER BY {a}) FILTER (WHERE {draw(predicates(source.fields))})",
        f"list_sort(list(DISTINCT {key}))",
        f"histogram({key})",
        f"max({a}, 3)",
        f"min({b}, 2)",
        f"count(DISTINCT ({a}, {b}))",
        f"quantile_disc({a}, [0.1, 0.9])",
        f"arg_max({a}, {a}, 2)",
        f"approx_count_distinct({a})",
    ]
    chosen = draw(st.lists(st.sampled_from(calls), min_size=1, max_size=2, unique=True))
    values = ", ".join(f"{call} AS v{i}" for i, call in enumerate(chosen))
    outputs = f"{values}, count(*) AS n, avg({draw(exact_number(source))}) AS m"
    return Generated(f"SELECT {draw(keys(source.fields))} AS g, {outputs} {draw(base(source))} GROUP BY 1")


@st.composite
def below_unions(draw: st.DrawFn, source: From) -> Generated:
    """Return aggregates over a UNION ALL of two branches."""
    branches = " UNION ALL ".join(
        f"SELECT ({draw(keys(source.fields))})::VARCHAR AS g, ({draw(exact_number(source))})::DECIMAL(18, 2) "
        f"AS v, {i} AS branch {draw(base(source))}"
        for i in range(2)
    )
    ends = ["GROUP BY 1", "WHERE v > 10 GROUP BY 1", "GROUP BY 1 HAVING count(*) > 20", "GROUP BY ROLLUP (g)"]
    values = "sum(v) AS s, count(*) AS n, avg(v) AS a, min(v) AS low, max(branch) AS high"
    return Generated(f"SELECT g, {values} FROM ({branches}) AS u {draw(st.sampled_from(ends))}")


@st.composite
def sets(draw: st.DrawFn, source: From) -> Generated:
    """Return set operations of rows, alone and below an aggregate."""
    name = draw(column(source))
    a, b, c = (f"SELECT {name} AS a {draw(base(source))}" for _ in range(3))
    first, second = (draw(st.sampled_from(["UNION", "INTERSECT", "EXCEPT", "UNION ALL"])) for _ in range(2))
    shapes = [
        f"{a} {first} {b}",
        f"({a} {first} {b}) {second} {c}",
        f"{a} {first} ({b} {second} {c})",
        f"SELECT count(*) AS n, min(a) AS low FROM ({a} {first} {b}) AS t",
    ]
    return Generated(draw(st.sampled_from(shapes)))


@st.composite
def compared_rows(draw: st.DrawFn, source: From) -> Generated:
    """Return rows that a subquery over other rows picks."""
    a, b, n = draw(column(source)), draw(column(source)), draw(exact_number(source))
    value = draw(st.sampled_from(["avg({})", "max({})", "min({}) + 1", "sum({}) / 1000", "count(*) / 100"]))
    among = f"SELECT {a} {draw(base(source))}"
    asks = [
        f"{n} {draw(st.sampled_from(['>', '<=', '=']))} (SELECT {value.format(n)} {draw(base(source))})",
        f"{a} IN ({among})",
        f"{a} NOT IN ({among})",
        f"{a} IN ({among} ORDER BY 1 LIMIT 5)",
    ]
    rows = f"SELECT {a} AS a, {b} AS b {draw(base(source, draw(st.sampled_from(asks))))}"
    limit = draw(st.sampled_from(["", " LIMIT 7", " LIMIT 3 OFFSET 2"]))
    ordered = draw(st.booleans())
    return Generated(f"{rows} ORDER BY 1, 2{limit}" if ordered else rows, ordered=ordered)


@st.composite
def asked(draw: st.DrawFn, source: From) -> Generated:
    """Return groups of a small table that asks another for rows, by a key that may be NULL."""
    key, small = draw(keys(source.fields)), f"SELECT {draw(keys(source.fields))} AS k {draw(base(source))}"
    small = f"(SELECT DISTINCT k::VARCHAR AS k FROM ({small}) AS y) AS z"
    rows = draw(base(source, f"({key})::VARCHAR IS NOT DISTINCT FROM z.k"))
    tied = draw(base(source, f"({key})::VARCHAR = z.k"))
    asks = draw(st.sampled_from([f"EXISTS (SELECT * {rows})", f"NOT EXISTS (SELECT * {tied})"]))
    shapes = [f"SELECT k FROM {small} WHERE {asks}", f"SELECT count(*) AS n FROM {small} WHERE {asks}"]
    shapes += [f"SELECT k, {asks} AS found FROM {small}"]
    return Generated(draw(st.sampled_from(shapes)))


@st.composite
def largest_groups(draw: st.DrawFn, source: From) -> Generated:
    """Return aggregates of the rows in the largest groups."""
    key, values = draw(keys(source.fields)), f"sum({draw(exact_number(source))}) AS s, count(*) AS n"
    top = f"SELECT {key} AS k, count(*) AS c {draw(base(source))} GROUP BY 1 ORDER BY c DESC, k LIMIT 4"
    asks = [
        f"EXISTS (SELECT 1 FROM ({top}) AS t WHERE t.k = {key})",
        f"EXISTS (SELECT 1 FROM ({top}) AS t WHERE t.k IS NOT DISTINCT FROM {key})",
        f"{key} IN (SELECT k FROM ({top}) AS t)",
    ]
    rows = draw(base(source, draw(st.sampled_from(asks))))
    return Generated(f"SELECT {draw(keys(source.fields))} AS g, {values} {rows} GROUP BY 1")


@st.composite
def first_of_each(draw: st.DrawFn, source: From) -> Generated:
    key, a, b = draw(keys(source.fields)), draw(column(source)), draw(column(source))
    way = draw(st.sampled_from(["", " DESC", " NULLS FIRST"]))
    rows = f"SELECT DISTINCT ON ({key}) {key} AS g, {a} AS a, {b} AS b {draw(base(source))}"
    return Generated(f"{rows} ORDER BY 1, 2{way}, 3", ordered=True)


@st.composite
def ordered_by_all(draw: st.DrawFn, source: From) -> Generated:
    outputs = f"{draw(keys(source.fields))} AS g, count(*) AS n, max({draw(column(source))}) AS m"
    end = draw(st.sampled_from(["", " DESC", " LIMIT 3"]))
    return Generated(f"SELECT {outputs} {draw(base(source))} GROUP BY ALL ORDER BY ALL{end}", ordered=True)


@st.composite
def by_all_constants(draw: st.DrawFn, source: From) -> Generated:
    """Return outputs that GROUP BY ALL makes no group of, beside an aggregate and perhaps a key."""
    constants = ["1 AS one", "'x' AS name", f"(SELECT count(*) FROM {source.sql}) AS n"]
    outputs = draw(st.lists(st.sampled_from(constants), min_size=1, unique=True))
    outputs += draw(st.sampled_from([[], [f"{draw(keys(source.fields))} AS g"]]))
    none = draw(st.sampled_from([[], ["false"]]))
    return Generated(f"SELECT {', '.join(outputs)}, count(*) AS c {draw(base(source, *none))} GROUP BY ALL")


@st.composite
def pivoted(draw: st.DrawFn, source: From) -> Generated:
    """Return a PIVOT of values that are named, and an UNPIVOT of aggregates."""
    key, by, n = draw(keys(source.fields)), draw(exact_number(source)), draw(exact_number(source))
    rows = f"WITH r AS (SELECT {key} AS g, ({by})::BIGINT % 3 AS k, {n} AS v {draw(base(source))})"
    totals = "(SELECT g, sum(v)::DOUBLE AS a, count(*)::DOUBLE AS b FROM r GROUP BY g)"
    shapes = [
        f"{rows} FROM (PIVOT r ON k IN (0, 1) USING sum(v) AS s, count(*) AS n GROUP BY g)",
        f"{rows} FROM (PIVOT r ON k IN ('2', NULL, 1) USING sum(v) GROUP BY g)",
        f"{rows} FROM (UNPIVOT {totals} ON a, b INTO NAME name VALUE v)",
        f"{rows} SELECT name, max(v) AS m FROM (UNPIVOT {totals} ON a, b INTO NAME name VALUE v) GROUP BY 1",
    ]
    return Generated(draw(st.sampled_from(shapes)))


@st.composite
def several_answers(draw: st.DrawFn, source: From) -> Generated:
    """Return two answers joined by their key, or added up."""
    key, n = draw(keys(source.fields)), draw(exact_number(source))
    a, b = (
        f"SELECT {key} AS g, count(*) AS n, sum({n}) AS s {draw(base(source))} GROUP BY 1" for _ in range(2)
    )
    shapes = [
        f"WITH x AS ({a}), y AS ({b}) SELECT x.g, x.n, y.s / nullif(x.n, 0) AS r FROM x JOIN y ON x.g = y.g",
        f"WITH x AS ({a}), y AS ({b}) SELECT x.g, y.n FROM x LEFT JOIN y ON x.g IS NOT DISTINCT FROM y.g",
        f"SELECT g, sum(n) AS n, sum(s) AS s FROM ({a} UNION ALL {b}) AS t GROUP BY 1",
    ]
    return Generated(draw(st.sampled_from(shapes)))


@st.composite
def one_row_values(draw: st.DrawFn, source: From) -> Generated:
    """Return values of one row each, over the same rows and over others."""
    n, name = draw(exact_number(source)), draw(column(source))
    calls = ["count(*)", f"sum({n})", f"avg({n})", f"max({name})", f"count(DISTINCT {name})", f"median({n})"]
    values = [f"(SELECT {draw(st.sampled_from(calls))} {draw(base(source))})" for _ in range(2)]
    values += [f"EXISTS (SELECT * {draw(base(source))})", f"(SELECT count(*) {draw(base(source))}) * 100"]
    compared = draw(st.sampled_from([f"{values[3]} > 50000", f"NOT {values[3]} BETWEEN 100 AND 30000"]))
    values.append(f"CASE WHEN {compared} THEN {values[3]} ELSE (SELECT count(*) FROM {source.sql}) END")
    chosen = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True))
    outputs = ", ".join(f"{value} AS v{i}" for i, value in enumerate(chosen))
    ratio = f", {values[3]} / nullif((SELECT count(*) FROM {source.sql}), 0) AS share"
    return Generated(f"SELECT {outputs}{ratio if not source.conditions and draw(st.booleans()) else ''}")
