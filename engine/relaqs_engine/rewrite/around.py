"""The plan of a query over the answers of other queries: its SQL, and what is known of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

from sqlglot import exp

from relaqs_engine.duck import quote_name
from relaqs_engine.plans.around import AroundPlan, AroundRows, AroundTexts, PartPlan
from relaqs_engine.plans.names import GROUP, GROUP_ROWS
from relaqs_engine.plans.outputs import OutputColumn, OutputKind
from relaqs_engine.plans.rows import RowsPlan
from relaqs_engine.plans.sign import Sign, sign_of
from relaqs_engine.rewrite.carve import Carved, answer_name
from relaqs_engine.rewrite.draft import Draft, NotOnlineError
from relaqs_engine.rewrite.levels import Level, Trust, Value, level_of
from relaqs_engine.rewrite.outputs import is_number
from relaqs_engine.sql.parse import DIALECT


def plan_around(draft: Draft, carved: Carved) -> AroundPlan:
    """Return the plan of the outer query over the answers of its parts. Raises NotOnlineError.

    For example, the share of each zone is computed from one part, which sums the fares of each zone:

    >>> from relaqs_engine.planning.example import explained
    >>> sql = "SELECT zone, sum(fare) / sum(sum(fare)) OVER () AS share FROM trips GROUP BY zone"
    >>> print(explained(sql, "part_0"))
    SELECT trips.zone AS key_0, SUM(trips.fare) AS value_0 FROM trips AS trips GROUP BY trips.zone
    >>> print(explained(sql, "final SQL"))
    WITH answer_0 AS (SELECT CAST(c0 AS INT) AS key_0, CAST(c1 AS DOUBLE) AS value_0 FROM part_0)
    SELECT CAST(x0 AS INT) AS o0, CAST(x1 AS DOUBLE) AS o1
    FROM (SELECT answer_0.key_0 AS zone, answer_0.value_0 / SUM(answer_0.value_0) OVER () AS share
          FROM answer_0) AS t(x0, x1)
    """
    parts = carved.parts
    _check_parts(draft, carved)
    level = level_of(carved.outer, parts)
    items = _items(carved.outer, len(level.values))
    outputs = tuple(
        _output(name, type_, value, item, parts)
        for (name, type_), value, item in zip(draft.schema, level.values, items, strict=True)
    )
    varied = _varied(level, parts)
    texts = _texts(carved, level, outputs, varied)
    _check_binds(draft, texts, parts)
    streams = dict.fromkeys(stream for part in parts for stream in part.streams)
    leading = max((part for part in parts if part.leading), key=lambda part: _row_count(draft, part))
    pairs = zip(outputs, level.values, strict=True)
    return AroundPlan(
        sql=draft.sql,
        outputs=outputs,
        reasons=("the rest of the query is computed from the aggregates so far",),
        streams=tuple(streams),
        hoists=tuple(dict.fromkeys(hoist for part in parts for hoist in part.hoists)),
        leading=leading.leading,
        parts=parts,
        varied=varied,
        texts=texts,
        rows=_rows(carved, level, outputs),
        sources=tuple(v.sources if o.kind is not OutputKind.KEY else () for o, v in pairs),
        whole=tuple(value.trust is Trust.WHOLE for value in level.values),
    )


def _row_count(draft: Draft, part: PartPlan) -> int:
    return draft.catalog.table(part.leading).row_count


def _varied(level: Level, parts: Sequence[PartPlan]) -> int:
    """Return the part that leaves out blocks: the one that all rows come from, or the first estimated one."""
    if level.part is not None:
        return level.part
    return next(i for i, part in enumerate(parts) if part.is_estimated)


def _check_parts(draft: Draft, carved: Carved) -> None:
    if not any(part.is_estimated for part in carved.parts):
        raise NotOnlineError("nothing of it is sampled")
    is_union = isinstance(carved.outer, exp.Union) and not carved.outer.args.get("distinct")
    for part in carved.parts:
        if isinstance(part, RowsPlan) and part.shows_every_group and not is_union:
            raise NotOnlineError("rows are combined that can only be combined when all of them are there")


def _items(outer: exp.Query, count: int) -> Sequence[exp.Expr]:
    """Return the expressions of the query's columns. A column of a set operation has none of its own."""
    items = outer.expressions if isinstance(outer, exp.Select) else []
    return items if len(items) == count else [exp.Star()] * count


def _output(name: str, type_: str, value: Value, item: exp.Expr, parts: Sequence[PartPlan]) -> OutputColumn:
    if value.trust is Trust.KEY:
        return OutputColumn(name, OutputKind.KEY, type_, "")
    taken = [parts[part].outputs[i] for part, i in value.sources]
    if taken and len({(output.kind, output.side) for output in taken}) == 1:
        return OutputColumn(
            *(name, taken[0].kind, type_, ""),
            side=taken[0].side,
            sign=reduce(Sign.__or__, (output.sign for output in taken)),
            certifiable=all(output.certifiable for output in taken),
        )
    known = value.trust in (Trust.OWN, Trust.WHOLE) and is_number(type_)
    kind = OutputKind.ESTIMATE if known else OutputKind.OPAQUE
    return OutputColumn(
        *(name, kind, type_, ""),
        sign=sign_of(item, lambda column: _sign_of_column(column, parts)),
        certifiable=value.trust is not Trust.WHOLE,
    )


def _sign_of_column(column: exp.Column, parts: Sequence[PartPlan]) -> Sign:
    """Return the signs of all estimated outputs with that name, in whichever part they are."""
    signs = [
        output.sign
        for part in parts
        for output in part.outputs
        if output.name.lower() == column.name.lower() and output.kind is not OutputKind.KEY
    ]
    return reduce(Sign.__or__, signs) if signs else Sign.EITHER


def _query(carved: Carved, level: Level) -> exp.Query:
    """Return the query of an estimate: with the identity of each row, where rows can be told apart."""
    return carved.outer if level.query is None else level.query


def _texts(carved: Carved, level: Level, outputs: Sequence[OutputColumn], varied: int) -> AroundTexts:
    parts, query = carved.parts, _query(carved, level)
    pairs = zip(outputs, level.values, strict=True)
    has_own = any(output.kind is OutputKind.ESTIMATE and not value.sources for output, value in pairs)
    return AroundTexts(
        final=_final(carved.outer, outputs, parts),
        estimate=_estimate(query, outputs, parts, with_identity=level.query is not None),
        replicate=_replicates(query, outputs, parts, varied) if has_own else "",
    )


def _rows(carved: Carved, level: Level, outputs: Sequence[OutputColumn]) -> AroundRows:
    limited = any(_query(carved, level).args.get(part) for part in ("limit", "offset"))
    pairs = zip(outputs, level.values, strict=True)
    return AroundRows(
        have_identity=level.query is not None,
        are_certain=level.is_certain and not limited,
        keep_groups=level.keeps_groups,
        so_far=any(output.kind is OutputKind.OPAQUE and not value.sources for output, value in pairs),
    )


def _answers(parts: Sequence[PartPlan], *, estimated: bool) -> str:
    """Return the WITH that gives the parts' answers names and types. Estimates are DOUBLE."""
    tables = (
        f"{answer_name(index)} AS ({_answer(part, f'part_{index}', estimated=estimated)})"
        for index, part in enumerate(parts)
    )
    return "WITH " + ", ".join(tables)


def _answer(part: PartPlan, table: str, *, estimated: bool) -> str:
    columns = [
        f"CAST(c{i} AS {_type(output, estimated)}) AS {quote_name(output.name)}"
        for i, output in enumerate(part.outputs)
    ]
    return f"SELECT {', '.join(columns + ([GROUP, GROUP_ROWS] if estimated else []))} FROM {table}"


def _type(output: OutputColumn, estimated: bool) -> str:
    numbers = (OutputKind.ESTIMATE, OutputKind.DISTINCT)
    return "DOUBLE" if estimated and output.kind in numbers else output.type


def _names(outputs: Sequence[OutputColumn], *hidden: str) -> str:
    return ", ".join([*(f"x{i}" for i in range(len(outputs))), *hidden])


def _final(outer: exp.Query, outputs: Sequence[OutputColumn], parts: Sequence[PartPlan]) -> str:
    values = ", ".join(f"CAST(x{i} AS {output.type}) AS o{i}" for i, output in enumerate(outputs))
    rows = f"({outer.sql(DIALECT)}) AS t({_names(outputs)})"
    return f"{_answers(parts, estimated=False)} SELECT {values} FROM {rows}"


def _estimate(
    query: exp.Query, outputs: Sequence[OutputColumn], parts: Sequence[PartPlan], *, with_identity: bool
) -> str:
    hidden = (GROUP, GROUP_ROWS) if with_identity else ()
    values = [f"TRY_CAST(x{i} AS {output.type}) AS o{i}" for i, output in enumerate(outputs)]
    values += [*_doubles(outputs), *hidden]
    source = f"({query.sql(DIALECT)}) AS t({_names(outputs, *hidden)})"
    return f"{_answers(parts, estimated=True)} SELECT {', '.join(values)} FROM {source}"


def _doubles(outputs: Sequence[OutputColumn]) -> Iterator[str]:
    for i, output in enumerate(outputs):
        if output.kind in (OutputKind.ESTIMATE, OutputKind.DISTINCT):
            yield f"TRY_CAST(x{i} AS DOUBLE) AS v{i}"


def _replicates(
    query: exp.Query, outputs: Sequence[OutputColumn], parts: Sequence[PartPlan], varied: int
) -> str:
    """Return the query over every variant of a part. Its columns: variant, position in the answer, values."""
    inner = query.copy()
    for part in ("order", "limit", "offset"):
        inner.set(part, None)
    part = f"part_{varied}"
    variant = f"{_answer(parts[varied], part, estimated=True)} WHERE {part}.variant = each.variant"
    rows = f"({inner.sql(DIALECT)}) AS t({_names(outputs, GROUP, GROUP_ROWS)})"
    values = ", ".join([*_doubles(outputs), GROUP])
    return (
        f"SELECT each.variant, shown.place, t.* EXCLUDE ({GROUP}) "
        f"FROM (SELECT DISTINCT variant FROM {part}) AS each, "
        f"LATERAL (WITH {answer_name(varied)} AS ({variant}) SELECT {values} FROM {rows}) AS t "
        f"JOIN shown ON shown.{GROUP} IS NOT DISTINCT FROM t.{GROUP}"
    )


def _check_binds(draft: Draft, texts: AroundTexts, parts: Sequence[PartPlan]) -> None:
    """Raise SqlError where a text does not bind: an estimate is DOUBLE, and some functions take no DOUBLE."""
    tables = []
    for index, part in enumerate(parts):
        columns = [f"NULL::{output.type} AS c{i}" for i, output in enumerate(part.outputs)]
        columns += [f"0::BIGINT AS {GROUP}", f"0::BIGINT AS {GROUP_ROWS}", "0 AS variant"]
        tables.append(f"part_{index} AS (SELECT {', '.join(columns)})")
    given = "WITH " + ", ".join(tables)
    for text in (texts.final, texts.estimate):
        draft.binder.describe(f"{given}, {text.removeprefix('WITH ')}")
