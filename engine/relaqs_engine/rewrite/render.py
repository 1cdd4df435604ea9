"""The SQL texts of a plan: partial (on workers), merge, estimate and final (where the state is).

- `render`: those of an aggregation.
- `rows_as_state`: a query without aggregates keeps its rows. The state is the rows: their outputs, and
  beside them what they are ordered by. With ORDER BY and LIMIT each task returns no more rows than the
  answer can need.
- `with_places`: where LIMIT picks groups by their keys, the groups before each are counted, as far as keys
  order them. A group has its place for sure if LIMIT has room for all that may come before it: those that
  were seen, and those that were not. Groups that are ordered by estimates alone count as before each other.
- `check_types_travel`: keys and extremes come back from workers as they were. Partial aggregates travel as
  Arrow tables, and Arrow does not have every type that DuckDB has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import sqlglot
from sqlglot import exp

from relaqs_engine.layouts.manifest import BLOCK_COLUMN, BLOCK_COUNT, FLOATS
from relaqs_engine.plans.aggregate import (
    BEFORE,
    BEFORE_ONCE,
    BLOCK,
    DISTINCT_ESTIMATE,
    DISTINCT_ONCE,
    DISTINCT_SEEN,
    DISTINCT_TWICE,
    HEAVY,
    IS_FIRST,
    JUDGED_ROWS,
    OUTLIER_BLOCK,
    RIVALS,
    ROWS,
    SCALE,
    SCALE_PARAMETER,
    SHARED,
    SHARED_SCALE,
    STATE,
    UNITS,
    VALUE,
    Basis,
    BasisColumn,
    MergeTexts,
    PartialQuery,
    outlier_column,
)
from relaqs_engine.plans.plan import OutputColumn, OutputKind
from relaqs_engine.rewrite.draft import Draft, NotOnlineError, Source, output_name, said
from relaqs_engine.rewrite.scans import (
    is_filtered,
    met_several_times,
    over_hoists,
    scan_of_tables,
    scan_sql,
    scans_of,
)
from relaqs_engine.sql.dialect import find_all
from relaqs_engine.sql.parse import DIALECT

# Arrow has no bit string (only padded bytes), no order of an ENUM's values, and no zone beside a time.
_LOST = re.compile(r"\b(BIT|UHUGEINT|ENUM|TIME WITH TIME ZONE)\b")
# These come back as DECIMAL(38,0), which some functions of integers do not take.
_CHANGED = re.compile(r"\bU?HUGEINT\b")

# These are folded by functions that need the values themselves.
_AS_KEYS = (Basis.VALUES, Basis.FIRST, Basis.LAST, Basis.BIT_AND, Basis.BIT_OR, Basis.BIT_XOR)


def check_types_travel(draft: Draft, types: Mapping[str, str]) -> None:
    """Raise NotOnlineError for a type whose values would come back with another meaning.

    Args:
        draft: the query, its keys and partial aggregates known.
        types: DuckDB's type of each column of the partial query.

    For example, Arrow has no HUGEINT, and a key of that type comes back as a DECIMAL:

    >>> explained("SELECT zone::HUGEINT AS z, count(*) FROM trips GROUP BY 1", "why")
    'values of type HUGEINT change on their way between processes'
    """
    extremes = [column.name for column in draft.basis if not column.is_additive]
    keys = [f"k{position}" for position in range(len(draft.keys))]
    keys += [column.name for column in draft.basis if column.kind in _AS_KEYS]
    if draft.distinct is not None:
        keys.append(VALUE)
    for name in keys + extremes:
        if _LOST.search(types[name]) or (name in keys and _CHANGED.search(types[name])):
            raise NotOnlineError(f"values of type {types[name]} change on their way between processes")


def key_names(draft: Draft) -> tuple[str, ...]:
    return tuple(f"k{i}" for i in range(len(draft.keys)))


def partial_types(draft: Draft) -> dict[str, str]:
    """Return DuckDB's type of each column of the partial query. It is looked up over empty tables."""
    return dict(draft.binder.describe(partial_of(draft, scan_of_tables(draft), block=None, over_tables=True)))


def merged_columns(draft: Draft, types: Mapping[str, str]) -> str:
    """Return the columns that estimates and the final query see, all NULL. `types` is `partial_types`."""
    merged = dict(types)
    if draft.distinct is not None:
        merged |= {DISTINCT_SEEN: "BIGINT", DISTINCT_ONCE: "BIGINT", DISTINCT_ESTIMATE: "DOUBLE"}
    merged |= {value.name: value.type for value in draft.shared}
    merged |= {column.name: "DOUBLE" for column in draft.shared_basis}
    if draft.outlier_scan is not None:
        merged |= {outlier_column(column.name): "DOUBLE" for column in draft.basis if column.is_additive}
    columns = [f"NULL::{type_} AS {name}" for name, type_ in merged.items()]
    columns += [value.empty(types[value.listed]) for value in draft.of_values]
    return ", ".join([*columns, f"1.0 AS {SCALE}", f"1.0 AS {SHARED_SCALE}"])


def partial_query(draft: Draft) -> PartialQuery:
    """Return what a task runs: the scan, aggregated by the draft's keys."""
    assert draft.scan is not None
    body = scan_sql(draft, draft.scan, over_tables=False)
    return PartialQuery(
        sql=partial_of(draft, draft.scan, block=None, body=body),
        by_block_sql=partial_of(draft, draft.scan, block=block_of(draft), body=body),
        outlier_sql="" if draft.outlier_scan is None else partial_of(draft, draft.outlier_scan, block=None),
        heavy=draft.heavy,
        scans=scans_of(draft),
        is_filtered=is_filtered(draft.scan),
    )


def render(draft: Draft) -> MergeTexts:
    """Return the SQL from the state to answers, of a draft to which all rules were applied.

    What HAVING leaves out for now is in `having_and_limit.py`.

    >>> from relaqs_engine.rewrite.unbounded import check_kept_values
    >>> draft = after(check_kept_values, "SELECT zone, count(*) AS n FROM trips GROUP BY zone")
    >>> print(shown(partial_query(draft).sql))
    SELECT trips.zone AS k0, COUNT(*) AS b0, COUNT(*) AS m FROM partitions_of_trips AS trips GROUP BY 1
    >>> print(shown(render(draft).final))
    SELECT CAST(e0 AS INTEGER) AS o0, CAST(e1 AS BIGINT) AS o1
    FROM (SELECT *, k0 AS e0, (b0) AS e1 FROM merged)
    """
    return MergeTexts(
        merge=_with_shared(draft, _with_values(draft, merge_of(draft, key_names(draft)))),
        estimate=_final(draft, estimated=True),
        final=_final(draft, estimated=False),
        weighted_merge="" if draft.outlier_scan is None else weighted_merge_of(draft),
        early_merge="" if draft.heavy is None else merge_of(draft, key_names(draft), _with_heavy(draft)),
        value_merge="" if draft.distinct is None else _values_of(draft, STATE),
    )


def _with_shared(draft: Draft, merge: str) -> str:
    """Return the merge with the values of inner stages beside each group."""
    if not draft.shared:
        return merge
    values = [f"CAST({value.name} AS {value.type}) AS {value.name}" for value in draft.shared]
    values += [column.name for column in draft.shared_basis]
    columns = ", ".join(["merged_groups.*", *values, SHARED_SCALE])
    return f"SELECT {columns} FROM ({merge}) AS merged_groups CROSS JOIN {SHARED}"


def _with_values(draft: Draft, merge: str) -> str:
    if not draft.of_values:
        return merge
    types = {column.name: column.type for column in draft.basis}
    from relaqs_engine.rewrite.listed_values import with_functions_of_values

    return with_functions_of_values(merge, draft.of_values, key_names(draft), STATE, types)


def _mergeable(draft: Draft) -> tuple[BasisColumn, ...]:
    """Return the columns of the state that merge to one of the same kind: all but lists of values."""
    return tuple(column for column in draft.basis if column.kind is not Basis.VALUES)


def block_of(draft: Draft) -> exp.Expr:
    """Return the block of a joined row. Co-clustered rows share it. An outer join may hide one side's."""
    columns = [exp.column(BLOCK_COLUMN, source.alias, quoted=True) for source in draft.streams]
    preserved = [c for c, s in zip(columns, draft.streams, strict=True) if not s.nullable]
    block = preserved[0] if preserved else exp.Coalesce(this=columns[0], expressions=columns[1:])
    if draft.bars.block_count == BLOCK_COUNT:
        return block
    return exp.Mod(this=block, expression=exp.Literal.number(draft.bars.block_count))


def partial_of(
    draft: Draft, scan: exp.Select, block: exp.Expr | None, *, over_tables: bool = False, body: str = ""
) -> str:
    """Return the SQL of a partial query over a scan.

    over_tables: that of the tables of the catalog. body: FROM and WHERE of the scan, where they are known.
    """
    keys = [exp.alias_(key.copy(), name) for key, name in zip(draft.keys, key_names(draft), strict=True)]
    if draft.distinct is not None:
        keys.append(exp.alias_(_value_of(draft, draft.distinct), VALUE))
    if block is not None:
        keys.append(exp.alias_(block, BLOCK))
    basis = draft.basis if keys else tuple(map(_found_in_rows, draft.basis))
    select = ", ".join(
        [key.sql(DIALECT) for key in keys]
        + [f"{_partial_basis(column, draft)} AS {column.name}" for column in basis]
        + ([f"{_units(draft)} AS {UNITS}"] if draft.distinct is not None else [])
        + [f"COUNT(*) AS {ROWS}"]
    )
    group = _group_by(draft, len(keys))
    body = body or scan_sql(draft, scan, over_tables=over_tables)
    return f"SELECT {select if over_tables else over_hoists(draft, select)} {body}{group}"


def _value_of(draft: Draft, value: exp.Expr) -> exp.Expr:
    """Return what COUNT(DISTINCT …) counts. It is no key of a grouping set, although it may equal one.

    DuckDB takes equal expressions for one key, and would group by it in each set. CASE makes them unequal as
    long as the query is bound. After that DuckDB takes it away.
    """
    if not draft.grouping_sets:
        return value.copy()
    return exp.case().when(exp.true(), value.copy())


def _group_by(draft: Draft, count: int) -> str:
    """Return GROUP BY of the partial query by its first columns: all, or the keys of each grouping set."""
    if not draft.grouping_sets:
        return f" GROUP BY {', '.join(str(i + 1) for i in range(count))}" if count else ""
    others = range(len(draft.keys), count)
    sets = [", ".join(str(i + 1) for i in (*each[:-1], *others)) for each in draft.grouping_sets]
    return f" GROUP BY GROUPING SETS ({', '.join(f'({each})' for each in sets)})"


def _state(draft: Draft) -> str:
    """Return the partial rows to merge. The set of no keys has one group, even where there are no rows."""
    if not any(len(each) == 1 for each in draft.grouping_sets):
        return STATE
    last = len(draft.keys) - 1
    return f"(FROM {STATE} UNION ALL BY NAME SELECT CAST({(1 << last) - 1} AS BIGINT) AS k{last})"


def _with_heavy(draft: Draft) -> str:
    """Return the partial rows with the heavy groups. What the partitions have of these is left out."""
    same = " AND ".join(f"{STATE}.{key} IS NOT DISTINCT FROM {HEAVY}.{key}" for key in key_names(draft))
    return f"(FROM {STATE} ANTI JOIN {HEAVY} ON {same} UNION ALL BY NAME FROM {HEAVY})"


def _units(draft: Draft) -> str:
    """Return the SQL that tells whether the rows of a value are of one sampling unit: 1 if so, else more.

    Counting the units would need a set of them for each value. That takes 14 times as long for 2,500 dates
    of 6 million rows. In a FULL JOIN a row may be of one table alone, and has its unit there.
    """
    preserved = [source for source in draft.streams if not source.nullable]
    sources = preserved[:1] or draft.streams
    if not sources[0].key_columns:
        return "COUNT(*)"
    units = [_first_known(sources, place) for place in range(len(sources[0].key_columns))]
    unit = f"hash({', '.join(units)})"
    return f"CASE WHEN min({unit}) = max({unit}) THEN 1 ELSE 2 END"


def _first_known(sources: Sequence[Source], place: int) -> str:
    """Return the key column of that place, of the first of these tables that a row has a row of."""
    columns = [exp.column(source.key_columns[place], source.alias, quoted=True) for source in sources]
    known = columns[0] if len(columns) == 1 else exp.Coalesce(this=columns[0], expressions=columns[1:])
    return known.sql(DIALECT)


def _partial_basis(column: BasisColumn, draft: Draft) -> str:
    if column.kind is Basis.M2:
        count = next(c for c in draft.basis if c.name == column.count_of)
        return f"{column.sql} * {count.sql}"
    if column.kind is Basis.MEAN:
        return _partial_mean(column.sql)
    return column.sql


def _found_in_rows(column: BasisColumn) -> BasisColumn:
    """Return a column of which no MAX of floats is answered from footers (see `sql/columns.py`)."""
    if column.kind is not Basis.MAX or column.type not in FLOATS:
        return column
    aggregate = sqlglot.parse_one(column.sql, dialect=DIALECT)
    if isinstance(aggregate, exp.Filter):
        return column
    return replace(column, sql=exp.Filter(this=aggregate, expression=exp.Where(this=exp.true())).sql(DIALECT))


def _partial_mean(average: str) -> str:
    """Return the SQL of a mean without rounding: of equal values, and of a sum of many.

    FAVG is NaN where a value is infinite. The least plus the greatest is then as the mean: infinite or NaN.
    """
    least, most, exactly = (average.replace("AVG(", f"{name}(", 1) for name in ("MIN", "MAX", "FAVG"))
    of_all = f"CASE WHEN ISNAN({exactly}) THEN {least} + {most} ELSE {exactly} END"
    return f"CASE WHEN {least} = {most} THEN {least} ELSE {of_all} END"


def merge_of(draft: Draft, key_columns: tuple[str, ...], source: str = "") -> str:
    """Return the SELECT of one row for each group over the state, in the partial query's own types.

    Args:
        key_columns: the columns that make a group.
        source: a query of some rows of the state. Without it, all rows are merged.
    """
    if draft.distinct is not None:
        return _merge_values(draft)
    keys, columns = ", ".join(key_columns), [_merged(column) for column in _mergeable(draft)]
    source = source or _state(draft)
    moments = [column for column in draft.basis if column.kind is Basis.MEAN]
    if moments:
        over = f"(PARTITION BY {keys})" if keys else "()"
        grand = ", ".join(f"{_weighted_mean(c, f' OVER {over}')} AS grand_{c.name}" for c in moments)
        source = f"(SELECT *, {grand} FROM {source})"
    select = ", ".join(list(key_columns) + columns + [f"CAST(coalesce(sum({ROWS}), 0) AS BIGINT) AS {ROWS}"])
    return f"SELECT {select} FROM {source}" + (f" GROUP BY {keys}" if keys else "")


def weighted_merge_of(draft: Draft) -> str:
    """Return the SELECT of one row for each group, for an estimate where the state holds outliers as well.

    The sample's part is scaled up later, and the outliers' part must not be. So outliers weigh 1 / scale
    here. Beside each additive column stands what outliers add to it, without that weight. Sums and counts are
    doubles.
    """
    keys = ", ".join(key_names(draft))
    is_outlier = f"{BLOCK} = {OUTLIER_BLOCK}"
    moments = [column for column in draft.basis if column.kind is Basis.MEAN]
    over = f"(PARTITION BY {keys})" if keys else "()"
    grand = [
        f"{_weighted_mean(c, f' OVER {over}', f'weight * {c.count_of}')} AS grand_{c.name}" for c in moments
    ]
    weight = f"CASE WHEN {is_outlier} THEN 1 / {SCALE_PARAMETER} ELSE 1.0 END AS weight"
    weighed = f"(SELECT *, {weight} FROM {_state(draft)})"
    source = f"(SELECT *, {', '.join(grand)} FROM {weighed})" if grand else weighed
    columns = [_weighted(column) for column in _mergeable(draft)]
    columns += [
        f"coalesce(sum({column.additive_sql}) FILTER ({is_outlier}), 0) AS {outlier_column(column.name)}"
        for column in draft.basis
        if column.is_additive
    ]
    rows = f"sum({ROWS}) FILTER ({BLOCK} IS DISTINCT FROM {OUTLIER_BLOCK})"
    select = ", ".join([*key_names(draft), *columns, f"CAST(coalesce({rows}, 0) AS BIGINT) AS {ROWS}"])
    return f"SELECT {select} FROM {source}" + (f" GROUP BY {keys}" if keys else "")


def _weighted(column: BasisColumn) -> str:
    """Return how a basis column is merged where rows of the state have a weight."""
    if column.kind is Basis.MEAN:
        return f"{_weighted_mean(column, count=f'weight * {column.count_of}')} AS {column.name}"
    if column.is_additive:
        empty = "0" if column.kind is Basis.COUNT else "NULL"
        return f"coalesce(sum(weight * {column.additive_sql}), {empty}) AS {column.name}"
    return _merged(column)


def _merge_values(draft: Draft) -> str:
    """Return the merge of a state with one row for each distinct value: first the values, then the groups."""
    if any(column.is_moment for column in draft.basis):
        raise NotOnlineError("it counts distinct values beside a variance")
    counts = [
        f"count({VALUE}) AS {DISTINCT_SEEN}",
        f"count({VALUE}) FILTER (WHERE {UNITS} = 1) AS {DISTINCT_ONCE}",
        f"count({VALUE}) FILTER (WHERE {UNITS} = 2) AS {DISTINCT_TWICE}",
    ]
    basis = [_merged(column) for column in _mergeable(draft)]
    rows = f"coalesce(sum({ROWS}), 0)::BIGINT AS {ROWS}"
    select = ", ".join([*key_names(draft), *basis, rows, *counts])
    sql = f"SELECT {select} FROM ({_values_of(draft, _state(draft))})"
    return sql + (f" GROUP BY {', '.join(key_names(draft))}" if draft.keys else "")


def _values_of(draft: Draft, state: str) -> str:
    """Return the merge of a state to one row for each value of each group."""
    by_value = ", ".join([*key_names(draft), VALUE])
    basis = [_merged(column) for column in _mergeable(draft)]
    sums = [f"sum({name})::BIGINT AS {name}" for name in (ROWS, UNITS)]
    return f"SELECT {', '.join([by_value, *basis, *sums])} FROM {state} GROUP BY {by_value}"


def _merged(column: BasisColumn) -> str:
    name = column.name
    match column.kind:
        case Basis.COUNT:
            value = f"coalesce(sum({name}), 0)"
        case Basis.SUM | Basis.PRODUCT:
            value = f"sum({name})"
        case Basis.MEAN:
            value = _weighted_mean(column)
        case Basis.M2:
            value = f"sum({column.additive_sql})"
        case Basis.FIRST | Basis.LAST:
            order = ", ".join(f"{name}.{field}" for field in column.order)
            inside = f"{name} ORDER BY {order}" if order else name
            value = f"{column.kind.value}({inside}) FILTER (WHERE {name} IS NOT NULL)"
        case Basis.ARG_MIN | Basis.ARG_MAX:
            value = f"{column.kind.value}({name}, {column.extreme_of})"
        case _:
            value = f"{column.kind.value}({name})"
    return f"CAST({value} AS {column.type}) AS {name}"


def _weighted_mean(mean: BasisColumn, over: str = "", count: str = "") -> str:
    """Return the mean of all rows. Equal means stay as they are, to the last digit.

    Else rounding would give constant values a variance, and so a correlation.
    """
    name, n = mean.name, count or mean.count_of
    of_all = f"sum({n} * {name}){over} / nullif(sum({n}){over}, 0)"
    return f"CASE WHEN min({name}){over} = max({name}){over} THEN min({name}){over} ELSE {of_all} END"


def _final(draft: Draft, *, estimated: bool) -> str:
    """Return the final query over `merged`, exact or estimated.

    The exact query gives the answer's columns o0, … in DuckDB's types. The estimated one reads a `scale`
    column beside the basis. It gives the answer's columns too, each estimate's value as DOUBLE (v0, …), and
    the keys, basis and row counts of the groups that are shown.
    """
    tree = attempted(draft.estimate_tree) if estimated else draft.exact_tree
    assert tree is not None
    having = tree.args.get("having")
    sql = valued(draft, tree, having.this.sql(DIALECT) if having else "", estimated=estimated)
    for part in ("order", "limit", "offset"):
        if node := tree.args.get(part):
            text = node.sql(DIALECT)
            if part == "limit" and estimated and draft.membership.ranking is not None:
                text = _with_rivals(node)
            if (
                part == "order"
                and estimated
                and draft.membership.ranks_averages
                and not draft.groups.are_local
            ):
                text = text.replace("ORDER BY", f"ORDER BY {ROWS} < {JUDGED_ROWS},", 1)
            sql += f" {text}"
    return sql


def valued(draft: Draft, tree: exp.Select, condition: str, *, estimated: bool) -> str:
    """Return the SELECT of the groups that meet a condition ("" for all groups), without order."""
    values = ", ".join(
        f"{item.unalias().sql(DIALECT)} AS {output_name(i)}" for i, item in enumerate(tree.expressions)
    )
    deciders = draft.membership.deciders if estimated else ()
    hidden = "".join(f", TRY({d.value.smooth_sql}) AS d{i}" for i, d in enumerate(deciders))
    source = with_places(draft) if estimated else "merged"
    inner = f"SELECT *, {values}{hidden} FROM {source}" + (f" WHERE {condition}" if condition else "")
    select = [_typed(output, i, estimated) for i, output in enumerate(draft.outputs)]
    if estimated:
        select += [
            f"{_unrounded(output, i)} AS v{i}"
            for i, output in enumerate(draft.outputs)
            if output.kind in (OutputKind.ESTIMATE, OutputKind.QUANTILE)
        ]
        select += [f"CAST(d{i} AS DOUBLE) AS d{i}" for i in range(len(deciders))]
        basis = (*_mergeable(draft), *draft.shared_basis)
        select += [*key_names(draft), *(column.name for column in basis), ROWS]
        if draft.outlier_scan is not None:
            select += [outlier_column(column.name) for column in draft.basis if column.is_additive]
        if draft.distinct is not None:
            select += [DISTINCT_SEEN, DISTINCT_ONCE]
        select += place_columns(draft)
    return f"SELECT {', '.join(select)} FROM ({inner})"


def with_places(draft: Draft) -> str:
    """Return the source of merged groups, with their places by keys where LIMIT picks groups."""
    if not _has_room(draft):
        return "merged"
    # count(…) FILTER (…) OVER (…) takes DuckDB twenty times as long as this CASE, and a window of all groups
    # twice as long as a subquery.
    counts = ("count(*)", f"count(CASE WHEN {ROWS} <= {_rows_of_unit(draft)} THEN 1 END)")
    by_keys = ", ".join(draft.membership.first_by)
    before, once = (
        f"{count} OVER (ORDER BY {by_keys})" if by_keys else f"(SELECT {count} FROM merged)"
        for count in counts
    )
    places = [f"{before} AS {BEFORE}", f"{once} AS {BEFORE_ONCE}", f"{_is_first(draft)} AS {IS_FIRST}"]
    return f"(SELECT *, {', '.join(places)} FROM merged)"


def place_columns(draft: Draft) -> tuple[str, ...]:
    """Return the names of the columns that `with_places` adds."""
    return (BEFORE, BEFORE_ONCE, IS_FIRST) if _has_room(draft) else ()


def _has_room(draft: Draft) -> bool:
    """Whether LIMIT picks groups of one sampled table whose rows lie in all partitions, each once at most."""
    is_limited = draft.membership.most_rows is not None and bool(draft.keys)
    if not is_limited or len(draft.streams) != 1 or draft.groups.are_local:
        return False
    return not any(met_several_times(draft))


def _rows_of_unit(draft: Draft) -> int:
    [stream] = draft.streams
    return stream.layout.max_unit_rows


def _is_first(draft: Draft) -> str:
    """Return SQL that says whether all keys are NULL and NULL comes first, as in the total of a ROLLUP.

    What the answer is ordered by after all of its keys tells only rows apart that have the same keys.
    """
    keys = draft.keys[:-1] if draft.grouping_sets else draft.keys
    names = [f"k{i}" for i in range(len(keys))]
    order = draft.membership.first_by[: len(names)]
    ordered = {each.removesuffix(" NULLS FIRST").removesuffix(" DESC").strip('"') for each in order}
    if ordered != set(names) or not all(each.endswith(" NULLS FIRST") for each in order):
        return "FALSE"
    return " AND ".join(f"{name} IS NULL" for name in names)


def _unrounded(output: OutputColumn, position: int) -> str:
    """Return what error bars are of, a DOUBLE. Quantiles of moments and intervals stay what they are."""
    value = f"TRY({output.unrounded_sql})" if output.unrounded_sql else output_name(position)
    is_number = output.kind is OutputKind.ESTIMATE or output.time is None
    return f"CAST({value} AS DOUBLE)" if is_number else value


def _with_rivals(limit: exp.Expr) -> str:
    """Return LIMIT for the groups shown and those just behind them, which tell how certain the ranks are."""
    return f"LIMIT {int(limit.expression.this) + RIVALS}"


def attempted(tree: exp.Select | None) -> exp.Select | None:
    """Return the tree with NULL for what fails: an estimate may overflow a cast, and the answer may not."""
    if tree is None:
        return None
    tree = tree.copy()
    having, order = tree.args.get("having"), tree.args.get("order")
    around = [*([having] if having else []), *(order.expressions if order else [])]
    for expression in [item.unalias() for item in tree.expressions] + [part.this for part in around]:
        if not isinstance(expression, exp.Column):
            expression.replace(exp.Try(this=expression.copy()))
    return tree


def _typed(output: OutputColumn, position: int, estimated: bool) -> str:
    cast = "TRY_CAST" if estimated else "CAST"
    return f"{cast}({output_name(position)} AS {output.type}) AS o{position}"


def rows_as_state(draft: Draft) -> Draft:
    """Return the draft with the columns of its rows as keys: the outputs, then what they are ordered by.

    >>> draft = after(rows_as_state, "SELECT fare FROM trips WHERE km > 50 ORDER BY zone LIMIT 9")
    >>> [shown(key) for key in draft.keys]
    ['trips.fare', 'trips.zone']
    >>> print(shown(rows_query(draft).sql))
    SELECT trips.fare AS k0, trips.zone AS k1 FROM partitions_of_trips AS trips
    WHERE trips.km > 50 ORDER BY k1 LIMIT 9
    """
    if len(draft.select.expressions) != len(draft.schema):
        raise NotOnlineError("one of its outputs stands for several columns")
    values = [item.unalias() for item in draft.select.expressions]
    ordered_by = (expression for expression, _ in _ordering(draft))
    outputs = tuple(OutputColumn(name, OutputKind.KEY, type_, "") for name, type_ in draft.schema)
    return replace(draft, outputs=outputs, keys=(*values, *ordered_by))


def _ordering(draft: Draft) -> list[tuple[exp.Expr, exp.Ordered]]:
    """Return what the rows are ordered by, with expressions in the place of outputs' names."""
    order = draft.select.args.get("order")
    by_name = {item.alias: item.unalias() for item in reversed(draft.select.expressions)}
    found = []
    for ordered in order.expressions if order else []:
        value = ordered.this
        if isinstance(value, exp.Column) and not value.table and value.name in by_name:
            value = by_name[value.name]
        elif output := next((each for each in find_all(value, exp.Column) if not each.table), None):
            names = f"ORDER BY {said(value)} computes with the output {said(output)}"
            raise NotOnlineError(f"{names}; write out what that stands for")
        found.append((value, ordered))
    return found


def limit_rows(draft: Draft) -> int | None:
    """Return how many rows make the whole answer, whichever they are: those of a LIMIT without ORDER BY."""
    limit = draft.select.args.get("limit")
    if limit is None or draft.select.args.get("order") or draft.select.args.get("offset"):
        return None
    return int(limit.expression.this)


def rows_query(draft: Draft) -> PartialQuery:
    """Return what a task runs."""
    assert draft.scan is not None
    return PartialQuery(
        rows_sql(draft, draft.scan), scans=scans_of(draft), is_filtered=is_filtered(draft.scan)
    )


def row_types(draft: Draft) -> dict[str, str]:
    """Return DuckDB's type of each column of the rows, read off over empty tables."""
    return dict(draft.binder.describe(rows_sql(draft, scan_of_tables(draft), over_tables=True)))


def rows_sql(draft: Draft, scan: exp.Select, *, over_tables: bool = False) -> str:
    """Return the query of the rows in a scan. over_tables: that of the tables of the catalog."""
    select = ", ".join(f"{key.sql(DIALECT)} AS k{i}" for i, key in enumerate(draft.keys))
    body = scan_sql(draft, scan, over_tables=over_tables)
    values = select if over_tables else over_hoists(draft, select)
    return f"SELECT {values} {body}" + _needed_rows(draft, _order_by(draft))


def rows_final_sql(draft: Draft) -> str:
    """Return the query from the state to the answer."""
    outputs = ", ".join(f"CAST(k{i} AS {output.type}) AS o{i}" for i, output in enumerate(draft.outputs))
    final = f"SELECT {outputs} FROM {STATE}{_order_by(draft)}"
    for part in ("limit", "offset"):
        if node := draft.select.args.get(part):
            final += " " + node.sql(DIALECT).strip()
    return final


def _order_by(draft: Draft) -> str:
    first = len(draft.outputs)
    items = []
    for i, (_, ordered) in enumerate(_ordering(draft)):
        item = ordered.copy()
        item.set("this", exp.column(f"k{first + i}"))
        items.append(item.sql(DIALECT))
    return f" ORDER BY {', '.join(items)}" if items else ""


def _needed_rows(draft: Draft, order: str) -> str:
    """Return ORDER BY and LIMIT of a task. Rows beyond those of the whole answer cannot be in it."""
    limit, offset = draft.select.args.get("limit"), draft.select.args.get("offset")
    if limit is None:
        return ""
    needed = int(limit.expression.this) + (int(offset.expression.this) if offset else 0)
    return f"{order} LIMIT {needed}"
