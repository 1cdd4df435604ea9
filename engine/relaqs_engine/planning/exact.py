"""Exact plans, and the cheap rules that say whether a plan with estimates is worth trying.

A query that runs exactly loads nothing else of planning: what estimates is looked for once a rule here
says so.

- `whole_plan`: the query itself over the files of whole layouts.
- `empty_plan`: a query with conditions that no row meets, as the zones of a layout tell.
- `why_as_it_lies`, `layout_reasons`: why a plan reads what it reads, in words.
- `RowGroupRules`: which plain tables are sampled by row groups.
- `part_to_sample`: which queries are estimated from the first part of a layout that is being made.
- `is_summary`: whether a statement is SUMMARIZE alone.
- `whole_core_seconds`: what a query costs that runs exactly, to tell whether estimates are worth their
  cost.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot import exp

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import quote_name
from relaqs_engine.layouts.manifest import (
    LAYOUT_MARK,
    FirstPart,
    PlainRead,
    Read,
    Table,
    TableRead,
    scan_core_seconds,
)
from relaqs_engine.layouts.plain import ESTIMATED_ABOVE_SECONDS, NOTABLE_SECONDS, PlainTable
from relaqs_engine.plans.plan import NO_ROW, OnlinePlan, OutputColumn, OutputKind, WholePlan
from relaqs_engine.sql.columns import find_greatest_floats_in_rows, measures, names_in, whole_table
from relaqs_engine.sql.dialect import copied, find_all
from relaqs_engine.sql.parse import DIALECT, ParsedQuery, is_cte_reference, parse_query
from relaqs_engine.sql.read import tree_of

if TYPE_CHECKING:
    from relaqs_engine.rewrite.draft import Draft


def layout_reasons(draft: Draft) -> Iterator[str]:
    """Yield what is special about the layouts that a draft samples, and what it reads whole before."""
    from relaqs_engine.rewrite.sampling import names_read_whole, share_read_whole
    from relaqs_engine.rewrite.scans import streams_of

    for stream in streams_of(draft):
        if LAYOUT_MARK in stream.table:
            key = ", ".join(draft.catalog.table(stream.table).cluster_key)
            yield f"the layout {stream.table} holds the rows of one {key} in one partition"
    if names := names_read_whole(draft):
        yield (
            f"it reads {names} whole before the first mini-batch, which is about "
            f"{share_read_whole(draft):.0%} of the work"
        )
    if draft.outlier_columns:
        named = ", ".join(draft.outlier_columns)
        yield f"rows with values far out in {named} are read first, and counted exactly"
    if draft.bars.leaves_units_out:
        yield "the values of the cluster key with most rows are read first, and counted exactly"


def why_as_it_lies(tables: Iterable[str], catalog: Catalog) -> str:
    """Return why a query is answered at the end only, "" unless it reads plain files and nothing sampled."""
    read = {name: catalog.table(name) for name in sorted(tables)}
    plain = {name: table for name, table in read.items() if isinstance(table, PlainTable)}
    if not plain or any(map(catalog.is_sampled, read)):
        return ""
    *others, last = plain
    why = f"{', '.join(others)} and {last} are" if others else f"{last} is"
    why += " read whole, in place"
    large = [name for name, table in plain.items() if table.scan_core_seconds > NOTABLE_SECONDS]
    if large:
        why += f": lay {', '.join(large)} out (`relaqs shuffle`) for estimates before the end"
    return why


@dataclass(frozen=True, slots=True)
class RowGroupRules:
    """Which plain tables are sampled by row groups.

    Attributes:
        cores: that read a table whole.
        least_seconds: what reading it whole must take, as predicted.
        fewest: how many row groups there must be to draw from.
        share: the share of them that is drawn at most.
    """

    cores: int = 1
    least_seconds: float = ESTIMATED_ABOVE_SECONDS
    fewest: int = 64
    share: float = 0.05

    def large(self, catalog: Catalog, tables: Iterable[str]) -> list[PlainTable]:
        """Return those of the tables that take long to be read whole."""
        plain = [table for name in tables if isinstance(table := catalog.table(name), PlainTable)]
        return [each for each in plain if each.scan_core_seconds / self.cores > self.least_seconds]


MOST_PREPARED = 0.1
"""Of the sampled table's rows, in all other tables together: those are read before the first estimate."""


def part_to_sample(tables: Iterable[str], catalog: Catalog) -> FirstPart | None:
    """Return the first part of the largest of the tables, None if it has none or the others are not small."""
    ordered = sorted(map(catalog.table, tables), key=lambda table: table.row_count, reverse=True)
    largest = next(iter(ordered), None)
    if largest is None or largest.first_part is None:
        return None
    prepared = sum(table.row_count for table in ordered[1:])
    return largest.first_part if prepared <= MOST_PREPARED * largest.row_count else None


def is_summary(tree: exp.Query) -> bool:
    """Whether a query is SUMMARIZE and nothing around it."""
    return isinstance(tree, exp.Select) and summarized(tree) is not None


def summarized(tree: exp.Query) -> exp.Query | None:
    """Return the query that is summarized, None where the tree is more than SELECT * FROM (SUMMARIZE …)."""
    more = {key for key, value in tree.args.items() if value} - {"expressions", "from_"}
    from_ = tree.args.get("from_")
    if more or from_ is None or tree.expressions != [exp.Star()]:
        return None
    found = from_.this
    if not isinstance(found, exp.Subquery) or not isinstance(found.this, exp.Summarize):
        return None
    if any(value for key, value in found.args.items() if key != "this"):
        return None
    query = found.this.this
    return query if isinstance(query, exp.Query) else None


def whole_plan(
    parsed: ParsedQuery, catalog: Catalog, schema: tuple[tuple[str, str], ...], reason: str
) -> WholePlan:
    """Return how to run a query as a whole.

    Args:
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
        whole_reads=_whole_reads(parsed, catalog, names),
    )


def plan_whole(
    plan: OnlinePlan, sql: str, catalog: Catalog, reason: str, views: Mapping[str, str] | None = None
) -> WholePlan:
    """Return how to run as a whole what had another plan, with the same columns.

    Args:
        reason: why it is not estimated any more.
    """
    parsed = parse_query(sql, catalog.tables, views=views)
    names = names_in(parsed.tree)
    return WholePlan(
        sql=plan.sql,
        outputs=plan.outputs,
        reasons=(reason,),
        warnings=plan.warnings,
        is_ordered=plan.is_ordered,
        civil_time=plan.civil_time,
        exact_sql=_over_whole_tables(parsed, catalog, names),
        whole_reads=_whole_reads(parsed, catalog, names),
    )


def _whole_reads(parsed: ParsedQuery, catalog: Catalog, names: frozenset[str] | None) -> tuple[Read, ...]:
    return tuple(catalog.table(table).whole_read(names) for table in sorted(parsed.tables))


def _over_whole_tables(parsed: ParsedQuery, catalog: Catalog, names: frozenset[str] | None) -> str:
    tree = parsed.tree.copy()
    for table in _tables_in(tree):
        _put_in_place(table, whole_table(catalog.table(table.name), names))
    find_greatest_floats_in_rows(tree, map(catalog.table, parsed.tables))
    return tree.sql(DIALECT)


def _tables_in(tree: exp.Expr) -> list[exp.Table]:
    """Return the tables of the catalog in a tree."""
    found = [each for each in find_all(tree, exp.Table) if isinstance(each.this, exp.Identifier)]
    return [each for each in found if not is_cte_reference(each)]


def _put_in_place(table: exp.Table, derived: exp.Subquery) -> None:
    for part in ("joins", "pivots", "sample", "laterals"):
        if value := table.args.get(part):
            derived.set(part, value)
    derived.set("alias", table.args.get("alias") or exp.TableAlias(this=table.this.copy()))
    table.replace(derived)


def empty_plan(
    parsed: ParsedQuery, catalog: Catalog, schema: tuple[tuple[str, str], ...]
) -> WholePlan | None:
    """Return how to run a query that reads no sampled table, since no row meets its conditions, or None.

    In a SELECT with such conditions, empty tables take the place of those in FROM. Zones tell of comparisons
    of one table's columns with constants, with AND, OR and NOT around them. Of NULL a comparison is neither
    true nor false, so no row that an outer join adds meets what no row of the table does.
    """
    zoned = {name.lower() for name in parsed.tables if getattr(catalog.table(name), "zones", ())}
    if not zoned:
        return None
    tree = copied(parsed.tree)
    selects = [each for each in find_all(tree, exp.Select) if _no_row_passes(each, catalog, zoned)]
    for select in selects:
        for part in (select.args["from_"], *(select.args.get("joins") or []), select.args["where"]):
            for table in _tables_in(part):
                _put_in_place(table, _empty(catalog.table(table.name)))
    left = {each.name.lower() for each in _tables_in(tree)}
    tables = frozenset(name for name in parsed.tables if name.lower() in left)
    if not selects or any(catalog.table(name).kind != "static" for name in tables):
        return None
    return whole_plan(replace(parsed, tree=tree, tables=tables), catalog, schema, NO_ROW)


def _empty(table: Table) -> exp.Subquery:
    nulls = ", ".join(f"CAST(NULL AS {each.type}) AS {quote_name(each.name)}" for each in table.columns)
    return exp.Subquery(this=exp.Var(this=f"SELECT {nulls} WHERE FALSE"))


def _no_row_passes(select: exp.Select, catalog: Catalog, zoned: Container[str]) -> bool:
    from relaqs_engine.rewrite.row_group_marks import is_ruled_out

    where, from_, joins = (select.args.get(part) for part in ("where", "from_", "joins"))
    if where is None or from_ is None or any(each.args.get("using") or each.method for each in joins or ()):
        return False
    seen = (each.this for each in joins or () if each.kind not in ("SEMI", "ANTI"))  # by WHERE
    for source in (from_.this, *seen):
        more = {key for key, value in source.args.items() if value} - {"this", "alias"}
        if more or source.name.lower() not in zoned or source.alias_column_names or is_cte_reference(source):
            continue
        if is_ruled_out(catalog.layout(source.name), where.this, ("", source.alias_or_name)):
            return True
    return False


def whole_core_seconds(plan: OnlinePlan, catalog: Catalog) -> float:
    """Return about how long one core takes to read all rows of the columns that a query reads.

    To that comes what it takes to call functions of texts for each row of the largest table. The query and
    the sizes of the tables alone decide, so the same query over the same data gives the same number.
    """
    sizes = dict(_scans(plan, catalog)).values()
    most_rows = max((rows for _, rows in sizes), default=0)
    calls = costly_calls(plan.sql) * most_rows * CALL_SECONDS
    return sum(scan_core_seconds(*size) for size in sizes) + calls


def reads_a_sample_once(plan: OnlinePlan) -> bool:
    """Whether a query names what it samples once. What meets a large table again costs more than reading."""
    sampled = {stream.table.lower() for stream in plan.streams}
    return sum(each.name.lower() in sampled for each in _tables_in(tree_of(plan.sql))) == 1


CALL_SECONDS = 7e-8
"""Measured: what a function of texts takes for a row. Patterns, JSON, parts of a text: 5e-8 to 14e-8."""
_COSTLY = (
    *(exp.RegexpExtract, exp.RegexpExtractAll, exp.RegexpILike, exp.RegexpLike, exp.RegexpReplace),
    *(exp.RegexpSplit, exp.JSONExtract, exp.JSONExtractScalar, exp.Split, exp.SplitPart, exp.Replace),
    *(exp.Levenshtein, exp.MD5, exp.SHA2, exp.TimeToStr, exp.StrToTime),
)
_COSTLY_NAMES = re.compile(r"(regexp_|json|str(?!uct)|split|levenshtein|damerau|jaro|jaccard|md5|sha)", re.I)
_MAY_BE_COSTLY = re.compile(
    r"->|~|\b(similar|glob|replace)\b"
    r"|\b(?!(and|as|avg|by|cast|count|date|day|exists|filter|from|in|join|max|min|month|not|on|or|over|round|"
    r"select|stddev|sum|then|using|when|where|year)\b)\w+\s*\(",
    re.I,
)


@lru_cache(maxsize=256)
def costly_calls(sql: str) -> int:
    """Return how many functions a query calls that take longer for a value than reading it does."""
    if not _MAY_BE_COSTLY.search(sql):  # to parse it takes a millisecond
        return 0
    calls = find_all(tree_of(sql), *_COSTLY, exp.Anonymous)
    return sum(not isinstance(each, exp.Anonymous) or bool(_COSTLY_NAMES.match(each.name)) for each in calls)


def samples_the_cache_alone(plan: OnlinePlan, catalog: Catalog) -> bool:
    """Whether all layouts that a plan samples are such as the cache made of the user's files."""
    sampled = [catalog.table(stream.table) for stream in plan.streams]
    return bool(sampled) and all(table.is_cached for table in sampled)


def _scans(plan: OnlinePlan, catalog: Catalog) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield each table that a plan reads, with its bytes and rows."""
    for stream in plan.streams:
        yield stream.table, _size(catalog.table(stream.table), stream.columns)
    by_directory = {str(layout.directory): layout for layout in catalog.layouts}
    for read in (*plan.whole_reads, *(read for hoist in plan.hoists for read in hoist.reads)):
        if isinstance(read, PlainRead):
            yield read.table, (sum(size for _, size, _ in read.files), catalog.table(read.table).row_count)
        elif isinstance(read, TableRead) and (layout := by_directory.get(read.directory)):
            yield layout.table, _size(layout, read.columns)


def _size(layout: Table, columns: tuple[str, ...]) -> tuple[int, int]:
    return layout.bytes_of(columns), layout.row_count
