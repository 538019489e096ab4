"""One connection: messages in, statements done one after another, messages out.

startup ─▶ ready ─ Query ───────────────▶ rows, CommandComplete … ReadyForQuery
             └──── Parse Bind Execute … ─▶ answers as they come; after a mistake nothing until Sync
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pygwire import ConnectionPhase, TransactionStatus
from pygwire.messages import (
    BackendKeyData,
    Bind,
    BindComplete,
    Close,
    CloseComplete,
    CommandComplete,
    CopyData,
    CopyDone,
    CopyFail,
    CopyInResponse,
    CopyOutResponse,
    Describe,
    EmptyQueryResponse,
    Execute,
    FieldDescription,
    Flush,
    NoData,
    ParameterDescription,
    ParameterStatus,
    Parse,
    ParseComplete,
    PGMessage,
    PortalSuspended,
    Query,
    ReadyForQuery,
    RowDescription,
    Sync,
    Terminate,
)

from headgate.errors import Cancelled
from headgate.gateway.answers import CopyIn, CopyOut, Done, Fetched, Followed, Result, RowCursor
from headgate.gateway.copied import CopiedRows
from headgate.gateway.copying import copy_lines, copy_out
from headgate.gateway.describing import has_rows
from headgate.gateway.parameters import decode
from headgate.gateway.prepared import Portal
from headgate.gateway.problems import (
    NOT_SUPPORTED,
    PROTOCOL,
    UNKNOWN_CURSOR,
    FatalProblem,
    WireProblem,
    error_message,
    notice,
)
from headgate.gateway.queries import Work
from headgate.gateway.reading import is_query
from headgate.gateway.rows import data_rows
from headgate.gateway.session import WireSession
from headgate.gateway.statements import Statement, split
from headgate.gateway.transport import ClientGone, Transport
from headgate.gateway.types import WireColumn

if TYPE_CHECKING:
    from headgate.gateway.endpoint import Gateway

_AT_ONCE_ROWS = 500
"""So few rows are encoded without another thread."""
_COPIED_AT_ONCE = 1 << 20
"""So many bytes of a COPY are kept before they are written to its file."""
_LOOK_SECONDS = 0.5
"""How often a subscription looks whether its client is still there."""

Found = TypeVar("Found")


class WireConnection:
    def __init__(self, gateway: Gateway, transport: Transport, session: WireSession, number: int) -> None:
        self._gateway = gateway
        self._transport = transport
        self.session = session
        self.number = number
        self.key = secrets.token_bytes(4)
        self._over: asyncio.Future[Exception] | None = None
        self._work: Work | None = None
        self._is_at_work = False
        self._ended_by: Exception | None = None
        """Why the statement that runs is to end, from its first step until its last row is sent."""
        self._sent: tuple[str, int] = "", 0
        """The client's text, and where the statement that runs begins in it."""

    def cancel(self, problem: Exception | None = None) -> None:
        """Ends the statement that runs, if there is one."""
        if not self._is_at_work:
            return
        self._ended_by = problem or Cancelled("canceling statement due to user request")
        if self._over is not None and not self._over.done():
            self._over.set_result(self._ended_by)

    @contextmanager
    def _statement(self) -> Iterator[None]:
        """Inside the block a statement can be cancelled, and has the time of `statement_timeout`."""
        timeout = self.session.commands.statement_timeout
        timer = None
        if timeout is not None:
            late = Cancelled("canceling statement due to statement timeout")
            timer = asyncio.get_running_loop().call_later(timeout, self.cancel, late)
        self._is_at_work, self._ended_by = True, None
        try:
            yield
        finally:
            self._is_at_work = False
            if timer is not None:
                timer.cancel()

    def _go_on(self) -> None:
        if self._ended_by is not None:
            raise self._ended_by

    async def run(self) -> None:
        """Answers until the client leaves."""
        self._greet()
        while True:
            await self._ready()
            while True:
                message = await self._transport.message()
                if isinstance(message, Terminate):
                    return
                if isinstance(message, Query):
                    await self._simple(message.query_string)
                    break
                if isinstance(message, Sync):
                    break
                if not await self._extended(message):
                    break

    def _greet(self) -> None:
        for name, value in self.session.commands.told():
            self._transport.put(ParameterStatus(name, value))
        self._transport.put(BackendKeyData(self.number, self.key))

    async def _ready(self) -> None:
        self._transport.put(ReadyForQuery(TransactionStatus(self.session.transactions.status)))
        await self._transport.flush()

    # simple queries

    async def _simple(self, text: str) -> None:
        self.session.prepared.close("")
        self.session.cursors.drop("")
        self._sent = text, 0
        try:
            statements = split(text)
            if not statements:
                self._transport.put(EmptyQueryResponse())
            for statement in statements:
                self._sent = text, statement.begins
                with self._statement():
                    await self._tell(await self._result(statement))
        except Exception as error:
            self._failed(error)

    async def _tell(self, result: Result) -> None:
        """A whole result in text form."""
        match result:
            case Fetched():
                formats = [int(result.is_binary)] * len(result.columns)
                self._transport.put(_described(result.columns, formats))
                cursor = RowCursor(result)
                await self._rows(cursor, formats, 0)
                self._transport.put(CommandComplete(_tag(result, cursor.taken)))
            case Followed():
                formats = [0] * len(result.columns)
                self._transport.put(_described(result.columns, formats))
                await self._follow(result, formats)
            case CopyOut():
                await self._copy_out(result)
            case CopyIn():
                await self._copy_in(result)
            case Done():
                self._done(result)

    def _done(self, result: Done) -> None:
        for name, value in result.changed:
            self._transport.put(ParameterStatus(name, value))
        for text in result.notices:
            self._transport.put(notice(text))
        self._transport.put(CommandComplete(result.tag))

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, FatalProblem | ClientGone | asyncio.CancelledError):
            raise error
        self.session.transactions.failed()
        ran = self._work.ran if self._work is not None else ""
        text, begins = self._sent
        self._transport.put(error_message(error, text[begins:], ran, begins))

    # extended queries

    async def _extended(self, message: PGMessage) -> bool:
        """Does one message; False when the client is to be told that all is ready again: after a mistake, and its Sync."""
        try:
            match message:
                case Parse():
                    self._sent = message.query, 0
                    self.session.prepared.add(message.statement, message.query, message.param_types)
                    self._transport.put(ParseComplete())
                case Bind():
                    self._bind(message)
                case Describe():
                    with self._statement():
                        await self._describe(message)
                case Execute():
                    with self._statement():
                        await self._execute(message)
                case Close():
                    if message.kind == "S":
                        self.session.prepared.close(message.name)
                    else:
                        self.session.cursors.drop(message.name)
                    self._transport.put(CloseComplete())
                case Flush():
                    await self._transport.flush()
                case CopyData() | CopyDone() | CopyFail():
                    pass
                case _:
                    raise FatalProblem(PROTOCOL, f"unexpected message {type(message).__name__}")
            return True
        except Exception as error:
            self._failed(error)
        # The client may wait for the answer before it says Sync.
        await self._transport.flush()
        while not isinstance(following := await self._transport.message(), Sync):
            if isinstance(following, Terminate):
                raise ClientGone
        return False

    def _bind(self, message: Bind) -> None:
        prepared = self.session.prepared.find(message.statement)
        self._sent = prepared.text, 0
        formats, count = message.param_formats, len(message.param_values)
        if len(formats) not in (0, 1, count) or any(form not in (0, 1) for form in (*formats, *message.result_formats)):
            raise WireProblem(PROTOCOL, "the format codes of a bind message do not fit")
        each = [formats[0] if formats else 0] * count if len(formats) < 2 else formats
        oids = self.session.describer.parameter_types(prepared)
        if len(oids) != count and prepared.statement is not None and is_query(prepared.statement):
            raise WireProblem(
                PROTOCOL,
                f'bind message supplies {count} parameters, but prepared statement "{message.statement}" requires {len(oids)}',
            )
        # What the client did not name is text, whatever it was told, unless it took the binary form.
        known = [*prepared.oids, *[0] * count]
        values = [
            decode(body, oid if form == 1 or said else 0 if inferred_text(oid) else oid, form == 1)
            for body, form, oid, said in zip(message.param_values, each, [*oids, *[0] * count], known, strict=False)
        ]
        self.session.cursors.drop(message.portal)
        self.session.cursors.portals[message.portal] = Portal(prepared, tuple(values), tuple(message.result_formats))
        self._transport.put(BindComplete())

    def _portal(self, name: str) -> Portal:
        found = self.session.cursors.portals.get(name)
        if found is None:
            raise WireProblem(UNKNOWN_CURSOR, f'portal "{name}" does not exist')
        self._sent = found.prepared.text, found.prepared.statement.begins if found.prepared.statement else 0
        return found

    async def _describe(self, message: Describe) -> None:
        if message.kind == "S":
            prepared = self.session.prepared.find(message.name)
            self._sent = prepared.text, prepared.statement.begins if prepared.statement else 0
            oids = self.session.describer.parameter_types(prepared)
            made = self.session.describer.columns(prepared, oids)
            columns = await self._in_thread(prepared.text, made)
            self._transport.put(ParameterDescription(list(oids)))
            self._transport.put(NoData() if columns is None else _described(columns, [0] * len(columns)))
            return
        portal = self._portal(message.name)
        statement = portal.prepared.statement
        if statement is None or not has_rows(statement):
            self._transport.put(NoData())
            return
        await self._fetched(portal, statement)
        assert isinstance(portal.result, Fetched | Followed)
        columns = portal.result.columns
        self._transport.put(_described(columns, _formats(portal.formats, len(columns))))

    async def _fetched(self, portal: Portal, statement: Statement) -> None:
        """Has the portal's statement done, if it is not."""
        if portal.result is None:
            portal.result = await self._result(statement, portal.values)
            if isinstance(portal.result, Fetched):
                portal.cursor = RowCursor(portal.result)

    async def _execute(self, message: Execute) -> None:
        portal = self._portal(message.portal)
        statement = portal.prepared.statement
        if statement is None:
            self._transport.put(EmptyQueryResponse())
            return
        await self._fetched(portal, statement)
        if isinstance(portal.result, Followed):
            formats = _formats(portal.formats, len(portal.result.columns))
            await self._follow(portal.result, formats, message.max_rows)
            self._transport.put(PortalSuspended())
            return
        if portal.cursor is None:
            assert portal.result is not None
            await self._tell(portal.result)
            return
        columns = portal.cursor.fetched.columns
        before = portal.cursor.taken
        await self._rows(portal.cursor, _formats(portal.formats, len(columns)), message.max_rows)
        if message.max_rows and not portal.cursor.is_done:
            self._transport.put(PortalSuspended())
        else:
            self._transport.put(CommandComplete(_tag(portal.cursor.fetched, portal.cursor.taken - before)))

    # rows

    async def _rows(self, cursor: RowCursor, formats: Sequence[int], most: int) -> None:
        """Sends rows, at most so many if that is not 0."""
        columns = cursor.fetched.columns
        left = most or cursor.fetched.rows
        while left > 0 and not cursor.is_done:
            self._go_on()

            def part(left: int = left) -> tuple[memoryview, int]:
                batch = cursor.take(left)
                return (memoryview(b""), 0) if batch is None else (data_rows(batch, columns, formats), batch.num_rows)

            small = cursor.fetched.rows <= _AT_ONCE_ROWS
            data, count = part() if small else await self._gateway.in_thread(part)
            if count == 0:
                return
            left -= count
            self._gateway.metrics.rows.inc(count)
            await self._transport.send(data)

    async def _follow(self, result: Followed, formats: Sequence[int], most: int = 0) -> None:
        """Sends changes as they come, until there are so many, or (0) until the client cancels or leaves."""
        async with self._closing(result, is_kept=most > 0):
            async for batch in self._changes(result, most):
                await self._transport.send(data_rows(batch, result.columns, formats))
                await self._transport.flush()

    @asynccontextmanager
    async def _closing(self, result: Followed, *, is_kept: bool = False) -> AsyncIterator[None]:
        """Closes the subscription after the block, or only when the block fails."""
        try:
            yield
        except BaseException:
            is_kept = False
            raise
        finally:
            if not is_kept:
                await self._gateway.in_thread(result.close)

    async def _changes(self, result: Followed, most: int = 0) -> AsyncIterator[pa.RecordBatch]:
        """A subscription's changes, at most so many if that is not 0; it has a place of its own, none of the queries'."""
        left = most or None
        while left is None or left > 0:
            self._go_on()
            batch = await self._gateway.in_thread(partial(result.next, _LOOK_SECONDS, left))
            if batch is None:
                await self._transport.flush()
            elif batch.num_rows:
                left = None if left is None else left - batch.num_rows
                self._gateway.metrics.rows.inc(batch.num_rows)
                yield batch

    async def _copy_out(self, result: CopyOut) -> None:
        is_binary, found = result.options.form == "binary", result.fetched
        if isinstance(found, Followed) and is_binary:
            found.close()
            raise WireProblem(NOT_SUPPORTED, "a subscription is copied as text or CSV")
        self._transport.put(CopyOutResponse(int(is_binary), [int(is_binary)] * len(found.columns)))
        if isinstance(found, Followed):
            async with self._closing(found):
                async for batch in self._changes(found):
                    await self._transport.send(copy_lines(batch, found.columns, result.options))
                    await self._transport.flush()
            return
        parts = copy_out(found, result.options)
        while (data := await self._gateway.in_thread(lambda: next(parts, None))) is not None:
            self._go_on()
            await self._transport.send(data)
        self._gateway.metrics.rows.inc(found.rows)
        self._transport.put(CopyDone(), CommandComplete(f"COPY {found.rows}"))

    async def _copy_in(self, result: CopyIn) -> None:
        is_binary = result.options.form == "binary"
        self._transport.put(CopyInResponse(int(is_binary), [int(is_binary)] * len(result.columns)))
        await self._transport.flush()
        rows = CopiedRows(result)
        try:
            await self._received(rows)
            made = self.session.writing.copied(result, rows)
            self._done(_as_done(await self._in_thread("COPY", made, must_end=True)))
        except BaseException:
            rows.close()
            raise

    async def _received(self, rows: CopiedRows) -> None:
        """Takes what the client copies, part after part."""
        data = bytearray()
        while True:
            message = await self._transport.message(ConnectionPhase.COPY_IN)
            self._go_on()
            match message:
                case CopyData():
                    data += message.data
                    if len(data) >= _COPIED_AT_ONCE:
                        await self._gateway.in_thread(partial(rows.add, data))
                        data = bytearray()
                case CopyDone():
                    await self._gateway.in_thread(partial(rows.add, data))
                    return
                case CopyFail():
                    raise WireProblem("57014", f"COPY from stdin failed: {message.error_message}")
                case Flush() | Sync():
                    pass
                case _:
                    raise FatalProblem(PROTOCOL, "unexpected message during COPY from stdin")

    # work

    async def _result(self, statement: Statement, values: Sequence[object] = ()) -> Result:
        """What a statement comes to; queries are counted as those over HTTP are."""
        begun = self.session.begin(statement, values)
        if not callable(begun):
            return begun
        queries = self._gateway.queries
        try:
            result = await self._in_thread(statement.text, begun, must_end=self.session.changes(statement))
        except Exception as error:
            if is_query(statement):
                queries.count(None, error)
            raise
        answered = result.fetched if isinstance(result, CopyOut) else result
        if isinstance(answered, Fetched) and answered.command == "SELECT":
            queries.count(answered, None)
        return result

    async def _in_thread(self, text: str, make: Callable[[Work], Found], *, must_end: bool = False) -> Found:
        """What work in a thread comes to; ends when the client goes or cancels."""
        self._go_on()
        work = self._work = self._gateway.work(text, self.session.cancel)
        queries = self._gateway.queries
        with queries.taken(work, must_end=must_end) as request:
            self._over = request.over
            try:
                return await queries.made(request, lambda: make(work))
            finally:
                self._over = None


def inferred_text(oid: int) -> bool:
    """Whether a parameter in text form, of a type that its place suggests, is better left for Spark to read."""
    return oid not in (16, 17, 20, 21, 23, 1700, 700, 701)


def _as_done(result: Result) -> Done:
    assert isinstance(result, Done)
    return result


def _tag(fetched: Fetched, rows: int) -> str:
    return fetched.command if fetched.command in ("SHOW", "EXPLAIN") else f"{fetched.command} {rows}"


def _formats(given: Sequence[int], count: int) -> list[int]:
    if len(given) < 2:
        return [given[0] if given else 0] * count
    if len(given) != count:
        raise WireProblem(PROTOCOL, f"bind message has {len(given)} result formats but query has {count} columns")
    return list(given)


def _described(columns: Sequence[WireColumn], formats: Sequence[int]) -> RowDescription:
    return RowDescription(
        [
            FieldDescription(column.name, 0, 0, column.oid, column.size, column.modifier, form)
            for column, form in zip(columns, formats, strict=True)
        ]
    )
