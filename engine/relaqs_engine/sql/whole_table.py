"""The SQL that reads a whole table."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from relaqs_engine.duck import MAY_HAVE_NAN, one_file
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.number_types import has_floats
from relaqs_engine.layouts.reads import columns_named


def rows_of(layout: Layout) -> exp.Expr:
    """Return what reads all rows of a layout, with the columns we added."""
    assert not layout.is_first_part, f"the first part of {layout.table} is not the table"
    if layout.from_sql:
        return exp.Table(this=exp.Var(this=layout.from_sql))
    paths = [one_file(str(path)) if layout.is_plain else str(path) for path in layout.paths]
    arguments: list[exp.Expr] = [exp.Array(expressions=list(map(exp.Literal.string, paths)))]
    if layout.hides_nan:
        arguments.append(exp.EQ(this=exp.to_identifier(MAY_HAVE_NAN), expression=exp.true()))
    if not layout.has_hive_columns:
        arguments.append(exp.EQ(this=exp.to_identifier("hive_partitioning"), expression=exp.false()))
    if layout.is_united:
        arguments.append(exp.EQ(this=exp.to_identifier("union_by_name"), expression=exp.true()))
    return exp.Table(this=exp.Anonymous(this="read_parquet", expressions=arguments))


def whole_table(layout: Layout, names: frozenset[str] | None = None) -> exp.Subquery:
    """Return a derived table that reads all partitions of a layout, without the columns we added.

    names: those in the query, see `names.py`. The table has the columns among them alone: of a hundred
    columns DuckDB would bind each, which takes milliseconds.
    """
    named = columns_named(layout, names) or (layout.columns[0].name,)  # count(*) names none
    columns = [exp.column(name, quoted=True) for name in named]
    return exp.select(*columns).from_(rows_of(layout)).subquery(copy=False)


def find_greatest_floats_in_rows(tree: exp.Expr, layouts: Iterable[Layout]) -> None:
    """Let no MAX of floats below a node be answered from footers. layouts: those whose files are read.

    DuckDB looks MIN and MAX of one file up in its footer. Told that NaN may be hidden there, it gives NaN for
    the greatest value, whether there is one or not. MAX with a FILTER is not looked up.

    >>> import sqlglot
    >>> from relaqs_engine.planning.example import CATALOG
    >>> tree = sqlglot.parse_one("SELECT max(fare), max(zone), min(fare) FROM trips", dialect="duckdb")
    >>> find_greatest_floats_in_rows(tree, [CATALOG.table("trips")])
    >>> tree.sql("duckdb")
    'SELECT MAX(fare) FILTER(WHERE TRUE), MAX(zone), MIN(fare) FROM trips'
    """
    hiding = [layout for layout in layouts if layout.hides_nan and not layout.from_sql]
    types = [(column.name.lower(), column.type) for layout in hiding for column in layout.columns]
    if not any(has_floats(type_text) for _, type_text in types):
        return
    no_floats = {name for name, _ in types} - {name for name, type_text in types if has_floats(type_text)}
    for call in list(tree.find_all(exp.Max)):
        named = {column.name.lower() for column in call.find_all(exp.Column)}
        if _is_over_all_rows(call) and not (named and named <= no_floats):
            call.replace(exp.Filter(this=call.copy(), expression=exp.Where(this=exp.true())))


def _is_over_all_rows(call: exp.Max) -> bool:
    """Whether a MAX stands alone, in a SELECT without groups."""
    if isinstance(call.parent, exp.Filter | exp.Window | exp.IgnoreNulls | exp.RespectNulls):
        return False
    select = call.find_ancestor(exp.Select, exp.Pivot)
    group = select.args.get("group") if isinstance(select, exp.Select) else None
    has_keys = group is not None and any(value for key, value in group.args.items() if key != "all")
    return isinstance(select, exp.Select) and not has_keys
