"""SQL and a catalog in, a plan out. The way in to the rewriter, which is loaded for what it plans only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import is_kept_by_arrow
from relaqs_engine.errors import BrokenDatabaseError, RelaqsError, SqlError, UnsupportedError
from relaqs_engine.planning.exact import RowGroupRules, empty_plan, part_to_sample, whole_plan, why_as_it_lies
from relaqs_engine.sql.aggregate_laws import taken_in_order
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

Schema: TypeAlias = tuple[tuple[str, str], ...]


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
            planning = _Planning(read, catalog, own, intervals, state_bytes, row_groups, unforeseen)
            return planning.planned()
    except RecursionError:
        raise SqlError("the SQL is nested too deeply to be planned; name its inner parts in a WITH") from None


@dataclass(frozen=True, slots=True)
class _Planning:
    """How one query is planned. read: parses it anew. The others are as `plan_query` is given them."""

    read: Callable[[], ParsedQuery]
    catalog: Catalog
    binder: Binder
    intervals: bool
    state_bytes: int | None
    row_groups: RowGroupRules | None
    unforeseen: Callable[[Exception], str] | None

    def planned(self) -> OnlinePlan:
        parsed = self.read()
        schema = self._bound(parsed)
        with parsed.placing():
            parsed = self._without_columns_function(parsed)
            is_ordered = parsed.tree.args.get("order") is not None  # rules may change the tree
            plan = self._exact(parsed, schema) or self._estimated(parsed, schema)
            return replace(plan, is_ordered=is_ordered)

    def _bound(self, parsed: ParsedQuery) -> Schema:
        """Return (name, type) of the answer's columns, after DuckDB found nothing wrong with the query."""
        check_expansion(parsed.tree, self._columns())
        with parsed.placing():
            schema = tuple(self.binder.describe(parsed.sql))  # DuckDB has better words for what is wrong
        check_reading(parsed.asked, parsed.written)
        _check_kept_by_arrow(schema)
        if name := row_without_names(parsed.tree):
            raise UnsupportedError(
                f"{name} depends on the name of an output that has none, and is called like its SQL; "
                "give the output a name by AS"
            )
        return schema

    def _without_columns_function(self, parsed: ParsedQuery) -> ParsedQuery:
        if find_first(parsed.tree, exp.Columns) is None:
            return parsed
        tree = columns_written_out(parsed.tree, self.binder.describe)
        if tree is not parsed.tree:
            check_expansion(tree, self._columns())
        return replace(parsed, tree=tree)

    def _columns(self) -> dict[str, list[str]]:
        return {name: [each.name for each in table.columns] for name, table in self.catalog.tables.items()}

    def _exact(self, parsed: ParsedQuery, schema: Schema) -> WholePlan | None:
        """Return the plan of a query that is exact, whatever could be sampled; None of all others."""
        if taken := taken_in_order(parsed.tree):
            why = f"{taken} takes rows in the order that a subquery gives them"
            return whole_plan(parsed, self.catalog, schema, why)
        try:
            return empty_plan(parsed, self.catalog, schema)
        except Exception as error:
            self._why_whole(error)
            return None

    def _estimated(self, parsed: ParsedQuery, schema: Schema) -> OnlinePlan:
        """Return the plan with estimates, where there is one."""
        whole = self._at_once(parsed, schema)
        part = self._part_to_sample(parsed) if whole is not None and self.intervals else None
        rules = self.row_groups if self.intervals else None
        if rules is not None and not rules.large(self.catalog, parsed.tables):
            rules = None
        if whole is not None and part is None and rules is None:
            return whole
        from relaqs_engine.planning.sampled_plan import plain_plan, sampled_plan  # all of the rewriter
        from relaqs_engine.rewrite.draft import Draft

        try:
            tree, names = parsed.tree, names_in(parsed.tree)
            draft = Draft(
                parsed.sql, self.catalog, self.binder, tree, schema, self.intervals, self.state_bytes, names
            )
            if whole is None:
                return sampled_plan(draft, parsed)
            return plain_plan(draft, parsed, whole, part, rules)
        except Exception as error:
            why = self._why_whole(error)
            anew = self._without_columns_function(self.read())  # a rule may have changed the tree
            return whole_plan(anew, self.catalog, schema, why)

    def _why_whole(self, error: Exception) -> str:
        """Return why a query runs as a whole after an error. Raises it where it is about the SQL."""
        ours = isinstance(error, BrokenDatabaseError) or not isinstance(
            error, RelaqsError | RecursionError | MemoryError
        )
        if self.unforeseen is None or not ours:
            raise error
        return self.unforeseen(error)

    def _at_once(self, parsed: ParsedQuery, schema: Schema) -> WholePlan | None:
        """Return the plan of a query that is not estimated, as is seen before its SQL is rewritten."""
        if not parsed.tables:
            why = "it reads no table"
        elif row := self._row_as_value(parsed):  # a layout's rows have one more column than the user's
            why = f"it takes whole rows of {row} as values"
        else:
            why = why_as_it_lies(parsed.tables, self.catalog)
        return whole_plan(parsed, self.catalog, schema, why) if why else None

    def _part_to_sample(self, parsed: ParsedQuery) -> FirstPart | None:
        part = part_to_sample(parsed.tables, self.catalog)
        return None if part is None or self._row_as_value(parsed) else part

    def _row_as_value(self, parsed: ParsedQuery) -> str | None:
        tables = map(self.catalog.table, parsed.tables)
        return whole_row(parsed.tree, {each.name.lower() for table in tables for each in table.columns})


def _check_kept_by_arrow(schema: Schema) -> None:
    """Refuse an answer whose values Arrow would change."""
    for name, type_text in schema:
        if not is_kept_by_arrow(type_text):
            raise UnsupportedError(
                f"column {name} is a {type_text}, which Arrow does not keep; "
                f"ask for it as text: CAST({name} AS VARCHAR)"
            )


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
