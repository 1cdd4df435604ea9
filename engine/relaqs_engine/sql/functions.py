"""Which functions a query may call: pure functions of their arguments, each named in a list.

DuckDB itself is opened without files, settings or Python variables. This list is the second lock. It was
drawn from DuckDB 2.0's functions of stability CONSISTENT, without those that tell about the process, the
session or the database.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from sqlglot import exp

from relaqs_engine.errors import SqlError
from relaqs_engine.sql.dialect import DIALECT

# Their value depends on the moment or on chance. Only one evaluation for the whole query is sound.
VOLATILE: tuple[type[exp.Expr], ...] = (
    exp.CurrentDate,
    exp.CurrentDatetime,
    exp.CurrentTime,
    exp.CurrentTimestamp,
    exp.Localtime,
    exp.Localtimestamp,
    exp.Rand,
    exp.Randn,
    exp.Uuid,
)
VOLATILE_NAMES = frozenset({"now", "today", "random", "uuid", "gen_random_uuid", "get_current_timestamp"})

_REFUSED: tuple[type[exp.Expr], ...] = (
    exp.CurrentCatalog,
    exp.CurrentDatabase,
    exp.CurrentRole,
    exp.CurrentSchema,
    exp.CurrentSchemas,
    exp.CurrentUser,
    exp.CurrentVersion,
    exp.SessionUser,
    exp.ReadCSV,
    exp.ReadParquet,
)


@cache
def allowed_functions() -> frozenset[str]:
    text = files("relaqs_engine.sql").joinpath("allowed_functions.txt").read_text(encoding="utf-8")
    return frozenset(text.split())


def check_functions(query: exp.Expr) -> None:
    """Raise SqlError for a function that could see more than its arguments and the catalog.

    >>> import sqlglot
    >>> check_functions(sqlglot.parse_one("SELECT getenv('HOME')", dialect="duckdb"))
    Traceback (most recent call last):
    relaqs_engine.errors.SqlError: the function 'getenv' is not known or not allowed in a query...
    """
    for node in query.find_all(exp.Func):
        if isinstance(node, _REFUSED):
            raise SqlError(f"the function {node.sql_name().lower()} is not allowed in a query")
        if isinstance(node, exp.Anonymous) and not is_array_of_query(node):
            name = node.name.lower()
            if name not in allowed_functions() and name not in VOLATILE_NAMES:
                raise SqlError(
                    f"the function {name!r} is not known or not allowed in a query",
                    candidates=_similar(name),
                )


def is_array_of_query(node: exp.Expr) -> bool:
    """Whether a node is ARRAY(SELECT …), the list of what a query gives."""
    is_array = isinstance(node, exp.Anonymous) and node.name.lower() == "array"
    return is_array and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Query)


def volatile_function(query: exp.Expr) -> str | None:
    """Return the text of a call that depends on the moment or on chance, None if the query has none.

    >>> import sqlglot
    >>> volatile_function(sqlglot.parse_one("SELECT fare * random() FROM trips", dialect="duckdb"))
    'random()'
    """
    for node in query.find_all(exp.Func):
        if isinstance(node, VOLATILE) or _is_volatile_by_name(node):
            return node.sql(DIALECT).lower()
    return None


def _is_volatile_by_name(node: exp.Func) -> bool:
    if not isinstance(node, exp.Anonymous):
        return False
    since_now = node.name.lower() == "age" and len(node.expressions) == 1
    return since_now or node.name.lower() in VOLATILE_NAMES


def _similar(name: str) -> tuple[str, ...]:
    from difflib import get_close_matches

    return tuple(get_close_matches(name, allowed_functions(), n=3))
