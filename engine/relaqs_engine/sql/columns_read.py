"""What a query reads of each table: the columns that its text names, and the SELECT over all its rows.

`SELECT sum(fare) FROM trips WHERE zone = 3` names the columns fare and zone. `SELECT * FROM trips` names
no column, so it may read any of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from sqlglot import exp

from relaqs_engine.duck import MAY_HAVE_NAN, one_file
from relaqs_engine.layouts.manifest import Layout, has_floats
from relaqs_engine.layouts.reads import columns_named
from relaqs_engine.sql.parse import referenced_cte


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

    names: those in the query, see `names_in`. The table has the columns among them alone: of a hundred
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


_JOINS_BY_ALL_NAMES = "NATURAL"
_NAMES_WITHOUT_BRACKETS = (
    exp.CurrentDate,
    exp.CurrentTime,
    exp.CurrentTimestamp,
    exp.Localtime,
    exp.Localtimestamp,
)


def names_in(tree: exp.Expr) -> frozenset[str] | None:
    """Return every name in a query, in lower case, None where it may read columns that it does not name.

    There are more names than columns, such as those of tables. A column that the query reads is among them.

    >>> import sqlglot
    >>> sorted(names_in(sqlglot.parse_one("SELECT sum(fare) FROM trips WHERE zone = 3")))
    ['fare', 'trips', 'zone']
    >>> names_in(sqlglot.parse_one("SELECT * FROM trips")) is None
    True
    """
    nodes = list(tree.walk())
    relations = {node.alias_or_name.lower() for node in nodes if isinstance(node, exp.Table | exp.CTE)}
    relations |= {node.alias.lower() for node in nodes if isinstance(node, exp.Subquery)}
    if any(_reads_unnamed(node, relations) for node in nodes):
        return None
    return frozenset(name for node in nodes if (name := _name_of(node)))


def whole_row(tree: exp.Expr, columns: Collection[str]) -> str | None:
    """Return the first relation whose rows the query takes as whole values, None if there is none.

    Args:
        tree: the query.
        columns: names of columns, in lower case. A column is meant where it is called like its table.

    >>> import sqlglot
    >>> whole_row(sqlglot.parse_one("SELECT to_json(trips) FROM trips"), {"fare"})
    'trips'
    >>> whole_row(sqlglot.parse_one("SELECT trips.fare FROM trips"), {"fare"}) is None
    True
    """
    for column in tree.find_all(exp.Column):
        name = column.name.lower()
        if column.table or name in columns:
            continue
        is_row = any(_gives_row(relation, name) for relation in _relations_in_scope(column))
        if is_row and not _means_an_output(column):
            return column.name
    return None


def row_without_names(tree: exp.Expr) -> str | None:
    """Return what the query takes from a derived table by a name that the text of its tables gives, or None.

    An output without a name is called like its text, and tables have another text where they are read. It is
    a relation whose rows are taken as values, or the name of such an output.

    >>> import sqlglot
    >>> rows = "SELECT (SELECT max(fare) FROM trips)"
    >>> row_without_names(sqlglot.parse_one(f"SELECT q FROM ({rows}) AS q", dialect="duckdb"))
    'q'
    >>> row_without_names(sqlglot.parse_one(f"SELECT * FROM ({rows}) AS q", dialect="duckdb")) is None
    True
    """
    named = (exp.Alias, exp.Column, exp.Star)
    items = (
        item for select in tree.find_all(exp.Select) if select is not tree for item in select.expressions
    )
    if not any(not isinstance(item, named) and item.find(exp.Table) is not None for item in items):
        return None
    columns = (column.name for column in tree.find_all(exp.Column) if "select " in column.name.lower())
    return whole_row(tree, ()) or next(columns, None)


def _relations_in_scope(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield what stands in FROM of the SELECTs around a node, the innermost first."""
    select = node.find_ancestor(exp.Select)
    while select is not None:
        if (from_ := select.args.get("from_")) is not None:
            yield from_.this
        yield from (join.this for join in select.args.get("joins") or [])
        select = select.find_ancestor(exp.Select)


def _gives_row(relation: exp.Expr, name: str) -> bool:
    """Whether a name is a relation's own, and not that of one of its columns."""
    if relation.alias_or_name.lower() != name:
        return False
    cte = referenced_cte(relation) if isinstance(relation, exp.Table) else None
    body = relation.this if isinstance(relation, exp.Subquery) else cte.this if cte is not None else None
    return not isinstance(body, exp.Query) or name not in {each.lower() for each in body.named_selects}


def _means_an_output(column: exp.Column) -> bool:
    """Whether a name after SELECT's list is an output's: count(*) AS trips FROM trips ORDER BY trips."""
    clause = column.find_ancestor(exp.Order, exp.Group, exp.Having, exp.Qualify, exp.Query)
    query = clause.parent if clause is not None else None
    if isinstance(clause, exp.Query) or not isinstance(query, exp.Query):
        return False
    return column.name.lower() in {name.lower() for name in query.named_selects}


def _name_of(node: exp.Expr) -> str:
    """Return the name, in lower case, that a node may have as a column; "" if it cannot be one."""
    if isinstance(node, exp.Identifier | exp.Var):
        return node.name.lower()
    # A column may be called like a function that is written without brackets, such as current_date.
    return node.sql_name().lower() if isinstance(node, _NAMES_WITHOUT_BRACKETS) else ""


def _reads_unnamed(node: exp.Expr, relations: set[str]) -> bool:
    if isinstance(node, exp.Star):
        return not isinstance(node.parent, exp.Count)
    if isinstance(node, exp.Columns | exp.Pivot | exp.PositionalColumn):
        return True
    if isinstance(node, exp.Join):
        return node.args.get("method") == _JOINS_BY_ALL_NAMES
    if isinstance(node, exp.TableAlias):  # FROM trips AS t(a, b) gives its columns other names
        return bool(node.columns) and not isinstance(node.parent, exp.CTE | exp.Values)
    # SELECT t FROM trips AS t is the whole row.
    return isinstance(node, exp.Column) and not node.table and node.name.lower() in relations
