"""One connection, message by message: statements in, rows out.

A statement runs as a task of its own, so that it can be stopped from outside: by the client's wish on another
connection, and when the client has gone. After an error in the extended protocol all is skipped until Sync.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
from pygwire import TransactionStatus
from pygwire import messages as wire
from relaqs_engine.errors import ExpressionError, SqlError
from relaqs_engine.sql.binder import Constant

from relaqs.jobs.executor import PRECEDENCE
from relaqs.serve import failures
from relaqs.serve import statements as asked
from relaqs.serve.answering import OPEN_TYPES, SHORT_CHARACTERS, Answering, Asker, Reply, ReplyColumn
from relaqs.serve.column_types import BOOL, FLOAT8, INT4, TEXT, VOID, type_oid
from relaqs.serve.copy_out import CopiedRows
from relaqs.serve.encoded_rows import AnswerRows
from relaqs.serve.failures import RefusedError, error_fields, notice_fields
from relaqs.serve.named import (
    ChannelMember,
    Channels,
    Cursors,
    KeptPlace,
    Portal,
    Prepared,
    Savepoints,
    check_transaction,
    formats_of,
    row_description,
    select_of,
)
from relaqs.serve.quotas import STATEMENTS, VALUES
from relaqs.serve.settings import REPORTED
from relaqs.serve.stream import ClientGoneError, Stream
from relaqs.serve.values import as_kind, null_of, parameter_value, written_value

_MESSAGES_AHEAD = 64  # read while a statement runs, so that it is seen when the client goes
_MOST_PREPARED = 1000
_TEXT_COPIES = 2  # of the text of a prepared statement: itself, and its place for errors
_MOST_VALUE_BYTES = 1 << 20  # of one statement: written out, they have to be no longer than a statement
_NO_VALUES: tuple[Any, ...] = ()
_ENDED = "terminating connection due to administrator command"


class Conversation:
    """What one client asks and is answered, after they were let in."""

    def __init__(self, stream: Stream, asker: Asker, answering: Answering, channels: Channels) -> None:
        self._stream = stream
        self._prepared: dict[str, Prepared] = {}
        self._asker = replace(asker, prepared=partial(select_of, self._prepared))
        self._answering = answering
        self._portals: dict[str, Portal] = {}
        self._cursors = Cursors()
        self._savepoints = Savepoints()
        self._status = TransactionStatus.IDLE
        self._inbox: asyncio.Queue[wire.PGMessage | RefusedError | None] = asyncio.Queue(_MESSAGES_AHEAD)
        self._running: asyncio.Task[None] | None = None
        self._is_ending = False
        self._member = ChannelMember(
            channels, asker.process_id, self._may_tell, stream.send, stream.unsent_bytes
        )
        self._skips_to_sync = False
        self._is_one_of_several = False  # statements of one message, which are a transaction
        self._reported = self._reportable()

    @property
    def user(self) -> str:
        """Who asks."""
        return self._asker.name

    def cancel(self) -> None:
        """Stop the statement that runs, if one does."""
        if self._running is not None:
            self._running.cancel()

    def end(self) -> None:
        """End, as another connection of the user asks for: what was to come is not answered any more."""
        self._is_ending = True
        self.cancel()
        while not self._inbox.empty():
            self._inbox.get_nowait()
        self._inbox.put_nowait(RefusedError(failures.SHUTTING_DOWN, _ENDED, is_fatal=True))

    async def hold(self) -> None:
        """Answer until the client says goodbye or has gone.

        Raises:
            RefusedError: what came is no message of the protocol.
            ClientGoneError: the client went while it was being answered.
        """
        inbox = self._inbox
        reading = asyncio.create_task(self._read(inbox))
        try:
            while (message := await inbox.get()) is not None and not isinstance(message, wire.Terminate):
                if isinstance(message, RefusedError):
                    raise message
                await self._answer(message)
        finally:
            reading.cancel()
            self._member.listen(None, is_on=False)
            self._prepared.clear()
            self._portals.clear()
            self._cursors.close(None)

    async def _read(self, inbox: asyncio.Queue[wire.PGMessage | RefusedError | None]) -> None:
        message: wire.PGMessage | None = None
        try:
            while (message := await self._stream.next()) is not None:
                await inbox.put(message)
        except RefusedError as refusal:
            self.cancel()
            await inbox.put(refusal)
        else:
            self.cancel()
            await inbox.put(None)

    async def _answer(self, message: wire.PGMessage) -> None:
        match message:
            case wire.Query():
                await self._guarded(self._simple(message.query_string), message.query_string)
                self._ready()
            case wire.Sync():
                self._skips_to_sync = False
                self._ready()
            case wire.Flush():
                pass
            case wire.Parse() | wire.Bind() | wire.Describe() | wire.Execute() | wire.Close():
                if not self._skips_to_sync:
                    sql = message.query if isinstance(message, wire.Parse) else ""
                    self._skips_to_sync = not await self._guarded(self._extended(message), sql)
            case _:
                name = type(message).__name__
                raise RefusedError(failures.PROTOCOL_VIOLATION, f"{name} is not served here", is_fatal=True)
        await self._stream.flushed()

    async def _guarded(self, work: Coroutine[Any, Any, None], sql: str) -> bool:
        """Return whether the work succeeded. If not, the client has been told why."""
        self._running = asyncio.create_task(self._in_time(work))
        try:
            await self._running
            return True
        except asyncio.CancelledError:
            if (own := asyncio.current_task()) is not None and own.cancelling():
                self._running.cancel()
                raise
            if self._is_ending:
                raise RefusedError(failures.SHUTTING_DOWN, _ENDED, is_fatal=True) from None
            error: BaseException = RefusedError(failures.CANCELED, "canceling statement due to user request")
        except ClientGoneError:
            raise
        except Exception as failure:
            error = failure
        finally:
            self._running = None
        if self._status is TransactionStatus.IN_TRANSACTION:
            self._status = TransactionStatus.ERROR_TRANSACTION
        elif self._status is TransactionStatus.IDLE:
            self._member.pending.clear()
        self._stream.send(wire.ErrorResponse(error_fields(error, sql)))
        error.__traceback__ = None  # it and its task refer to each other, and to what the statement kept
        return False

    async def _in_time(self, work: Coroutine[Any, Any, None]) -> None:
        seconds = self._asker.settings.statement_seconds
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                with PRECEDENCE.asking(self.user):
                    await work
        except TimeoutError:
            if not limit.expired():  # a query's own time is over, which its error says
                raise
            raise RefusedError(
                failures.CANCELED, f"canceling statement due to statement_timeout, which is {seconds:g} s"
            ) from None

    def _may_tell(self) -> bool:
        return self._running is None and self._status is TransactionStatus.IDLE

    def _ready(self) -> None:
        if self._status is TransactionStatus.IDLE:
            self._portals.clear()
            self._member.end_transaction()
        for name, value in self._reportable().items():
            if self._reported[name] != value:
                self._stream.send(wire.ParameterStatus(name, value))
                self._reported[name] = value
        self._stream.send(wire.ReadyForQuery(self._status))

    async def _simple(self, sql: str) -> None:
        found = await self._answering.requests(sql, self._asker)
        if not found:
            self._stream.send(wire.EmptyQueryResponse())
        if len(found) > 1 and self._status is TransactionStatus.IDLE:
            await self._in_one_transaction(found)
            return
        for request in found:
            await self._simple_request(request)

    async def _in_one_transaction(self, found: Sequence[asked.Request]) -> None:
        """Answer several statements of one message: a transaction, where they begin none of their own."""
        settings = self._asker.settings
        settings.begin()
        self._is_one_of_several = True
        is_done = False
        try:
            for request in found:
                await self._simple_request(request)
            is_done = True
        finally:
            self._is_one_of_several = False
            if self._status is TransactionStatus.IDLE:
                settings.end(is_rolled_back=not is_done)

    async def _simple_request(self, request: asked.Request) -> None:
        try:
            is_open = isinstance(request, asked.Sleep | asked.StopOther) and request.given is None
            if isinstance(request, asked.Select):
                is_open = await self._answering.parameter_count(request, self._asker) > 0
            if is_open:
                raise RefusedError(failures.SYNTAX_ERROR, "the statement has a parameter and no value for it")
            portal = Portal(Prepared(request), _NO_VALUES, ())
            await self._execute(portal, 0, is_described=False)
        except (SqlError, ExpressionError) as error:
            if isinstance(request, asked.Select):
                raise request.where.placed(error) from error
            raise

    async def _extended(
        self, message: wire.Parse | wire.Bind | wire.Describe | wire.Execute | wire.Close
    ) -> None:
        match message:
            case wire.Parse():
                await self._parse(message)
            case wire.Bind():
                await self._bind(message)
            case wire.Describe():
                await self._describe(message)
            case wire.Execute():
                await self._execute(self._portal(message.portal), message.max_rows, is_described=True)
            case wire.Close():
                kept: dict[str, Any] = self._prepared if message.kind == "S" else self._portals
                kept.pop(message.name, None)
                self._stream.send(wire.CloseComplete())

    async def _parse(self, message: wire.Parse) -> None:
        found = await self._answering.requests(message.query, self._asker)
        if len(found) > 1:
            raise RefusedError(
                failures.SYNTAX_ERROR, f"{len(found)} statements were prepared at once; give one"
            )
        request = found[0] if found else None
        oids: tuple[int, ...] = ()
        if isinstance(request, asked.Select | asked.Declare | asked.Copy):
            select = request if isinstance(request, asked.Select) else request.select
            oids = await self._answering.parameter_oids(select, message.param_types, self._asker)
        elif isinstance(request, asked.Sleep | asked.StopOther) and request.given is None:
            declared = message.param_types[0] if message.param_types else 0
            kind = FLOAT8 if isinstance(request, asked.Sleep) else INT4
            oids = (kind.oid if declared in OPEN_TYPES else declared,)
        self._keep(message.statement, Prepared(request, oids), message.query)
        self._stream.send(wire.ParseComplete())

    def _keep(self, name: str, prepared: Prepared, sql: str) -> None:
        """Keep a statement by its name. Raises RefusedError or MemoryLimitError where there is no room."""
        if name and name in self._prepared:
            raise RefusedError("42P05", f'prepared statement "{name}" already exists')
        if len(self._prepared) >= _MOST_PREPARED:
            raise RefusedError(
                failures.FULL, f"{_MOST_PREPARED} statements are prepared, the most allowed; close some"
            )
        prepared.sql = sql
        prepared.holding = self._asker.quota.hold(STATEMENTS, _TEXT_COPIES * sys.getsizeof(sql))
        self._prepared[name] = prepared

    async def _prepare(self, request: asked.Prepare) -> str:
        """Keep a query by its name, as one of the protocol is kept; return the tag."""
        given = [type_oid(each) for each in request.types]
        oids = await self._answering.parameter_oids(request.select, given, self._asker)
        await self._answering.columns(request.select, (None,) * len(oids), self._asker)
        self._keep(request.name, Prepared(request.select, oids, is_of_sql=True), request.text)
        return "PREPARE"

    def _performed(self, request: asked.Perform) -> tuple[asked.Request | None, tuple[Any, ...]]:
        """Return what EXECUTE runs, and the values of its parameters."""
        prepared = self._statement(request.name)
        if len(request.given) != len(prepared.type_oids):
            raise RefusedError(
                failures.SYNTAX_ERROR,
                f"wrong number of parameters for prepared statement {request.name!r}: "
                f"it takes {len(prepared.type_oids)}, and {len(request.given)} were given",
            )
        if sum(map(len, request.given)) > SHORT_CHARACTERS:
            raise RefusedError(
                failures.TOO_LONG, f"EXECUTE takes values of up to {SHORT_CHARACTERS:,} characters"
            )
        return prepared.request, tuple(map(written_value, request.given, prepared.type_oids))

    async def _bind(self, message: wire.Bind) -> None:
        prepared = self._statement(message.statement)
        oids = prepared.type_oids
        if len(message.param_values) != len(oids):
            raise RefusedError(
                failures.PROTOCOL_VIOLATION,
                f"{len(message.param_values)} values were given for {len(oids)} parameters",
            )
        formats = formats_of(message.param_formats, len(oids))
        size_bytes = sum(len(raw) for raw in message.param_values if raw is not None)
        if size_bytes > _MOST_VALUE_BYTES:
            raise RefusedError(
                failures.TOO_LONG,
                f"the values of the parameters have {size_bytes:,} bytes; up to {_MOST_VALUE_BYTES:,} are "
                "accepted: load long lists into a table",
            )
        arguments = (message.param_values, oids, formats)
        if size_bytes <= SHORT_CHARACTERS:
            bound, held_bytes = _values(*arguments)
        else:
            bound, held_bytes = await self._answering.in_turn(self._asker, _values, *arguments)
        if len(self._portals) >= _MOST_PREPARED:
            raise RefusedError(
                failures.FULL, f"{_MOST_PREPARED} portals are open, the most allowed; close some"
            )
        holding = self._asker.quota.hold(VALUES, held_bytes)
        self._portals[message.portal] = Portal(prepared, bound, tuple(message.result_formats), holding)
        self._stream.send(wire.BindComplete())

    async def _describe(self, message: wire.Describe) -> None:
        if message.kind == "S":
            prepared = self._statement(message.name)
            self._stream.send(wire.ParameterDescription(list(prepared.type_oids)))
            standing = (1 if oid == INT4.oid else null_of(oid) for oid in prepared.type_oids)
            portal = Portal(prepared, tuple(standing), ())  # 1: of digits, as in round(x, $1), is no NULL
        elif message.name in self._cursors:
            self._stream.send(row_description(self._cursors.reply(message.name).columns, ()))
            return
        else:
            portal = self._portal(message.name)
        columns = await self._columns(portal)
        self._stream.send(wire.NoData() if columns is None else row_description(columns, portal.formats))

    async def _columns(self, portal: Portal) -> tuple[ReplyColumn, ...] | None:
        request, bound = portal.prepared.request, portal.bound
        if isinstance(request, asked.Perform):
            request, bound = self._performed(request)
        if isinstance(request, asked.Show):
            return self._shown(request).columns
        if isinstance(request, asked.Fetch):
            return self._cursors.reply(request.name).columns if request.is_sent else None
        if isinstance(request, asked.Sleep):
            return _SLEPT.columns
        if isinstance(request, asked.StopOther):
            return _stopped(request, has_stopped=False).columns
        if not isinstance(request, asked.Select):
            return None
        columns = await self._answering.columns(request, bound, self._asker)
        portal.prepared.columns = columns
        return columns

    async def _execute(self, portal: Portal, most_rows: int, *, is_described: bool) -> None:
        request = portal.prepared.request
        if request is None:
            self._stream.send(wire.EmptyQueryResponse())
            return
        if self._status is TransactionStatus.ERROR_TRANSACTION and not _leaves_failure(request):
            raise RefusedError(
                failures.IN_FAILED_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )
        if portal.rows is None:
            answer = await self._answer_of(request, portal.bound)
            if isinstance(answer, str):
                self._stream.send(wire.CommandComplete(answer))
                return
            self._begin_rows(portal, answer, is_described=is_described)
        await self._send_rows(portal, most_rows, _TAGS.get(type(request), "SELECT"))

    async def _answer_of(self, request: asked.Request, bound: Sequence[Any]) -> Reply | str:
        """Return the answer, or the tag of a statement that has none."""
        settings = self._asker.settings
        match request:
            case asked.Select():
                return await self._answering.answer(request, bound, self._asker)
            case asked.Copy():
                return await self._copy(request, bound)
            case asked.Show():
                return self._shown(request)
            case asked.Declare():
                return await self._declare(request, bound)
            case asked.Fetch():
                return await self._fetched(request)
            case asked.CloseCursor():
                self._cursors.close(request.name)
                return "CLOSE CURSOR" if request.name is not None else "CLOSE CURSOR ALL"
            case asked.StopOther():
                other = _number(bound[0], request.function) if request.given is None else request.given
                is_to_end = request.function == "pg_terminate_backend"
                return _stopped(
                    request, has_stopped=self._asker.stop_other(int(max(0, min(other, 2**31))), is_to_end)
                )
            case asked.Sleep():
                await asyncio.sleep(_number(bound[0], "pg_sleep") if request.given is None else request.given)
                return _SLEPT
            case asked.Set():
                return self._set(request)
            case asked.Prepare():
                return await self._prepare(request)
            case asked.Perform():
                performed, given = self._performed(request)
                assert performed is not None, "an empty statement was prepared by a name"
                return await self._answer_of(performed, given)
            case asked.Reset():
                settings.reset_all()
                if request.tag == "DISCARD ALL":
                    self._prepared.clear()
                    self._member.at_end((None, False))
                return request.tag
            case asked.Transaction():
                return self._transaction(request)
            case asked.Savepoint():
                return self._savepoint(request)
            case asked.Deallocate():
                self._deallocate(request.name)
                return "DEALLOCATE" if request.name is not None else "DEALLOCATE ALL"
            case asked.Listen():
                self._member.at_end((request.channel, request.is_on))
                return "LISTEN" if request.is_on else "UNLISTEN"
            case asked.Notify():
                self._member.say(request.channel, request.payload)
                return "NOTIFY"
            case asked.Nothing():
                return request.tag

    async def _copy(self, request: asked.Copy, bound: Sequence[Any]) -> str:
        """Send the rows of a COPY; return its tag."""
        reply = await self._answering.answer(request.select, bound, self._asker)
        for notice in reply.notices:
            self._notice(notice)
        names, kinds = [each.name for each in reply.columns], [each.kind for each in reply.columns]
        rows = CopiedRows(reply.table, names, kinds, request.form, self._asker.settings.timezone)
        format_ = request.form.format
        self._stream.send(wire.CopyOutResponse(format_, [format_] * len(kinds)))
        await self._stream.send_large(rows.first())
        sent = 0
        while True:
            row_count, messages = await self._answering.encoded(rows, sent, None, self._asker)
            if not row_count:
                break
            await self._stream.send_large(messages)
            sent += row_count
        await self._stream.send_large(rows.last())
        self._stream.send(wire.CopyDone())
        return f"COPY {sent}"

    async def _declare(self, request: asked.Declare, bound: Sequence[Any]) -> str:
        in_transaction = self._status is not TransactionStatus.IDLE
        self._cursors.check(request.name, is_held=request.is_held, in_transaction=in_transaction)
        reply = await self._answering.answer(request.select, bound, self._asker)
        for notice in reply.notices:
            self._notice(notice)
        self._cursors.keep(request.name, replace(reply, notices=()), is_held=request.is_held)
        return "DECLARE CURSOR"

    async def _fetched(self, request: asked.Fetch) -> Reply | str:
        portal = None if request.is_sent else self._portals.get(request.name)
        if portal is not None and (performed := portal.prepared.request) is not None:  # of the protocol
            if portal.rows is None:
                answer = await self._answer_of(performed, portal.bound)
                if isinstance(answer, str):
                    return answer
                self._begin_rows(portal, answer, is_described=True)
            return f"MOVE {portal.pass_over(request.most_rows)}"
        rows = self._cursors.fetch(request.name, request.most_rows)
        return rows if request.is_sent else f"MOVE {rows.table.num_rows}"

    def _reportable(self) -> dict[str, str]:
        """Return the settings whose changes clients are told, by the names that they are told."""
        return {shown: self._asker.settings.show(name) for name, shown in REPORTED.items()}

    def _shown(self, request: asked.Show) -> Reply:
        settings = self._asker.settings
        if request.name == "all":
            names, values = zip(*settings, strict=True)
            rows = {"name": names, "setting": values, "description": [""] * len(names)}
            return Reply(tuple(ReplyColumn(name, TEXT) for name in rows), pa.table(rows))
        value = pa.table({request.name: [settings.show(request.name)]})
        return Reply((ReplyColumn(request.name, TEXT),), value)

    def _set(self, request: asked.Set) -> str:
        """Change a setting; return the tag. One that is local to no transaction stays as it was."""
        settings = self._asker.settings
        if not request.is_local or self._is_one_of_several or self._status is not TransactionStatus.IDLE:
            settings.set(request.name, request.value, is_local=request.is_local)
        else:
            kept = settings.kept()
            settings.set(request.name, request.value, is_local=True)  # what is wrong is told
            settings.take_back(kept)
            self._warn("SET LOCAL can only be used in transaction blocks", "25P01")
        return request.tag

    def _transaction(self, request: asked.Transaction) -> str:
        tag = request.tag
        if tag in ("BEGIN", "SET"):
            if tag == "BEGIN" and self._status is TransactionStatus.IDLE:
                self._asker.settings.begin()
                self._status = TransactionStatus.IN_TRANSACTION
            elif tag == "BEGIN":
                self._warn("there is already a transaction in progress", "25001")
            for name, value in request.modes:
                self._asker.settings.set(name, value, is_local=not name.startswith("default_"))
            return tag
        has_failed = self._status is TransactionStatus.ERROR_TRANSACTION
        ends_as = "ROLLBACK" if has_failed else tag
        if self._status is TransactionStatus.IDLE:
            self._warn("there is no transaction in progress", "25P01")
        else:
            self._asker.settings.end(is_rolled_back=ends_as == "ROLLBACK")
        self._status = TransactionStatus.IDLE
        self._cursors.end_transaction()
        self._savepoints.clear()
        self._member.end_transaction(is_rolled_back=ends_as == "ROLLBACK")
        return ends_as

    def _savepoint(self, request: asked.Savepoint) -> str:
        settings = self._asker.settings
        check_transaction(request.tag, in_transaction=self._status is not TransactionStatus.IDLE)
        match request.tag:
            case "SAVEPOINT":
                kept = (settings.kept(), self._cursors.names(), len(self._member.pending))
                self._savepoints.keep(KeptPlace(request.name, *kept))
            case "RELEASE":
                self._savepoints.release(request.name)
            case "ROLLBACK":
                place = self._savepoints.back_to(request.name)
                settings.take_back(place.settings)
                self._cursors.keep_only(place.cursors)
                del self._member.pending[place.pending_count :]
                self._status = TransactionStatus.IN_TRANSACTION
        return request.tag

    def _deallocate(self, name: str | None) -> None:
        if name is None:
            self._prepared.clear()
        elif self._prepared.pop(name, None) is None:
            raise RefusedError(failures.UNKNOWN_STATEMENT, f"there is no prepared statement {name!r}")

    def _begin_rows(self, portal: Portal, answer: Reply, *, is_described: bool) -> None:
        if portal.prepared.columns is not None:
            answer = _as_described(answer, portal.prepared.columns)
        for notice in answer.notices:
            self._notice(notice)
        formats = formats_of(portal.formats, len(answer.columns))
        if not is_described:
            self._stream.send(row_description(answer.columns, formats))
        kinds = [column.kind for column in answer.columns]
        portal.rows = AnswerRows(answer.table, kinds, formats, self._asker.settings.timezone)
        portal.rows_holding = answer.holding

    async def _send_rows(self, portal: Portal, most_rows: int, tag: str) -> None:
        assert portal.rows is not None
        last = portal.sent + most_rows if most_rows else None
        while last is None or portal.sent < last:
            left = None if last is None else last - portal.sent
            row_count, messages = await self._answering.encoded(portal.rows, portal.sent, left, self._asker)
            if not row_count:
                break
            await self._stream.send_large(messages)
            portal.sent += row_count
        else:
            self._stream.send(wire.PortalSuspended())
            return
        portal.forget_rows()
        count = "" if tag == "SHOW" else f" {portal.sent}"
        self._stream.send(wire.CommandComplete(tag + count))

    def _notice(self, message: str) -> None:
        self._stream.send(wire.NoticeResponse(notice_fields(message)))

    def _warn(self, message: str, code: str) -> None:
        self._stream.send(wire.NoticeResponse(notice_fields(message, "WARNING", code)))

    def _statement(self, name: str) -> Prepared:
        if name not in self._prepared:
            raise RefusedError(failures.UNKNOWN_STATEMENT, f"there is no prepared statement {name!r}")
        return self._prepared[name]

    def _portal(self, name: str) -> Portal:
        if name not in self._portals:
            raise RefusedError(failures.UNKNOWN_PORTAL, f"there is no portal {name!r}")
        return self._portals[name]


def _number(value: Any, function: str) -> float:
    """Return the number that a parameter is, 0 for NULL: no connection has it, and it is no time to sleep."""
    if value is None or isinstance(value, Constant):
        return 0.0
    if not isinstance(value, int | float | Decimal | str) or isinstance(value, bool):
        raise RefusedError(
            failures.UNKNOWN_FUNCTION, f"{function} takes a number, and {value!r} is none; write 15"
        )
    try:
        seconds = float(value)
    except ValueError:
        raise RefusedError(failures.BAD_TEXT, f"{function} takes a number, and {value!r} is none") from None
    except OverflowError:
        return math.inf
    return 0.0 if math.isnan(seconds) else seconds  # asyncio refuses NaN


_SLEPT = Reply((ReplyColumn("pg_sleep", VOID),), pa.table({"pg_sleep": [""]}))
_TAGS: dict[type, str] = {asked.Show: "SHOW", asked.Fetch: "FETCH"}


def _values(
    given: Sequence[bytes | None], oids: Sequence[int], formats: Sequence[int]
) -> tuple[tuple[Any, ...], int]:
    """Return the values of parameters as they were given to Bind, and about what memory they take."""
    bound = tuple(map(parameter_value, given, oids, formats))
    return bound, sum(map(_held_bytes, bound))


def _held_bytes(value: Any) -> int:
    own = sys.getsizeof(value)
    return own + sum(map(sys.getsizeof, value)) if isinstance(value, list) else own


def _stopped(request: asked.StopOther, *, has_stopped: bool) -> Reply:
    column = ReplyColumn(request.function, BOOL)
    return Reply((column,), pa.table({request.function: [has_stopped]}))


def _as_described(answer: Reply, told: Sequence[ReplyColumn]) -> Reply:
    """Return an answer with the types that its client was told of, before it gave the parameters' values.

    Raises RefusedError where a value of the answer is none of its type.
    """
    kinds, has = [each.kind for each in told], [each.kind for each in answer.columns]
    if [each.oid for each in kinds] == [each.oid for each in has]:
        return answer
    try:
        if len(kinds) != len(has):
            raise pa.ArrowInvalid("other columns")
        columns = [as_kind(*each) for each in zip(answer.table.columns, has, kinds, strict=True)]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise RefusedError(
            failures.NOT_SUPPORTED,
            "the types of the columns are not those that were described; cast the parameters, as in "
            "$1::INTEGER, or prepare the statement again",
        ) from None
    return replace(answer, columns=tuple(told), table=pa.table(columns, names=answer.table.column_names))


def _leaves_failure(request: asked.Request) -> bool:
    """Return whether a failed transaction takes the statement: its end, or the way back to a savepoint."""
    if isinstance(request, asked.Savepoint):
        return request.tag == "ROLLBACK"
    return isinstance(request, asked.Transaction) and request.tag not in ("BEGIN", "SET")
