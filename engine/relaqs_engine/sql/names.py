"""Which columns a query can read, told from the names in its text.

SELECT sum(fare) FROM trips WHERE zone = 3       names sum's fare, and zone
SELECT * FROM trips                              may read any column: it names none
"""

from __future__ import annotations

from sqlglot import exp

_JOINS_BY_ALL_NAMES = "NATURAL"


def names_in(tree: exp.Expr) -> frozenset[str] | None:
    """Return every name in a query, in lower case; None where it may read columns that it does not name.

    There are more names than columns, such as those of tables. A column that a query reads is among them.
    """
    nodes = list(tree.walk())
    relations = {node.alias_or_name.lower() for node in nodes if isinstance(node, exp.Table | exp.CTE)}
    relations |= {node.alias.lower() for node in nodes if isinstance(node, exp.Subquery)}
    if any(_reads_unnamed(node, relations) for node in nodes):
        return None
    return frozenset(node.name.lower() for node in nodes if isinstance(node, exp.Identifier))


def _reads_unnamed(node: exp.Expr, relations: set[str]) -> bool:
    if isinstance(node, exp.Star):
        return not isinstance(node.parent, exp.Count)
    if isinstance(node, exp.Columns | exp.Pivot | exp.PositionalColumn):
        return True
    if isinstance(node, exp.Join):
        return node.args.get("method") == _JOINS_BY_ALL_NAMES
    if isinstance(node, exp.TableAlias):  # FROM trips AS t(a, b) gives its columns other names
        return isinstance(node.parent, exp.Table) and bool(node.columns)
    # SELECT t FROM trips AS t is the whole row.
    return isinstance(node, exp.Column) and not node.table and node.name.lower() in relations
