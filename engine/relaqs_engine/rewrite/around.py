"""The plan of a query over the answers of other queries: its SQL, and what is known of its columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import isfinite

from sqlglot import exp

from relaqs_engine.duck import quote_name
from relaqs_engine.layouts.manifest import is_number
from relaqs_engine.plans.aggregate import (
    BEFORE,
    BEFORE_ONCE,
    GROUP,
    GROUP_ROWS,
    IS_FIRST,
    RIVALS,
    RowsPlan,
    margin_column,
    moves_column,
)
from relaqs_engine.plans.composite import AroundPlan, AroundRows, AroundTexts, Draw, PartPlan, Ranking
from relaqs_engine.plans.plan import Method, OutputColumn, OutputKind
from relaqs_engine.rewrite.draft import Draft, NotOnlineError
from relaqs_engine.rewrite.having_and_limit import most_rows
from relaqs_engine.rewrite.levels import Answers, Level, level_of, moves_of, with_moves, with_places
from relaqs_engine.rewrite.smoothness import Trust, Value
from relaqs_engine.rewrite.split import Carved, answer_index, answer_name
from relaqs_engine.sql.dialect import copied, find_all, find_first
from relaqs_engine.sql.expressions import KeptSigns, Motion, Sign
from relaqs_engine.sql.parse import DIALECT


def plan_around(draft: Draft, carved: Carved) -> AroundPlan:
    """Return the plan of the outer query over the answers of its parts. Raises NotOnlineError.

    For example, the share of each zone is computed from one part, which sums the fares of each zone:

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
    level = level_of(carved.outer, parts, may_decide=True)
    if len(level.values) != len(draft.schema):
        raise NotOnlineError("one of its outputs stands for several columns")
    items = _items(carved.outer, len(level.values))
    outputs = tuple(
        _output(name, type_, value, item, parts)
        for (name, type_), value, item in zip(draft.schema, level.values, items, strict=True)
    )
    estimated = (*outputs, *map(_margin, range(len(level.margins))))
    draws = _draws(draft, carved, level, estimated)
    moves = _moves(level.query, estimated, Answers(parts, draft.catalog)) if draws else ""
    texts = replace(_texts(draft, carved, level, estimated), moves=moves)
    _check_binds(draft, texts, draws, parts)
    streams = dict.fromkeys(stream for part in parts for stream in part.streams)
    leading = max((part for part in parts if part.leading), key=lambda part: _row_count(draft, part))
    pairs = zip(outputs, level.values, strict=True)
    return AroundPlan(
        sql=draft.sql,
        outputs=outputs,
        reasons=("the rest of the query is computed from the aggregates so far",),
        streams=tuple(streams),
        hoists=tuple(dict.fromkeys(hoist for part in parts for hoist in part.hoists)),
        measured_by=leading.measured_by,
        parts=parts,
        draws=draws,
        texts=texts,
        rows=_rows(draft, carved, level, outputs),
        sources=tuple(v.sources if o.kind is not OutputKind.KEY else () for o, v in pairs),
        added=level.added,
    )


def _only_grows(value: Value, parts: Sequence[PartPlan]) -> bool:
    """Whether a value is a sum over sampled rows, none of which takes anything away, and over no others."""
    is_sum = value.trust is Trust.OWN and value.is_total and not value.step
    of_sample = all(part.is_estimated and not part.reads_outliers for part in parts)
    return is_sum and of_sample and not value.sign & Sign.NEGATIVE


def _margin(index: int) -> OutputColumn:
    return OutputColumn(margin_column(index), OutputKind.ESTIMATE, "DOUBLE", "")


def _row_count(draft: Draft, part: PartPlan) -> int:
    return draft.catalog.table(part.leading).row_count


def _draws(draft: Draft, carved: Carved, level: Level, outputs: Sequence[OutputColumn]) -> tuple[Draw, ...]:
    """Return the independent samples that the answer's own error bars are made of.

    Layouts with the same seed and number of partitions are read in one order and hashed alike. So what is
    read of one says something about what is read of the other.
    """
    own = [not value.sources for value in level.values] + [True] * len(level.margins)
    if not any(output.kind is OutputKind.ESTIMATE and own[i] for i, output in enumerate(outputs)):
        return ()
    together: dict[tuple[int, int], list[int]] = {}
    for index, part in enumerate(carved.parts):
        if part.method is Method.REPLICATES:
            layout = draft.catalog.layout(part.leading)
            together.setdefault((layout.seed, len(layout.partitions)), []).append(index)
    query = _query(carved, level)
    return tuple(
        Draw(tuple(drawn), _replicates(query, outputs, carved.parts, drawn)) for drawn in together.values()
    )


def _check_parts(draft: Draft, carved: Carved) -> None:
    if not any(part.is_estimated for part in carved.parts):
        raise NotOnlineError("nothing of it is sampled")
    is_union = isinstance(carved.outer, exp.Union) and not carved.outer.args.get("distinct")
    rows = {
        answer_name(index)
        for index, part in enumerate(carved.parts)
        if isinstance(part, RowsPlan) and part.shows_every_group
    }
    if rows and not is_union and not _picks_among(carved, rows):
        raise NotOnlineError("rows are combined that can only be combined when all of them are there")


def _picks_among(carved: Carved, rows: Container[str]) -> bool:
    """Whether each row of the query is one row of one answer, beside others that have one row each."""
    query = carved.outer
    if not isinstance(query, exp.Select) or query.args.get("from_") is None:
        return False
    beside = [table for join in query.args.get("joins") or [] for table in find_all(join, exp.Table)]
    relates = find_first(query, exp.AggFunc, exp.Window, exp.Distinct, exp.UDTF, exp.Explode)
    read = [table for table in find_all(query, exp.Table) if table.name in rows]
    alone = all(carved.parts[answer_index(table.name)].has_one_row for table in beside)
    return not relates and alone and [query.args["from_"].this] == read


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
            name,
            taken[0].kind,
            type_,
            "",
            side=taken[0].side,
            rounding=_rounded_beyond(value, taken),
            sign=reduce(Sign.__or__, (output.sign for output in taken)),
            never_certified="; ".join(dict.fromkeys(o.never_certified for o in taken if o.never_certified)),
        )
    if value.motion is Motion.CHOOSES and value.trust.is_smooth:
        value = replace(value, trust=Trust.BENT)
    known = value.trust.is_smooth and is_number(type_) and isfinite(value.step)
    kind = OutputKind.ESTIMATE if known else OutputKind.OPAQUE
    return OutputColumn(
        name,
        kind,
        type_,
        "",
        rounding=value.step if known else 0.0,
        sign=KeptSigns(lambda column: _sign_of_column(column, parts))(item),
        never_certified=value.trust.why_never,
    )


def _rounded_beyond(value: Value, taken: Sequence[OutputColumn]) -> float:
    """Return how far a value is rounded at most that is taken over, beyond what its intervals allow for."""
    own = 0.0 if any(output.moves_in_steps for output in taken) else min(output.rounding for output in taken)
    return value.step - own if isfinite(value.step) else 0.0


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


def _texts(draft: Draft, carved: Carved, level: Level, outputs: Sequence[OutputColumn]) -> AroundTexts:
    parts, query = carved.parts, _query(carved, level)
    hidden = (GROUP, GROUP_ROWS) if level.query is not None else ()
    units = [
        sum(draft.catalog.layout(name).max_unit_rows for name in part.measured_by)
        for part in parts
        if part.measured_by
    ]
    if (placed := with_places(level, max(units))) is not None:
        query, hidden = placed, (*hidden, BEFORE, BEFORE_ONCE, IS_FIRST)
    if (ranking := _ranking(query, level, outputs)) is not None:
        assert isinstance(query, exp.Select)
        query = query.limit(ranking.shown + RIVALS)
    return AroundTexts(
        final=_final(carved.outer, outputs[: len(level.values)], parts),
        estimate=_estimate(query, outputs, parts, hidden),
    )


def _rows(draft: Draft, carved: Carved, level: Level, outputs: Sequence[OutputColumn]) -> AroundRows:
    pairs = zip(outputs, level.values, strict=True)
    most = _most_rows(_query(carved, level), level)
    so_far = any(
        o.kind is OutputKind.OPAQUE and v.is_scaled and not (v.sources or v.is_chosen) for o, v in pairs
    )
    return AroundRows(
        have_identity=level.query is not None,
        are_certain=level.is_certain,
        most=most,
        keep_groups=level.keeps_groups,
        so_far=so_far or not level.is_certain,  # a total that is scaled would pick rows by chance
        sets=_most_with_one_seed(draft, level.sets or {}),
        have_margins=level.has_margins and most is None,  # rows that enter would take places
        margins=level.margins,
        chosen=tuple(value.is_chosen for value in level.values),
        whole=tuple(value.trust is Trust.WHOLE for value in level.values),
        totals=tuple(_only_grows(value, carved.parts) for value in level.values),
        ranking=_ranking(_query(carved, level), level, outputs),
        are_sampled=any(
            part.is_estimated for i, part in enumerate(carved.parts) if i not in carved.looked_up
        ),
        tables_together=_most_with_one_seed(
            draft, {part.leading: 1 for part in carved.parts if part.leading}
        ),
    )


def _ranking(query: exp.Query, level: Level, outputs: Sequence[OutputColumn]) -> Ranking | None:
    """Return by which estimate LIMIT picks among rows that no other estimate decides about."""
    order = query.args.get("order")
    if not isinstance(query, exp.Select) or level.query is None or not level.is_certain or order is None:
        return None
    shown = most_rows(query)
    items = query.expressions[: len(level.values)]
    names = [item.alias_or_name.lower() for item in items]
    first = order.expressions[0]
    term = first.this.unnest()
    if isinstance(term, exp.Column) and not term.table and names.count(term.name.lower()) == 1:
        place = names.index(term.name.lower())
    elif isinstance(term, exp.Literal) and term.is_int:
        place = int(term.this) - 1
    else:
        place = next((i for i, item in enumerate(items) if item.unalias().unnest() == term), -1)
    if not shown or not 0 <= place < len(items) or outputs[place].kind is not OutputKind.ESTIMATE:
        return None
    return Ranking(place, bool(first.args.get("desc")), shown)


def _most_with_one_seed(draft: Draft, counts: Mapping[str, int]) -> int:
    """Return the counts of tables that are hashed with one seed, added up, for the seed where they are most.

    Rows of such tables may be sampled together. What was missed of others says nothing of them.
    """
    together: Counter[int] = Counter()
    for table, count in counts.items():
        together[draft.catalog.layout(table).seed] += count
    return max(together.values(), default=0)


def _most_rows(query: exp.Query, level: Level) -> int | None:
    """Return how many rows LIMIT lets through, None where it cannot leave any out. 0 where an OFFSET may."""
    if not any(query.args.get(part) for part in ("limit", "offset")):
        return None
    most = most_rows(query) or 0
    return None if most and level.has_one_row else most


def _answers(parts: Sequence[PartPlan], *, estimated: bool) -> str:
    """Return the WITH that gives the parts' answers names and types. Estimates are DOUBLE."""
    tables = (
        f"{answer_name(index)} AS ({_answer(part, f'part_{index}', estimated=estimated)})"
        for index, part in enumerate(parts)
    )
    return "WITH " + ", ".join(tables)


def _answer(part: PartPlan, table: str, *, estimated: bool, moves: Sequence[str] = ()) -> str:
    columns = [
        f"CAST(c{i} AS {_type(output, estimated)}) AS {quote_name(output.name)}"
        for i, output in enumerate(part.outputs)
    ]
    hidden = [GROUP, GROUP_ROWS, *moves] if estimated else []
    return f"SELECT {', '.join(columns + hidden)} FROM {table}"


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
    query: exp.Query, outputs: Sequence[OutputColumn], parts: Sequence[PartPlan], hidden: Sequence[str]
) -> str:
    values = [f"TRY_CAST(x{i} AS {output.type}) AS o{i}" for i, output in enumerate(outputs)]
    values += [*_doubles(outputs), *hidden]
    source = f"({query.sql(DIALECT)}) AS t({_names(outputs, *hidden)})"
    return f"{_answers(parts, estimated=True)} SELECT {', '.join(values)} FROM {source}"


def _doubles(outputs: Sequence[OutputColumn]) -> Iterator[str]:
    for i, output in enumerate(outputs):
        if output.kind in (OutputKind.ESTIMATE, OutputKind.DISTINCT):
            yield f"TRY_CAST(x{i} AS DOUBLE) AS v{i}"


def _replicates(
    query: exp.Query, outputs: Sequence[OutputColumn], parts: Sequence[PartPlan], drawn: Sequence[int]
) -> str:
    """Return the query over each variant of some parts, as the variant, the row of the answer, the values."""
    inner = copied(query)
    for part in ("order", "limit", "offset"):
        inner.set(part, None)
    tables = {i: _answer(part, f"part_{i}", estimated=True) for i, part in enumerate(parts)}
    fixed = ", ".join(f"{answer_name(i)} AS ({sql})" for i, sql in tables.items() if i not in drawn)
    varied = ", ".join(
        f"{answer_name(i)} AS ({tables[i]} WHERE part_{i}.variant = each.variant)" for i in drawn
    )
    variants = " UNION ".join(f"SELECT DISTINCT variant FROM part_{i}" for i in drawn)
    rows = f"({inner.sql(DIALECT, copy=False)}) AS t({_names(outputs, GROUP, GROUP_ROWS)})"
    values = ", ".join([*_doubles(outputs), GROUP])
    return (
        f"{f'WITH {fixed} ' if fixed else ''}SELECT each.variant, shown.place, t.* EXCLUDE ({GROUP}) "
        f"FROM ({variants}) AS each, LATERAL (WITH {varied} SELECT {values} FROM {rows}) AS t "
        f"JOIN shown ON shown.{GROUP} IS NOT DISTINCT FROM t.{GROUP}"
    )


def _moves(query: exp.Query | None, outputs: Sequence[OutputColumn], answers: Answers) -> str:
    """Return the SQL of what one row could move the estimated outputs, "" where that is known of none."""
    if query is None or (moved := with_moves(query, answers)) is None:
        return ""
    tables = ", ".join(
        f"{answer_name(i)} AS ({_answer(part, f'part_{i}', estimated=True, moves=moves_of(part))})"
        for i, part in enumerate(answers.parts)
    )
    moves = [moves_column(i) for i in range(len(outputs))]
    rows = f"({moved.sql(DIALECT, copy=False)}) AS t({_names(outputs, GROUP, GROUP_ROWS, *moves)})"
    values = [f"{moves[i]} AS v{i}" for i, output in enumerate(outputs) if output.kind is OutputKind.ESTIMATE]
    shown = f"JOIN shown ON shown.{GROUP} IS NOT DISTINCT FROM t.{GROUP}"
    return f"WITH {tables} SELECT {', '.join(['shown.place', *values])} FROM {rows} {shown}"


def _check_binds(draft: Draft, texts: AroundTexts, draws: Sequence[Draw], parts: Sequence[PartPlan]) -> None:
    """Raise SqlError where a text does not bind: an estimate is DOUBLE, and some functions take no DOUBLE."""
    tables = []
    for index, part in enumerate(parts):
        columns = [f"NULL::{output.type} AS c{i}" for i, output in enumerate(part.outputs)]
        columns += [f"0::BIGINT AS {GROUP}", f"0::BIGINT AS {GROUP_ROWS}", "0 AS variant"]
        columns += [f"0::DOUBLE AS {name}" for name in moves_of(part)]
        tables.append(f"part_{index} AS (SELECT {', '.join(columns)})")
    tables.append(f"shown AS (SELECT *, 0 AS place FROM ({texts.estimate}))")
    others = [texts.final, *(draw.replicate for draw in draws), *([texts.moves] if texts.moves else [])]
    tables += [f"relaqs_text_{i} AS ({text})" for i, text in enumerate(others)]
    named = ", ".join(["shown", *(f"relaqs_text_{i}" for i in range(len(others)))])
    # DuckDB takes most of the time to parse a text, so all are bound as one, over the parts that all read.
    draft.binder.describe(f"WITH {', '.join(tables)} SELECT 1 FROM {named}")
