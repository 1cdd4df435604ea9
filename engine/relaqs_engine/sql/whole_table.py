"""The SQL that reads a whole table."""

from __future__ import annotations

from sqlglot import exp

from relaqs_engine.duck import MAY_HAVE_NAN, one_file
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.reads import columns_named


def rows_of(layout: Layout) -> exp.Expr:
    """Return what reads all rows of a layout, with the columns we added."""
    assert not layout.is_first_part, f"the first part of {layout.table} is not the table"
    if layout.from_sql:
        return exp.Table(this=exp.Var(this=layout.from_sql))
    paths = [one_file(str(path)) if layout.is_plain else str(path) for path in layout.paths]
    arguments: list[exp.Expr] = [exp.Array(expressions=list(map(exp.Literal.string, paths)))]
    arguments.append(exp.EQ(this=exp.to_identifier(MAY_HAVE_NAN), expression=exp.true()))
    if not layout.has_hive_columns:
        arguments.append(exp.EQ(this=exp.to_identifier("hive_partitioning"), expression=exp.false()))
    return exp.Table(this=exp.Anonymous(this="read_parquet", expressions=arguments))


def whole_table(layout: Layout, names: frozenset[str] | None = None) -> exp.Subquery:
    """Return a derived table that reads all partitions of a layout, without the columns we added.

    names: those in the query, see `names.py`. The table has the columns among them alone: of a hundred
    columns DuckDB would bind each, which takes milliseconds.
    """
    named = columns_named(layout, names) or (layout.columns[0].name,)  # count(*) names none
    columns = [exp.column(name, quoted=True) for name in named]
    return exp.select(*columns).from_(rows_of(layout)).subquery(copy=False)
