"""Which columns a query can read, told from the names in its text.

SELECT sum(fare) FROM trips WHERE zone = 3       names sum's fare, and zone
SELECT * FROM trips                              may read any column: it names none
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

_JOINS_BY_ALL_NAMES = "NATURAL"
_NAMES_WITHOUT_BRACKETS = (
    exp.CurrentDate,
    exp.CurrentTime,
    exp.CurrentTimestamp,
    exp.Localtime,
    exp.Localtimestamp,
)


def names_in(tree: exp.Expr) -> frozenset[str] | None:
    """Return every name in a query, in lower case; None where it may read columns that it does not name.

    There are more names than columns, such as those of tables. A column that a query reads is among them.
    """
    nodes = list(tree.walk())
    relations = {node.alias_or_name.lower() for node in nodes if isinstance(node, exp.Table | exp.CTE)}
    relations |= {node.alias.lower() for node in nodes if isinstance(node, exp.Subquery)}
    if any(_reads_unnamed(node, relations) for node in nodes):
        return None
    return frozenset(name for node in nodes if (name := _name_of(node)))


def whole_row(tree: exp.Expr, columns: Collection[str]) -> str | None:
    """Return the first relation that the query takes a whole row of as a value, None if there is none.

    columns: names of columns, in lower case. A column is meant where it is called like its table.
    """
    relations = {
        node.alias_or_name.lower()
        for node in tree.walk()
        if isinstance(node, exp.Table | exp.CTE | exp.Subquery)
    }
    rows = relations - set(columns)
    found = (node for node in tree.find_all(exp.Column) if not node.table and node.name.lower() in rows)
    return next((node.name for node in found if not _means_an_output(node)), None)


def _means_an_output(column: exp.Column) -> bool:
    """Whether a name after SELECT's list is an output's: count(*) AS trips FROM trips ORDER BY trips."""
    clause = column.find_ancestor(exp.Order, exp.Group, exp.Having, exp.Qualify, exp.Query)
    query = clause.parent if clause is not None else None
    if isinstance(clause, exp.Query) or not isinstance(query, exp.Query):
        return False
    return column.name.lower() in {name.lower() for name in query.named_selects}


def _name_of(node: exp.Expr) -> str:
    """Return the name that a node may be of a column, in lower case; "" for none."""
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
