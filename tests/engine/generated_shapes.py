"""Random queries around aggregates: windows, aggregates of aggregates, subtotals, set operations."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.engine.generated_sql import (
    EXACT,
    From,
    Generated,
    aggregates,
    conditions,
    keys,
    numbers,
    predicates,
    where_clause,
)


@st.composite
def shapes(draw: st.DrawFn, source: From) -> Generated:
    """Return a query that is more than one level of aggregates."""
    if " | " in source.sql:  # behind a CTE
        return draw(subtotals(source))
    return draw(
        st.one_of(
            around(source),
            nested(source),
            subtotals(source),
            combined(source),
            so_far(source),
            quantiles(source),
        )
    )


@st.composite
def _base(draw: st.DrawFn, source: From) -> str:
    return f"FROM {source.sql}{where_clause(draw(conditions(source)))}"


@st.composite
def _groups(draw: st.DrawFn, source: From) -> str:
    """Return groups a, b with a count n and an exact total s, so that both may decide."""
    a, b = draw(keys(source.fields)), draw(keys(source.fields))
    exact = [field for field in source.fields if field.kind in ("integer", "decimal")]
    total = draw(numbers(exact, 0))[0]
    having = f" HAVING count(*) > {draw(st.sampled_from([0, 5]))}" if draw(st.integers(0, 4)) == 0 else ""
    outputs = f"{a} AS a, {b} AS b, count(*) AS n, sum({total}) AS s"
    return f"SELECT {outputs} {draw(_base(source))} GROUP BY 1, 2{having}"


@st.composite
def around(draw: st.DrawFn, source: From) -> Generated:
    """Return windows over groups, also where they choose among them."""
    groups = draw(_groups(source))
    window = draw(
        st.sampled_from(
            [
                "sum(n) OVER ()",
                "round(100.0 * n / sum(n) OVER (PARTITION BY a), 2)",
                "s / nullif(sum(s) OVER (), 0)",
                "sum(s) OVER (ORDER BY a, b)",
                "rank() OVER (ORDER BY n DESC)",
                "row_number() OVER (PARTITION BY a ORDER BY n, b)",
                "lag(n) OVER (PARTITION BY a ORDER BY b)",
                "max(s) OVER (PARTITION BY b)",
                "count(*) OVER (PARTITION BY a)",
                "avg(n) OVER (PARTITION BY b)",
            ]
        )
    )
    end = draw(
        st.sampled_from(
            [
                "",
                " ORDER BY 1, 2",
                " ORDER BY n DESC, a, b LIMIT 4",
                " WHERE n > 20",
                " QUALIFY rank() OVER (ORDER BY n DESC, a, b) <= 3",
            ]
        )
    )
    return Generated(
        f"SELECT a, b, n, s, {window} AS w FROM ({groups}) AS t{end}", ordered="ORDER BY n" in end
    )


@st.composite
def nested(draw: st.DrawFn, source: From) -> Generated:
    """Return aggregates of groups, of a CTE read once or several times, and of groups of groups."""
    groups = draw(_groups(source))
    forms = [
        f"SELECT a, sum(n) AS x, avg(n) AS y, max(s) AS z FROM ({groups}) AS t GROUP BY 1",
        f"SELECT sum(n) AS x, min(s) AS y, count(*) AS z, count(DISTINCT a) AS d FROM ({groups}) AS t",
        f"SELECT n, count(*) AS x FROM ({groups}) AS t GROUP BY n",
        f"SELECT a, sum(s) / nullif(sum(n), 0) AS x FROM ({groups}) AS t WHERE b IS NOT NULL GROUP BY a",
        f"WITH t AS ({groups}) SELECT a, b, n / (SELECT sum(n) FROM t) AS x FROM t "
        "WHERE n >= (SELECT avg(n) FROM t)",
        f"WITH t AS ({groups}) SELECT x.a, y.n, x.s FROM t AS x JOIN t AS y ON x.a = y.a AND x.b = y.b",
        f"SELECT max(x) AS y FROM (SELECT a, sum(n) AS x FROM ({groups}) AS t GROUP BY a) AS u",
        f"SELECT DISTINCT n > 20 AS x FROM ({groups}) AS t",
    ]
    return Generated(draw(st.sampled_from(forms)))


@st.composite
def subtotals(draw: st.DrawFn, source: From) -> Generated:
    with_, _, name = source.sql.rpartition(" | ")
    key_list = draw(st.lists(keys(source.fields), min_size=1, max_size=3, unique=True))
    value = draw(aggregates(source.fields))
    places = [f"g{i}" for i in range(len(key_list))]
    grouping = draw(
        st.sampled_from(
            [
                f"ROLLUP ({', '.join(places)})",
                f"CUBE ({', '.join(places)})",
                f"GROUPING SETS (({', '.join(places)}), ({places[-1]}), ())",
                f"GROUPING SETS (({', '.join(places)}), ())",
            ]
        )
    )
    outputs = ", ".join(f"{key} AS g{i}" for i, key in enumerate(key_list))
    having = draw(st.sampled_from(["", "", " HAVING count(*) > 10"]))
    conditions_ = where_clause(draw(conditions(source)))
    return Generated(
        f"{with_} SELECT {outputs}, grouping(g0) AS level, {value.sql} AS v, count(*) AS n "
        f"FROM {name}{conditions_} GROUP BY {grouping}{having}".strip()
    )


@st.composite
def combined(draw: st.DrawFn, source: From) -> Generated:
    """Return set operations over groups, totals and rows."""
    groups, others = draw(_groups(source)), draw(_groups(source))
    key = draw(keys(source.fields))
    column = draw(st.sampled_from([field for field in source.fields if field.kind in EXACT])).sql
    operator = draw(st.sampled_from(["UNION ALL", "UNION ALL", "UNION", "EXCEPT", "INTERSECT"]))
    rows = f"SELECT {column} AS a, {key} AS b {draw(_base(source))} ORDER BY 1, 2 LIMIT 30"
    subtotals_by_union = (
        f"SELECT a, b, 0 AS level, n FROM ({groups}) AS t UNION SELECT a, NULL, 1, sum(n) "
        f"FROM ({groups}) AS t GROUP BY a UNION SELECT NULL, NULL, 2, count(*) {draw(_base(source))}"
    )
    forms = [
        f"SELECT n, s FROM ({groups}) AS t {operator} SELECT n, s FROM ({others}) AS u",
        f"SELECT a, b, n FROM ({groups}) AS t UNION ALL SELECT NULL, NULL, count(*) {draw(_base(source))}",
        f"({rows}) {operator} ({rows})",
        subtotals_by_union,
        f"SELECT n FROM ({groups}) AS t {operator} SELECT s FROM ({groups}) AS t",
    ]
    return Generated(draw(st.sampled_from(forms)))


@st.composite
def so_far(draw: st.DrawFn, source: From) -> Generated:
    """Return aggregates that merge by themselves. What depends on ties or on order is left out."""
    fields = source.fields
    column = draw(st.sampled_from([field for field in fields if field.kind in EXACT]))
    whole = [field for field in fields if field.kind == "integer"]
    key = draw(keys(fields))
    values = [f"bool_and({draw(predicates(fields))}) AS p", f"bool_or({draw(predicates(fields))}) AS q"]
    values += [f"any_value({key}) AS r", f"arg_max({column.sql}, {column.sql}) AS e"]
    if whole:
        bits = draw(st.sampled_from(["bit_and", "bit_or", "bit_xor"]))
        values.append(f"{bits}({draw(st.sampled_from(whole)).sql}) AS x")
    chosen = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True))
    return Generated(
        f"SELECT {key} AS g, {', '.join(chosen)}, count(*) AS n {draw(_base(source))} GROUP BY 1"
    )


@st.composite
def quantiles(draw: st.DrawFn, source: From) -> Generated:
    """Return quantiles of one or several columns, also filtered, beside sums, compared and around groups."""
    fields = [field for field in source.fields if field.kind != "text"]
    columns = [draw(st.sampled_from(fields)).sql for _ in range(2)]
    key, share = draw(keys(source.fields)), draw(st.sampled_from(["0", "0.1", "0.5", "0.99", "1"]))
    forms = [
        f"median({columns[0]})",
        f"quantile_disc({columns[1]}, {share})",
        f"quantile_cont({columns[0]}, {share}) FILTER (WHERE {draw(predicates(source.fields))})",
        f"percentile_disc({share}) WITHIN GROUP (ORDER BY {columns[1]})",
        "count(*)",
        f"count(DISTINCT {columns[1]})",
    ]
    chosen = draw(st.lists(st.sampled_from(forms), min_size=1, max_size=3, unique=True))
    values = ", ".join(f"{value} AS v{i}" for i, value in enumerate(chosen))
    groups = f"SELECT {key} AS g, {values} {draw(_base(source))} GROUP BY 1"
    return Generated(
        draw(
            st.sampled_from(
                [
                    groups,
                    f"SELECT {values} {draw(_base(source))}",
                    f"{groups} HAVING median({columns[0]}) > quantile_disc({columns[0]}, 0.4)",
                    f"SELECT g, v0, rank() OVER (ORDER BY v0) AS r FROM ({groups}) AS t",
                    f"SELECT max(v0) AS x, count(*) AS n FROM ({groups}) AS t",
                ]
            )
        )
    )
