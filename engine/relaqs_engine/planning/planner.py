"""SQL and a catalog in, a plan out. The way in to the rewriter, which is loaded for what it plans only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sqlglot import exp

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import is_kept_by_arrow
from relaqs_engine.errors import BrokenDatabaseError, RelaqsError, SqlError, UnsupportedError
from relaqs_engine.planning.exact import RowGroupRules, part_to_sample, whole_plan, why_as_it_lies
from relaqs_engine.sql.aggregates import taken_in_order
from relaqs_engine.sql.binder import Binder, check_reading
from relaqs_engine.sql.columns import names_in, row_without_names, whole_row
from relaqs_engine.sql.dialect import find_first
from relaqs_engine.sql.parse import ParsedQuery, check_expansion, expand_views, parse_query
from relaqs_engine.sql.read import Effort
from relaqs_engine.sql.statements import columns_written_out

if TYPE_CHECKING:
    from relaqs_engine.layouts.manifest import FirstPart
    from relaqs_engine.plans.costly import CostlyPlan
    from relaqs_engine.plans.plan import OnlinePlan, WholePlan


def plan_query(
    sql: str,
    catalog: Catalog,
    binder: Binder,
    *,
    intervals: bool = True,
    state_bytes: int | None = None,
    effort: Effort | None = None,
    row_groups: RowGroupRules | None = None,
    unforeseen: Callable[[Exception], str] | None = None,
    views: Mapping[str, str] | None = None,
) -> OnlinePlan:
    """Return how to answer one SELECT. Raises SqlError when the SQL is wrong; anything else has a plan.

    intervals: False leaves out everything that only error bars need. state_bytes: the memory that merged
    states may take; None: enough. effort: what planning may cost, and who may end it. row_groups: which plain
    tables are sampled by row groups; None: none. unforeseen: told of an error that kept estimates from being
    planned and is not about the SQL. It returns why the query runs as a whole then; None: it is raised.
    views: name → SELECT, which the query may read as tables.
    """
    try:
        with binder.spending(effort or Effort()) as own:
            read = partial(parse_query, sql, catalog.tables, own.effort, catalog.left_out, views)
            parsed = read()
            schema = _bound(parsed, catalog, own)
            with parsed.placing():
                return _planned(
                    parsed, schema, read, catalog, own, intervals, state_bytes, row_groups, unforeseen
                )
    except RecursionError:
        raise SqlError("the SQL is nested too deeply to be planned; name its inner parts in a WITH") from None


def _bound(parsed: ParsedQuery, catalog: Catalog, binder: Binder) -> tuple[tuple[str, str], ...]:
    """Return (name, type) of the answer's columns, after DuckDB found nothing wrong with the query."""
    check_expansion(parsed.tree, _columns(catalog))
    with parsed.placing():
        schema = tuple(binder.describe(parsed.sql))  # DuckDB has better words than we for what is wrong
    check_reading(parsed.asked, parsed.written)
    _check_kept_by_arrow(schema)
    if name := row_without_names(parsed.tree):
        raise UnsupportedError(
            f"{name} depends on the name of an output that has none, and is called like its SQL; "
            "give the output a name by AS"
        )
    return schema


def _planned(
    parsed: ParsedQuery,
    schema: tuple[tuple[str, str], ...],
    read: Callable[[], ParsedQuery],
    catalog: Catalog,
    binder: Binder,
    intervals: bool,
    state_bytes: int | None,
    row_groups: RowGroupRules | None,
    unforeseen: Callable[[Exception], str] | None,
) -> OnlinePlan:
    """Return the plan of a query. read: reads it anew."""
    parsed = _without_columns_function(parsed, catalog, binder)
    is_ordered = parsed.tree.args.get("order") is not None
    if taken := taken_in_order(parsed.tree):
        why = f"{taken} takes rows in the order that a subquery gives them"
        return replace(whole_plan(parsed, catalog, schema, why), is_ordered=is_ordered)
    whole = _at_once(parsed, catalog, schema)
    part = _part_to_sample(parsed, catalog) if whole is not None and intervals else None
    rules = row_groups if intervals and row_groups and row_groups.large(catalog, parsed.tables) else None
    if whole is not None and part is None and rules is None:
        return replace(whole, is_ordered=is_ordered)
    try:
        plan = _estimated(parsed, catalog, binder, schema, intervals, state_bytes, whole, part, rules)
    except Exception as error:
        if unforeseen is None or not _is_unforeseen(error):
            raise
        why = unforeseen(error)
        anew = _without_columns_function(read(), catalog, binder)  # a rule may have changed the tree
        plan = whole_plan(anew, catalog, schema, why)
    return replace(plan, is_ordered=is_ordered)


def _estimated(
    parsed: ParsedQuery,
    catalog: Catalog,
    binder: Binder,
    schema: tuple[tuple[str, str], ...],
    intervals: bool,
    state_bytes: int | None,
    whole: WholePlan | None,
    part: FirstPart | None,
    rules: RowGroupRules | None,
) -> OnlinePlan:
    """Return the plan with estimates, where there is one. whole: how it runs otherwise, if that is known."""
    from relaqs_engine.planning.sampled import plain_plan, sampled_plan  # all of the rewriter
    from relaqs_engine.rewrite.draft import Draft

    names = names_in(parsed.tree)
    draft = Draft(parsed.sql, catalog, binder, parsed.tree, schema, intervals, state_bytes, names)
    return sampled_plan(draft, parsed) if whole is None else plain_plan(draft, parsed, whole, part, rules)


def _is_unforeseen(error: Exception) -> bool:
    return isinstance(error, BrokenDatabaseError) or not isinstance(
        error, RelaqsError | RecursionError | MemoryError
    )


def _check_kept_by_arrow(schema: tuple[tuple[str, str], ...]) -> None:
    """Refuse an answer whose values Arrow would change."""
    for name, type_text in schema:
        if not is_kept_by_arrow(type_text):
            raise UnsupportedError(
                f"column {name} is a {type_text}, which Arrow does not keep; "
                f"ask for it as text: CAST({name} AS VARCHAR)"
            )


def _without_columns_function(parsed: ParsedQuery, catalog: Catalog, binder: Binder) -> ParsedQuery:
    if find_first(parsed.tree, exp.Columns) is None:
        return parsed
    tree = columns_written_out(parsed.tree, binder.describe)
    if tree is not parsed.tree:
        check_expansion(tree, _columns(catalog))
    return replace(parsed, tree=tree)


def _at_once(parsed: ParsedQuery, catalog: Catalog, schema: tuple[tuple[str, str], ...]) -> WholePlan | None:
    """Return the plan of a query that is not to be estimated, which is seen before its SQL is rewritten."""
    if not parsed.tables:
        return whole_plan(parsed, catalog, schema, "it reads no table")
    if row := _row_as_value(parsed, catalog):  # a layout's rows have one more column than the user's
        return whole_plan(parsed, catalog, schema, f"it takes whole rows of {row} as values")
    if why := why_as_it_lies(parsed.tables, catalog):
        return whole_plan(parsed, catalog, schema, why)
    return None


def _part_to_sample(parsed: ParsedQuery, catalog: Catalog) -> FirstPart | None:
    part = part_to_sample(parsed.tables, catalog)
    return None if part is None or _row_as_value(parsed, catalog) else part


def _row_as_value(parsed: ParsedQuery, catalog: Catalog) -> str | None:
    columns = {column.name.lower() for name in parsed.tables for column in catalog.table(name).columns}
    return whole_row(parsed.tree, columns)


def _columns(catalog: Catalog) -> dict[str, list[str]]:
    return {name: [column.name for column in layout.columns] for name, layout in catalog.tables.items()}


def plan_costly(
    sql: str,
    functions: Mapping[str, str],
    catalog: Catalog,
    binder: Binder,
    views: Mapping[str, str] | None = None,
) -> CostlyPlan:
    """Return how to answer a SELECT that calls costly functions.

    Args:
        functions: DuckDB's type of the answers of each function.
        views: name → SELECT, which it may read as tables.

    Raises:
        SqlError: the SQL is wrong.
        UnsupportedError: it cannot be estimated from some of the calls.
    """
    from relaqs_engine.planning.exact import plan_whole
    from relaqs_engine.plans.costly import CostlyPlan
    from relaqs_engine.plans.plan import OutputColumn, OutputKind
    from relaqs_engine.rewrite.costly_calls import split
    from relaqs_engine.sql.expressions import Sign

    query = split(expand_views(sql, views or {}, binder.effort), functions, catalog, binder)
    rows = plan_query(query.frame_sql, catalog, binder, intervals=False, effort=binder.effort)
    outputs = tuple(
        OutputColumn(
            output.name,
            OutputKind.KEY if output.is_key else OutputKind.ESTIMATE,
            output.type,
            output.sql,
            sign=Sign.EITHER if output.total is None else Sign.POSITIVE,
        )
        for output in query.outputs
    )
    called = ", ".join(dict.fromkeys(call.function for call in query.calls))
    asks = "a sample of its rows is asked" if query.rows is None else "its rows are asked until all are found"
    return CostlyPlan(
        sql=sql,
        outputs=outputs,
        reasons=(f"it calls {called}, so {asks}",),
        query=query,
        frame=plan_whole(rows, query.frame_sql, catalog, "its rows are those that may count"),
        is_ordered=bool(query.order),
        civil_time=binder.civil_time,
    )
