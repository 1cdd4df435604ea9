"""What a SELECT reads of each table, and which of its outputs measure.

- `names_in`, `rows_of`, `whole_table`: the columns that its text names, and the SELECT over all of its
  rows. `SELECT sum(fare) FROM trips WHERE zone = 3` names the columns fare and zone. `SELECT * FROM trips`
  names no column, so it may read any of them.
- `measures`: which columns of an answer measure, as sums and ranks do, and which name, as the zones and
  days that they are of. The plan of a query that is estimated knows that. This tells it of any other, from
  the tree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from relaqs_engine.duck import MAY_HAVE_NAN
from relaqs_engine.layouts.manifest import Table, columns_named, has_floats
from relaqs_engine.sql.aggregate_laws import is_aggregate
from relaqs_engine.sql.dialect import find_all, find_first
from relaqs_engine.sql.parse import referenced_cte


def rows_of(layout: Table) -> exp.Expr:
    """Return what reads all rows of a layout, with the columns we added."""
    if layout.from_sql:
        return exp.Table(this=exp.Var(this=layout.from_sql))
    names = map(exp.Literal.string, layout.file_names)
    arguments: list[exp.Expr] = [exp.Array(expressions=list(names))]
    if layout.hides_nan:
        arguments.append(exp.EQ(this=exp.to_identifier(MAY_HAVE_NAN), expression=exp.true()))
    if not layout.has_hive_columns:
        arguments.append(exp.EQ(this=exp.to_identifier("hive_partitioning"), expression=exp.false()))
    if layout.is_united:
        arguments.append(exp.EQ(this=exp.to_identifier("union_by_name"), expression=exp.true()))
    return exp.Table(this=exp.Anonymous(this="read_parquet", expressions=arguments))


def whole_table(layout: Table, names: frozenset[str] | None = None) -> exp.Subquery:
    """Return a derived table that reads all partitions of a layout, without the columns we added.

    names: those in the query, see `names_in`. The table has the columns among them alone: of a hundred
    columns DuckDB would bind each, which takes milliseconds.
    """
    named = columns_named(layout, names) or (layout.columns[0].name,)  # count(*) names none
    columns = [exp.column(name, quoted=True) for name in named]
    return exp.select(*columns).from_(rows_of(layout)).subquery(copy=False)


def find_greatest_floats_in_rows(tree: exp.Expr, layouts: Iterable[Table]) -> None:
    """Let no MAX of floats below a node be answered from footers. layouts: those whose files are read.

    DuckDB looks MIN and MAX of one file up in its footer. Told that NaN may be hidden there, it gives NaN for
    the greatest value, whether there is one or not. MAX with a FILTER is not looked up.
    """
    hiding = [layout for layout in layouts if layout.hides_nan and not layout.from_sql]
    types = [(column.name.lower(), column.type) for layout in hiding for column in layout.columns]
    if not any(has_floats(type_text) for _, type_text in types):
        return
    no_floats = {name for name, _ in types} - {name for name, type_text in types if has_floats(type_text)}
    for call in list(find_all(tree, exp.Max)):
        named = {column.name.lower() for column in find_all(call, exp.Column)}
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
        columns: names of columns, in lower case. A column is meant where it is called like its table.
    """
    for column in find_all(tree, exp.Column):
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
    """
    named = (exp.Alias, exp.Column, exp.Star)
    items = (
        item for select in find_all(tree, exp.Select) if select is not tree for item in select.expressions
    )
    if not any(not isinstance(item, named) and find_first(item, exp.Table) is not None for item in items):
        return None
    columns = (column.name for column in find_all(tree, exp.Column) if "select " in column.name.lower())
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


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    measures: bool


def measures(tree: exp.Expr, names: Sequence[str]) -> tuple[bool, ...]:
    """Return whether each column of an answer measures: whether it has aggregates or windows in it.

    What a query groups by names its rows, whatever it is computed from. Without groups a column is what it is
    in the derived tables that it comes from, and a column of a table names.

    Args:
        names: of the answer's columns, in order.
    """
    columns = _Reader().columns(tree)
    if len(columns) == len(names):
        return tuple(column.measures for column in columns)
    known = {column.name: column.measures for column in columns}  # a star hides how many columns there are
    return tuple(known.get(name.lower(), False) for name in names)


class _Reader:
    """Reads a tree, each query in it once."""

    def __init__(self) -> None:
        self._read: dict[int, list[_Column]] = {}

    def columns(self, query: exp.Expr) -> list[_Column]:
        """Return the columns of a query, but those of a table that stand behind a star."""
        if id(query) not in self._read:
            self._read[id(query)] = []  # what reads itself measures nothing by that
            self._read[id(query)] = list(self._columns(query))
        return self._read[id(query)]

    def _columns(self, query: exp.Expr) -> Iterator[_Column]:
        if isinstance(query, exp.Subquery):
            yield from self.columns(query.this)
        elif isinstance(query, exp.SetOperation):
            yield from self.columns(query.left)
        elif isinstance(query, exp.Select):
            computed = [_computed(item, query) for item in query.expressions]
            has_groups = query.args.get("group") is not None or any(map(any, map(_groups, computed)))
            passed_on = list(self._passed_on(query))
            for item, nodes in zip(query.expressions, computed, strict=True):
                value = item.unalias()
                is_star = isinstance(value, exp.Star) or isinstance(value.this, exp.Star)
                if is_star and isinstance(value, exp.Star | exp.Column):
                    table = value.text("table").lower()
                    yield from (column for source, column in passed_on if table in ("", source))
                else:
                    is_measure = bool(nodes) or self._holds(value)
                    if not is_measure and not has_groups:
                        is_measure = any(_is(column, passed_on) for column in find_all(value, exp.Column))
                    yield _Column(item.alias_or_name.lower(), is_measure)

    def _holds(self, value: exp.Expr) -> bool:
        """Whether a query inside of a value measures."""
        return any(column.measures for inner in find_all(value, exp.Query) for column in self.columns(inner))

    def _passed_on(self, query: exp.Select) -> Iterator[tuple[str, _Column]]:
        """Yield what the derived tables of a SELECT have, each with the name of its table."""
        from_ = query.args.get("from_")
        read = [from_.this, *(join.this for join in query.args.get("joins") or [])] if from_ else []
        for source in read:
            cte = referenced_cte(source) if isinstance(source, exp.Table) else None
            inner, alias = (source, source) if cte is None else (cte.this, cte)
            names = [name.lower() for name in alias.alias_column_names]
            for place, column in enumerate(self.columns(inner)):
                name = names[place] if place < len(names) else column.name
                yield source.alias_or_name.lower(), _Column(name, column.measures)


def _computed(value: exp.Expr, query: exp.Select) -> list[exp.Expr]:
    """Return the aggregates and windows in a value, other than those of queries inside of it."""
    return [
        node
        for node in find_all(value, exp.Expression)
        if (is_aggregate(node) or isinstance(node, exp.Window)) and node.parent_select is query
    ]


def _groups(computed: Sequence[exp.Expr]) -> Iterator[bool]:
    """Yield whether each node makes groups of the rows, as an aggregate does that is no window's."""
    for node in computed:
        call = node
        while isinstance(call.parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
            call = call.parent
        is_windows = isinstance(call.parent, exp.Window) and call.arg_key == "this"
        yield not is_windows and not isinstance(node, exp.Window)


def _is(column: exp.Column, passed_on: Sequence[tuple[str, _Column]]) -> bool:
    """Whether a column is one of a derived table that measures."""
    name, table = column.name.lower(), column.table.lower()
    return any(
        passed.measures and passed.name == name and table in ("", source) for source, passed in passed_on
    )
