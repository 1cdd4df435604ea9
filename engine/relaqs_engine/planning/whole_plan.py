"""Plans of queries that run once, exactly: the query itself over the files of whole layouts."""

from __future__ import annotations

from sqlglot import exp

from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts.reads import Read, read_of_table
from relaqs_engine.plans.online_plan import OnlinePlan
from relaqs_engine.plans.outputs import OutputColumn, OutputKind
from relaqs_engine.plans.whole import WholePlan
from relaqs_engine.sql.measures import measures
from relaqs_engine.sql.names import names_in
from relaqs_engine.sql.parse import DIALECT, ParsedQuery, is_cte_reference, parse_query
from relaqs_engine.sql.whole_table import find_greatest_floats_in_rows, whole_table


def whole_plan(
    parsed: ParsedQuery, catalog: Catalog, schema: tuple[tuple[str, str], ...], reason: str
) -> WholePlan:
    """Return how to run a query as a whole.

    Args:
        parsed: the query.
        catalog: the tables that it reads.
        schema: (name, type) of the answer's columns.
        reason: why it is not estimated.
    """
    names = names_in(parsed.tree)
    told = measures(parsed.tree, [name for name, _ in schema])
    return WholePlan(
        sql=parsed.sql,
        outputs=tuple(
            OutputColumn(name, OutputKind.KEY, type_, "", measures=is_measure)
            for (name, type_), is_measure in zip(schema, told, strict=True)
        ),
        reasons=(reason,),
        exact_sql=_over_whole_tables(parsed, catalog, names),
        exact_reads=_whole_reads(parsed, catalog, names),
    )


def plan_whole(plan: OnlinePlan, sql: str, catalog: Catalog, reason: str) -> WholePlan:
    """Return how to run as a whole what had another plan, with the same columns.

    Args:
        plan: the plan that it had.
        sql: the query with its views written out.
        catalog: the tables that it reads.
        reason: why it is not estimated any more.
    """
    parsed = parse_query(sql, catalog.tables)
    names = names_in(parsed.tree)
    return WholePlan(
        sql=plan.sql,
        outputs=plan.outputs,
        reasons=(reason,),
        warnings=plan.warnings,
        is_ordered=plan.is_ordered,
        civil_time=plan.civil_time,
        exact_sql=_over_whole_tables(parsed, catalog, names),
        exact_reads=_whole_reads(parsed, catalog, names),
    )


def _whole_reads(parsed: ParsedQuery, catalog: Catalog, names: frozenset[str] | None) -> tuple[Read, ...]:
    return tuple(read_of_table(catalog.table(table), names) for table in sorted(parsed.tables))


def _over_whole_tables(parsed: ParsedQuery, catalog: Catalog, names: frozenset[str] | None) -> str:
    tree = parsed.tree.copy()
    for table in list(tree.find_all(exp.Table)):
        if isinstance(table.this, exp.Identifier) and not is_cte_reference(table):
            _read_whole(table, catalog, names)
    find_greatest_floats_in_rows(tree, map(catalog.table, parsed.tables))
    return tree.sql(DIALECT)


def _read_whole(table: exp.Table, catalog: Catalog, names: frozenset[str] | None) -> None:
    derived = whole_table(catalog.table(table.name), names)
    for part in ("joins", "pivots", "sample", "laterals"):
        if value := table.args.get(part):
            derived.set(part, value)
    derived.set("alias", table.args.get("alias") or exp.TableAlias(this=table.this.copy()))
    table.replace(derived)
