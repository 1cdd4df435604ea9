"""A SELECT becomes an answer: exact, or the first that is as good as the connection's settings ask for."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import chain, repeat
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from relaqs_engine.duck import Cursor, Interrupted
from relaqs_engine.errors import ExpressionError, MemoryLimitError, RelaqsError, SqlError
from relaqs_engine.layouts.manifest import Table
from relaqs_engine.plans.explain import explain
from relaqs_engine.plans.plan import OnlinePlan, OutputKind
from relaqs_engine.postgres.kinds import kind_of_value, parameter_types
from relaqs_engine.postgres.meaning import Meaning, meaning_of
from relaqs_engine.postgres.metadata import DATABASE, Metadata, answer
from relaqs_engine.postgres.wording import may_ask_metadata, without_schema, words_of
from relaqs_engine.sql.binder import parameter_count, with_values
from relaqs_engine.sql.read import WrittenSql

from relaqs.jobs.executor import give_way, run_in_background
from relaqs.progress import StopReason
from relaqs.queries.online_query import OnlineQuery
from relaqs.queries.options import QueryOptions
from relaqs.queries.snapshot import Snapshot
from relaqs.rendering.view_model import doubts_said, not_judged_text
from relaqs.serve.column_types import (
    BOOL,
    FLOAT8,
    JSON,
    OIDS,
    TEXT,
    UNKNOWN,
    ColumnType,
    column_type,
    in_postgres,
    is_number,
    parameter_oid,
)
from relaqs.serve.encoded_rows import AnswerRows
from relaqs.serve.failures import CANCELED, RefusedError
from relaqs.serve.quotas import ANSWERS, FairPool, Holding, UserQuota
from relaqs.serve.settings import SERVER_VERSION, Settings
from relaqs.serve.statements import AboutAnswer, Explain, Request, Select, requests, steered
from relaqs.serve.values import as_announced, check_columns
from relaqs.session import Session

_T = TypeVar("_T")

_AT_ONCE_SECONDS = 0.05  # after which a question about the server gives way
METADATA_SECONDS = 10.0  # a question about names and types takes milliseconds
_EXPLAINED = "QUERY PLAN"
_ONE_TABLE = re.compile(
    r"(?:(?!\bfrom\b).)*\bfrom\s+(?:\w+\.)?(\w+)(?:\s+(?:where|order|limit|group)\b.*)?", re.I | re.S
)
OPEN_TYPES = {0, UNKNOWN.oid}
_TEXTS_KEPT = 256  # whose meaning is known, and the types of parameters: clients ask one text again and again
SHORT_CHARACTERS = 2_000  # of a text that is read in some milliseconds
_FEW_ROWS = 10_000  # that are made ready in some milliseconds


@dataclass(frozen=True, slots=True)
class ReplyColumn:
    """A column of an answer as clients are told of it."""

    name: str
    kind: ColumnType


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer.

    Attributes:
        columns: as clients are told of them.
        notices: what its reader should know, in words.
        holding: of the memory of its rows.
    """

    columns: tuple[ReplyColumn, ...]
    table: pa.Table
    notices: tuple[str, ...] = ()
    holding: Holding | None = None


_PlanKey: TypeAlias = tuple[str, bool, bool, str]  # a text, and the settings by which it is planned


@dataclass(frozen=True, slots=True)
class _KeptPlan:
    """What a text is for DuckDB, and how it is answered. tables: those of the session when it was planned."""

    tables: Mapping[str, Table]
    meaning: Meaning
    plan: OnlinePlan


def _plan_key(select: Select, settings: Settings) -> _PlanKey:
    return select.sql, settings.is_postgres, settings.is_exact, settings.timezone


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks.

    Attributes:
        quota: what the user may use.
        process_id: by which the client knows the connection.
        stop_other: stops the query of another connection of the user, or ends it. False where there is none.
        prepared: returns a SELECT of the statements that are prepared; None for none.
    """

    name: str
    settings: Settings
    quota: UserQuota = field(default_factory=UserQuota)
    process_id: int = 0
    stop_other: Callable[[int, bool], bool] = lambda process_id, is_to_end: False
    prepared: Callable[[], str | None] = lambda: None


class _Known:
    """What is known of tables while they have the same columns.

    Attributes:
        column_types: by names in lower case.
        meant: the meaning of texts.
        parameter_types: of short texts, the oldest first.
    """

    def __init__(self, tables: Mapping[str, Table], metadata_of: Callable[[], Metadata]) -> None:
        self._tables = tables
        self._metadata_of = metadata_of
        self.column_types = _column_types(tables)
        self.meant = lru_cache(maxsize=_TEXTS_KEPT)(partial(meaning_of, columns=self.column_types))
        self.parameter_types: dict[str, dict[int, str]] = {}

    @cached_property
    def metadata(self) -> Metadata:
        """What answers questions about the columns. Making it takes too long for the event loop."""
        return self._metadata_of()

    def is_of(self, tables: Mapping[str, Table]) -> bool:
        """Whether these tables have the same columns."""
        if tables is not self._tables and _column_types(tables) == self.column_types:
            self._tables = tables
        return tables is self._tables


class Answering:
    """Answers the SELECTs of all connections with one session.

    Args:
        session: has the tables and the cores.
        metadata_of: makes what answers questions about the server itself and the tables' columns.
        planning: threads that plan and look up. Queries run on the session's own.
        encoding: threads that make rows ready to be sent.
    """

    def __init__(
        self, session: Session, metadata_of: Callable[[], Metadata], planning: FairPool, encoding: FairPool
    ) -> None:
        self._session = session
        self._metadata_of = metadata_of
        self._planning = planning
        self._encoding = encoding
        self._last_known = _Known(session.tables, metadata_of)
        _ = self._last_known.metadata  # made now, while nobody waits
        self._plans: OrderedDict[_PlanKey, _KeptPlan] = OrderedDict()  # the oldest first

    @property
    def _known(self) -> _Known:
        """What is known of the tables' columns. Tables that were opened anew may have others."""
        if self._last_known.is_of(self._session.tables):
            return self._last_known
        self._last_known = _Known(self._session.tables, self._metadata_of)
        return self._last_known

    def close(self) -> None:
        """Answer nothing about the server any more."""
        self._last_known.metadata.close()

    async def requests(self, sql: str, asker: Asker) -> tuple[Request, ...]:
        """Return what the statements of a text ask for. A long text waits for its turn to be read.

        Raises:
            SqlError: the text is too long, or a quote is not closed.
            RefusedError: a statement is one that this server has not.
        """
        return await self._read(asker, requests, sql)

    async def parameter_count(self, select: Select, asker: Asker) -> int:
        """Return how many values the parameters of a query need."""
        sql = select.sql.replace("?", " ") if asker.settings.is_postgres else select.sql  # j ? 'a'
        return await self._read(asker, parameter_count, sql)

    async def _read(self, asker: Asker, function: Callable[[str], _T], sql: str) -> _T:
        """Return what a function finds in a text. A long one waits for its turn: it is read for too long."""
        return function(sql) if len(sql) <= SHORT_CHARACTERS else await self.in_turn(asker, function, sql)

    async def _steered(self, select: Select, asker: Asker) -> AboutAnswer:
        return await self._read(asker, partial(steered, is_exact=asker.settings.is_exact), select.sql)

    async def in_turn(self, asker: Asker, function: Callable[..., _T], *arguments: Any) -> _T:
        """Return what a function returns that takes a while, once it was the asker's turn."""
        return await self._planning.run(asker.name, function, *arguments)

    async def parameter_oids(self, select: Select, given: Sequence[int], asker: Asker) -> tuple[int, ...]:
        """Return the types of a query's parameters: those that were given, the others from their places.

        given: OIDs, 0 or UNKNOWN where the client leaves one open. There may be fewer than parameters.
        """
        count = await self.parameter_count(select, asker)
        oids = [*given[:count], *(0,) * (count - len(given))]
        if all(oid not in OPEN_TYPES for oid in oids):
            return tuple(oids)
        known = self._known.parameter_types
        found = known.get(select.sql)
        if found is None:
            found = await self.in_turn(asker, self._types_of_parameters, select.sql)
            if len(select.sql) <= SHORT_CHARACTERS:
                known[select.sql] = found
            while len(known) > _TEXTS_KEPT:
                del known[next(iter(known))]
        return tuple(
            parameter_oid(found.get(place)) if oid in OPEN_TYPES else oid for place, oid in enumerate(oids, 1)
        )

    def _types_of_parameters(self, sql: str) -> dict[int, str]:
        known = self._known
        of_server = known.metadata.column_types if may_ask_metadata(sql) else {}
        return parameter_types(self._session.with_own_names(sql), {**of_server, **known.column_types})

    async def columns(self, select: Select, values: Sequence[Any], asker: Asker) -> tuple[ReplyColumn, ...]:
        """Return the columns that the answer will have.

        values: of its parameters, in order.
        """
        if select.explained is not None:
            return (_explained_column(select.explained),)
        asker = _hinted(asker, select)
        rewritten = await self._rewritten(select, values, asker)
        if rewritten is not None:
            return await self.in_turn(asker, self._metadata_columns, rewritten)
        asked = await self._steered(select, asker)
        select = replace(select, sql=asked.sql)
        kept = self._kept(select, values, asker)
        if kept is None:
            kept = await self.in_turn(asker, self._plan, select, values, asker)
        meaning, plan = kept
        return _columns(meaning, plan, asker.settings, asked)

    async def answer(self, select: Select, values: Sequence[Any], asker: Asker) -> Reply:
        """Return the answer to a SELECT, or how it would be answered if that is what was asked.

        Raises:
            RelaqsError: it is wrong or cannot be answered, or its user has no room for it.
        """
        asker = _hinted(asker, select)
        if select.explained is not None:
            return await self._how_it_comes(select, select.explained, values, asker)
        rewritten = await self._rewritten(select, values, asker)
        if rewritten is not None:
            return await self._about_the_server(rewritten, asker)
        async with asker.quota.running():
            return await self._about_tables(select, values, asker)

    async def _how_it_comes(
        self, select: Select, explained: Explain, values: Sequence[Any], asker: Asker
    ) -> Reply:
        """Return how the answer to a query comes. Where it is timed it runs, and its rows are counted."""
        if await self._rewritten(select, values, asker) is not None:
            lines = ["What is asked about the server itself is looked up."]
        else:
            lines = (await self.in_turn(asker, self._explained, select, values, asker)).splitlines()
        numbers: dict[str, float] = {}
        if explained.is_timed:
            begin = time.monotonic()
            reply = await self.answer(replace(select, explained=None), values, asker)
            milliseconds = round((time.monotonic() - begin) * 1000, 3)
            numbers = {"Actual Rows": reply.table.num_rows, "Actual Total Time": milliseconds}
            lines += ["", f"rows: {reply.table.num_rows}", f"Execution Time: {milliseconds:.3f} ms"]
        if explained.is_json:
            costs = {"Startup Cost": 0.0, "Total Cost": 0.0, "Plan Rows": 0, "Plan Width": 0}  # not known
            read = _ONE_TABLE.fullmatch(select.sql)
            name = {"Relation Name": read[1].lower()} if read is not None else {}
            plan = {"Node Type": lines[0], **name, **costs, **numbers, "Details": lines[1:]}
            timed = {"Execution Time": numbers["Actual Total Time"]} if numbers else {}
            lines = [json.dumps([{"Plan": plan, **timed}], indent=2, ensure_ascii=False)]
        return Reply((_explained_column(explained),), pa.table({_EXPLAINED: lines}))

    async def encoded(
        self, rows: AnswerRows, first_row: int, most_rows: int | None, asker: Asker
    ) -> tuple[int, bytes]:
        """Return the number of some of an answer's rows, and their messages, once it was the asker's turn.

        A few small rows take less time than a turn.
        """
        if rows.are_few:
            return rows.messages(first_row, most_rows)
        return await self._encoding.run(asker.name, rows.messages, first_row, most_rows)

    async def _rewritten(self, select: Select, values: Sequence[Any], asker: Asker) -> str | None:
        """Return the SQL for a question about the server itself, None for one about tables."""
        if len(select.sql) <= SHORT_CHARACTERS and not may_ask_metadata(select.sql):
            return None
        return await self.in_turn(asker, self._metadata_sql, select, values, asker)

    async def _about_tables(self, select: Select, values: Sequence[Any], asker: Asker) -> Reply:
        options = asker.settings.options(asker.quota.weight)
        asked = await self._steered(select, asker)
        select = replace(select, sql=asked.sql)
        kept = self._kept(select, values, asker)
        if kept is not None and self._planning.is_idle:
            meaning, plan, query = *kept, self._begun(*kept, options, values, asker)
        else:
            given = select, values, options, asker
            meaning, plan, query = await self._planning.run(
                asker.name, self._planned, *given, undo=lambda planned: planned[-1].stop()
            )
        columns = _columns(meaning, plan, asker.settings, asked)
        try:
            snapshot = None
            async for snapshot in query:  # noqa: B007 - the last is the answer
                pass
        except MemoryLimitError as error:
            raise asker.quota.explained(error) from error
        except ExpressionError as error:
            raise meaning.placed(error, select.sql) from error
        finally:
            query.stop()
        if snapshot is None or (asker.settings.is_exact and not snapshot.is_exact):
            if query.stop_reason == StopReason.BUDGET:
                raise RelaqsError("the budget does not pay the exact answer; SET relaqs.target = '5%' or so")
            raise RelaqsError("the query was stopped before its answer was there; run it again")
        asker.quota.check_size(snapshot.table.nbytes)
        holding = asker.quota.hold(ANSWERS, snapshot.table.nbytes)
        told = partial(self._told, select, plan, snapshot, columns, asker.settings, asked)
        is_short = snapshot.table.num_rows <= _FEW_ROWS and len(select.sql) <= SHORT_CHARACTERS
        table, notices = told() if is_short else await self.in_turn(asker, told)
        return Reply(columns, table, notices, holding)

    def _told(
        self,
        select: Select,
        plan: OnlinePlan,
        snapshot: Snapshot,
        columns: tuple[ReplyColumn, ...],
        settings: Settings,
        asked: AboutAnswer,
    ) -> tuple[pa.Table, tuple[str, ...]]:
        """Return the rows of an answer as they were announced, and what its reader should know."""
        rows_read = self._rows_read(select, plan, snapshot) if "rows_read" in asked.asked.values() else 0
        table = _table(snapshot, plan, columns, settings, asked, rows_read)
        return table, tuple(_notices(snapshot, plan, settings))

    def _rows_read(self, select: Select, plan: OnlinePlan, snapshot: Snapshot) -> int:
        """Return how many rows of its tables an answer is of."""
        named = frozenset[str]() if plan.measured_by else words_of(select.sql)
        names = plan.measured_by or [name for name in self._session.tables if name.lower() in named]
        rows = sum(self._session.tables[name].row_count for name in names)
        return round(rows * (1.0 if snapshot.is_exact else snapshot.fraction))

    async def _about_the_server(self, rewritten: str, asker: Asker) -> Reply:
        cursor = self._known.metadata.cursor(asker.settings.timezone)
        try:
            described, table = await self.in_turn(asker, _answered_in_time, cursor, rewritten)
        except Interrupted:
            raise RefusedError(
                CANCELED, f"a question about the server itself took more than {METADATA_SECONDS:g} s"
            ) from None
        except asyncio.CancelledError:
            cursor.interrupt()
            raise
        asker.quota.check_size(table.nbytes)
        return Reply(_described(described), table, holding=asker.quota.hold(ANSWERS, table.nbytes))

    def _metadata_columns(self, rewritten: str) -> tuple[ReplyColumn, ...]:
        cursor = self._known.metadata.cursor()
        try:
            return _described(cursor.describe(rewritten))
        finally:
            cursor.close()

    def _metadata_sql(self, select: Select, values: Sequence[Any], asker: Asker) -> str | None:
        """Return the SQL for a question about the server itself, None for one about tables."""
        if not may_ask_metadata(select.sql):
            return None
        metadata = self._known.metadata
        cursor: Cursor = metadata.cursor(asker.settings.timezone)
        try:
            sql = with_values(WrittenSql(select.sql), list(values) or None, cursor.typed_text).sql
        finally:
            cursor.close()
        return metadata.rewritten(sql, lambda function, name: _constant(function, name, asker))

    def _plan(self, select: Select, values: Sequence[Any], asker: Asker) -> tuple[Meaning, OnlinePlan]:
        """Return what a SELECT is for DuckDB, and how it is answered.

        That is kept of a short text that runs whole, if it is the same each time: without now(). Plain tables
        are looked at each time.
        """
        if kept := self._kept(select, values, asker):
            return kept
        tables, meaning = self._session.tables, self._meaning(select, values, asker)
        try:
            plan = self._session.plan(
                meaning.sql,
                params=values or None,
                intervals=not asker.settings.is_exact,
                timezone=asker.settings.timezone,
            )
        except (SqlError, ExpressionError) as error:
            raise meaning.placed(error, select.sql) from error
        if tables is not self._session.tables:  # they were opened anew meanwhile, perhaps with other types
            return self._plan(select, values, asker)
        is_same_each_time = not values and plan.sql == meaning.sql
        begins_soon = len(select.sql) <= SHORT_CHARACTERS and not plan.is_estimated and not plan.plain_tables
        if is_same_each_time and begins_soon:
            self._plans[_plan_key(select, asker.settings)] = _KeptPlan(tables, meaning, plan)
        while len(self._plans) > _TEXTS_KEPT:
            self._plans.popitem(last=False)
        return meaning, plan

    def _kept(self, select: Select, values: Sequence[Any], asker: Asker) -> tuple[Meaning, OnlinePlan] | None:
        """Return what `_plan` returned for the same text over the same tables, None where that is not kept.

        What is kept takes a fraction of a millisecond to begin, and no turn where nobody has one: clients ask
        one text often.
        """
        kept = self._plans.get(_plan_key(select, asker.settings))
        if values or kept is None or kept.tables is not self._session.tables:
            return None
        return kept.meaning, kept.plan

    def _planned(
        self, select: Select, values: Sequence[Any], options: QueryOptions, asker: Asker
    ) -> tuple[Meaning, OnlinePlan, OnlineQuery]:
        """Return what a query is for DuckDB, how it is answered, and the query, which has begun."""
        meaning, plan = self._plan(select, values, asker)
        return meaning, plan, self._begun(meaning, plan, options, values, asker)

    def _begun(
        self, meaning: Meaning, plan: OnlinePlan, options: QueryOptions, values: Sequence[Any], asker: Asker
    ) -> OnlineQuery:
        check_columns([output.name for output in plan.outputs], [output.type for output in plan.outputs])
        with asker.quota.asking():
            return self._session.submit(
                meaning.sql,
                options,
                params=values or None,
                intervals=not asker.settings.is_exact,
                timezone=asker.settings.timezone,
                plan=plan if asker.settings.is_exact else self._at_once(plan, asker),
            )

    def _at_once(self, plan: OnlinePlan, asker: Asker) -> OnlinePlan:
        """Return how a query is answered of which one answer is sent: a short one exactly, at once."""
        return self._session.at_once(plan, asker.settings.exact_below_seconds, asker.settings.target)

    def _explained(self, select: Select, values: Sequence[Any], asker: Asker) -> str:
        """Return how the answer would come. A small table is read at once."""
        select = replace(select, sql=steered(select.sql, is_exact=asker.settings.is_exact).sql)
        if asker.settings.is_exact:
            sql, timezone = self._meaning(select, values, asker).sql, asker.settings.timezone
            return self._session.explain(sql, params=values or None, timezone=timezone)
        return explain(self._at_once(self._plan(select, values, asker)[1], asker))

    def _meaning(self, select: Select, values: Sequence[Any], asker: Asker) -> Meaning:
        sql = without_schema(self._session.with_own_names(select.sql), self._session.tables)
        if not asker.settings.is_postgres:
            return Meaning(sql)
        kinds = tuple(map(kind_of_value, values))
        is_matched = "~" in sql or "@" in sql or "regexp" in sql.lower()
        texts = tuple(each if is_matched and isinstance(each, str) else None for each in values)
        is_kept = len(sql) <= SHORT_CHARACTERS and not any(texts)
        known = self._known.meant
        meant = known if is_kept else known.__wrapped__
        return meant(sql, parameters=kinds, values=texts, is_estimated=not asker.settings.is_exact)


def _explained_column(explained: Explain) -> ReplyColumn:
    return ReplyColumn(_EXPLAINED, JSON if explained.is_json else TEXT)


def _hinted(asker: Asker, select: Select) -> Asker:
    """Return who asks, with the settings that comments of the statement give it."""
    settings = asker.settings.hinted(select.where.comments)
    return asker if settings is asker.settings else replace(asker, settings=settings)


def _answered_in_time(cursor: Cursor, rewritten: str) -> tuple[list[tuple[str, str]], pa.Table]:
    """Return the columns and rows of a question about the server. Its time begins here, after its turn came.

    Raises:
        Interrupted: it took too long.
    """
    over, ending, thread = threading.Event(), threading.Lock(), threading.get_native_id()

    def reach(act: Callable[[], object]) -> None:
        with ending:  # afterwards the thread and the cursor may be another question's
            if not over.is_set():
                act()

    def watch() -> None:
        if over.wait(_AT_ONCE_SECONDS):
            return
        reach(partial(give_way, thread))
        seconds = METADATA_SECONDS - _AT_ONCE_SECONDS
        while not over.wait(seconds):
            reach(cursor.interrupt)
            seconds = _AT_ONCE_SECONDS  # DuckDB forgets one that comes between two statements

    run_in_background(watch, "relaqs-metadata")
    try:
        return answer(cursor, rewritten)
    finally:
        with ending:
            over.set()


def _column_types(tables: Mapping[str, Table]) -> dict[str, dict[str, str]]:
    """Return the types of all tables' columns, by names in lower case."""
    return {
        name.lower(): {column.name.lower(): column.type for column in layout.columns}
        for name, layout in tables.items()
    }


def _constant(function: str, argument: str, asker: Asker) -> str | None:
    known = {
        "version": f"PostgreSQL {SERVER_VERSION} (ReLAQS)",
        "current_database": DATABASE,
        "current_schema": "public",
        "current_user": asker.name,
        "pg_backend_pid": str(asker.process_id),
    }
    if function in known:
        return known[function]
    if function == "txid_current":
        return str(asker.settings.transaction_number)
    if function == "pg_prepared_statements":
        return asker.prepared()
    try:
        return asker.settings.show(argument)
    except RefusedError:
        return None


def _described(described: Sequence[tuple[str, str]]) -> tuple[ReplyColumn, ...]:
    """Return the columns of an answer about the server. Lists of numbers are those of OIDs there."""
    return tuple(
        ReplyColumn(name, OIDS if type_ == "BIGINT[]" else column_type(type_)) for name, type_ in described
    )


def _columns(
    meaning: Meaning, plan: OnlinePlan, settings: Settings, asked: AboutAnswer
) -> tuple[ReplyColumn, ...]:
    """Return the query's own columns, and those of its intervals if they are asked for."""
    named = meaning.named([output.name for output in plan.outputs])
    names = [asked.names.get(place, name) for place, name in enumerate(named)]
    kinds = chain(meaning.kinds, repeat(None))
    types = [
        asked.kind(place, in_postgres(column_type(output.type), kind))
        for (place, output), kind in zip(enumerate(plan.outputs), kinds, strict=False)
    ]
    own = [ReplyColumn(name, type_) for name, type_ in zip(names, types, strict=True)]
    if not settings.wants_intervals:
        return tuple(own)
    taken = {column.name for column in own}
    added = []
    for place in _estimated(plan):
        end = FLOAT8 if is_number(own[place].kind) else own[place].kind
        for suffix, kind in (("low", end), ("high", end), ("certified", BOOL)):
            name = f"{own[place].name}_{suffix}"
            while name in taken:
                name += "_"
            taken.add(name)
            added.append(ReplyColumn(name, kind))
    return (*own, *added)


def _estimated(plan: OnlinePlan) -> list[int]:
    """Return the places of the columns that have intervals before the end."""
    if not plan.is_estimated:
        return []
    return [place for place, output in enumerate(plan.outputs) if output.kind is not OutputKind.KEY]


def _table(
    snapshot: Snapshot,
    plan: OnlinePlan,
    columns: Sequence[ReplyColumn],
    settings: Settings,
    asked: AboutAnswer,
    rows_read: int,
) -> pa.Table:
    """Return the values in the order of the columns. An exact value without an interval is both its ends."""
    arrays = list(snapshot.estimate.columns)
    known = {column.position: column for column in snapshot.columns}
    of_answer = {"error": snapshot.error, "is_exact": snapshot.is_exact, "rows_read": rows_read}
    for place, function in asked.asked.items():
        if function in of_answer:
            arrays[place] = pa.array([of_answer[function]] * snapshot.table.num_rows)
        elif place in known:
            arrays[place] = snapshot.table[getattr(known[place], function)]
    if settings.wants_intervals:
        for place in _estimated(plan):
            if place in known:
                column = known[place]
                arrays += [snapshot.table[name] for name in (column.low, column.high, column.certified)]
            else:
                arrays += [arrays[place], arrays[place], pa.array([True] * snapshot.table.num_rows)]
    names = [f"c{place}" for place in range(len(columns))]  # a query may give two columns one name
    as_told = [as_announced(each, column.kind) for each, column in zip(arrays, columns, strict=True)]
    return pa.Table.from_arrays(as_told, names)


def _notices(snapshot: Snapshot, plan: OnlinePlan, settings: Settings) -> list[str]:
    """Return what the reader should know. Nothing is said of an exact answer that was asked for."""
    if settings.is_exact:
        return []
    if snapshot.is_exact:
        return ["exact: all rows that count were read"]
    said = [_quality(snapshot, plan)]
    if snapshot.target is not None and snapshot.error > snapshot.target:
        said.append(f"relaqs.target is {_percent(snapshot.target)}; time was up before it was reached")
    if snapshot.unseen_groups:
        said.append(f"about {snapshot.unseen_groups} groups have not been seen yet")
    return [*said, *snapshot.warnings, *doubts_said(snapshot)]


def _quality(snapshot: Snapshot, plan: OnlinePlan) -> str:
    error = "no error bar yet"
    if math.isfinite(snapshot.error):
        error = f"±{_percent(snapshot.error)} at {_percent(snapshot.confidence)} confidence"
        if snapshot.confidence_for == "table":
            error += " for the table"
    if snapshot.not_judged:
        error += f" ({not_judged_text(snapshot.not_judged)})"
    said = f"approximate: {error}, after {_percent(snapshot.fraction)} of {plan.leading or 'the rows'}"
    unsure, numbers = int(np.isinf(snapshot.widths).sum()), int((~np.isnan(snapshot.widths)).sum())
    return f"{said}; {unsure} of {numbers} numbers are not certified" if unsure else said


def _percent(share: float) -> str:
    return f"{share:.2g}" if share == 0 else f"{100 * share:.3g} %"
