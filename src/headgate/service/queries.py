"""Queries of clients: as many at once as the limits allow, each called off when its client goes, its time is over, or the
service stops. Those over HTTP are answered here; another endpoint of the service takes a place and has its own work made."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from prometheus_client import CollectorRegistry
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from headgate.clock import Clock, SystemClock
from headgate.errors import Cancelled, SparkLost, TooStale
from headgate.runtime.reading.query_work import ENDING_SECONDS
from headgate.runtime.spark.threads import DaemonThreads
from headgate.scheduling.history import Outcome
from headgate.scheduling.receipt import Receipt
from headgate.scheduling.warehouse import Warehouse
from headgate.service.bodies import read_query
from headgate.service.gate import ROLE
from headgate.service.limits import ServiceLimits
from headgate.service.metrics import QueryMetrics
from headgate.service.problems import NotReady, QueryTimedOut, TooManyQueries
from headgate.service.replies import RunningQuery, StreamedReply
from headgate.service.sessions import NamedSessions

_LOGGER = logging.getLogger("headgate.service")
_AGAIN_SECONDS = 0.2
"""How long until a query that was called off, and still works, is called off again."""
_GIVEN_UP_SECONDS = ENDING_SECONDS + 5
"""How long a query that was called off keeps its place."""

Found = TypeVar("Found")


class QueryRun(Protocol):
    """A query that is being answered."""

    @property
    def id(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def phase(self) -> str: ...

    @property
    def at(self) -> datetime: ...

    @property
    def seconds(self) -> float: ...

    def call_off(self) -> None:
        """Ends its work; called until the work has ended."""


class QueryReply(Protocol):
    """What a query came to."""

    @property
    def receipt(self) -> Receipt | None: ...


Replied = TypeVar("Replied", bound=QueryReply)


@dataclass(frozen=True, slots=True, eq=False)
class QueryRequest:
    """A query and what may end it before it is answered."""

    run: QueryRun
    until: float
    """When its time is over, on the loop's clock."""
    allowed: float
    """The seconds that it had in all."""
    over: asyncio.Future[Exception]
    """Why it ends before that: its client has gone, or the service stops."""
    must_end: bool = False
    """Whether its work changes something: it has all the time that it takes, and is never left alone."""

    @property
    def left(self) -> float:
        return max(0.0, self.until - asyncio.get_running_loop().time())

    async def result(self, future: asyncio.Future[Found]) -> Found:
        """The result of something that ends by itself or can be cancelled; raises when the request is over."""
        if await self._waits_for(future):
            return future.result()
        future.cancel()
        raise self._problem()

    async def work(self, future: asyncio.Future[Found]) -> Found:
        """The result of work in a thread, which is called off when the request is over; returns when the work has ended.

        Work that Spark does not end raises so by itself; what else does not end keeps its thread, but not its place. Work that
        must end is called off as well, and waited for: what it came to is told, not that it was called off.
        """
        if await self._waits_for(future):
            return future.result()
        loop = asyncio.get_running_loop()
        end = loop.time() + _GIVEN_UP_SECONDS
        while not future.done() and (self.must_end or loop.time() < end) and not self._has_lost_spark:
            self.run.call_off()
            await asyncio.wait({future}, timeout=_AGAIN_SECONDS)
        if not future.done():
            if not self._has_lost_spark:
                _LOGGER.warning("id=%s the query was called off and does not end: it is left alone", self.run.id)
            future.add_done_callback(forget)
        elif isinstance(problem := future.exception(), SparkLost):
            raise problem
        elif self.must_end and not isinstance(problem, Cancelled):
            return future.result()
        raise self._problem()

    @property
    def _has_lost_spark(self) -> bool:
        """Whether there is nothing to wait for: no work ends in order any more."""
        return self.over.done() and isinstance(self.over.result(), SparkLost)

    async def _waits_for(self, future: asyncio.Future[Any]) -> bool:
        """Whether it is done before the request is over."""
        either: set[asyncio.Future[Any]] = {future, self.over}
        timeout = None if self.must_end else self.left
        await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return future.done()

    def _problem(self) -> Exception:
        if self.over.done():
            return self.over.result()
        return QueryTimedOut(
            f"the query was not answered within {self.allowed:g} s, which is the service's limit; it was {self.run.phase}",
            hint="ask for less, allow a larger max_staleness, or raise the service's limit of time",
        )


class Queries:
    """The endpoint of queries. All but a query's own work happens in the service's thread."""

    def __init__(
        self,
        limits: ServiceLimits,
        warehouse: Callable[[], Warehouse],
        registry: CollectorRegistry,
        clock: Clock | None = None,
    ) -> None:
        self._metrics = QueryMetrics(registry)
        self._limits = limits
        self._warehouse = warehouse
        self._clock = clock or SystemClock()
        self._sessions = NamedSessions(limits)
        self._requests: dict[str, QueryRequest] = {}
        self._stopping: Exception | None = None
        self.threads = DaemonThreads("headgate-query")
        """For what queries do outside of the service's own thread."""

    @property
    def running(self) -> list[QueryRun]:
        """The queries that are being answered."""
        return [request.run for request in list(self._requests.values())]

    def stop(self, problem: Exception | None = None) -> None:
        """Calls off what runs and takes nothing more; clients hear the problem, if it is not just that the service stops."""
        self._stopping = problem or NotReady("the service is stopping", hint="ask again when it is back")
        for request in self._requests.values():
            if not request.over.done():
                request.over.set_result(self._stopping)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_query(Request(scope, receive), self._limits)
        self._require_room()
        make = self._warehouse().session
        # Each role has sessions of its own; no name holds a NUL.
        named = None if body.session is None else self._sessions.get(f"{scope.get(ROLE)}\0{body.session}", make)
        session = make() if named is None else named.session
        run = RunningQuery(scope["headgate.id"], body, session, self._limits, self._clock.now())
        with self.taken(run) as request:
            watching = asyncio.create_task(watch_client(receive, request.over))
            try:
                reply = await self.reply(request, run.make_reply, None if named is None else named.turn)
                scope["headgate.log"] = {"rows": reply.rows, "job": reply.receipt.job if reply.receipt else body.job}
                await self._send(request, reply, send)
            finally:
                watching.cancel()

    def _require_room(self) -> None:
        if self._stopping is not None:
            raise self._stopping
        if len(self._requests) >= self._limits.queries:
            raise TooManyQueries(f"{self._limits.queries} queries are running already", hint="ask again in a moment")

    @contextmanager
    def taken(self, run: QueryRun, *, must_end: bool = False) -> Iterator[QueryRequest]:
        """Inside the block the query has one of the places, and the time that the limits allow, or that its work takes."""
        self._require_room()
        loop = asyncio.get_running_loop()
        allowed = self._limits.time.total_seconds()
        until = loop.time() + allowed
        request = self._requests[run.id] = QueryRequest(run, until, allowed, loop.create_future(), must_end)
        try:
            yield request
        finally:
            del self._requests[run.id]

    async def reply(
        self, request: QueryRequest, make: Callable[[], Replied], turn: asyncio.Lock | None = None
    ) -> Replied:
        """What a query comes to, made in a thread; in its turn, if others of its session may run."""
        reply, problem = None, None
        try:
            if turn is None:
                reply = await self.made(request, make)
            else:
                await request.result(asyncio.ensure_future(turn.acquire()))
                try:
                    reply = await self.made(request, make)
                finally:
                    turn.release()
            return reply
        except Exception as error:
            problem = error
            raise
        finally:
            self.count(reply, problem)

    def count(self, reply: QueryReply | None, problem: Exception | None) -> None:
        """Counts a query by what it came to."""
        self._metrics.add(_outcome(reply, problem), None if reply is None else reply.receipt)

    async def made(self, request: QueryRequest, make: Callable[[], Found]) -> Found:
        """What work in a thread comes to; raises when the request is over before."""
        return await request.work(asyncio.wrap_future(self.threads.submit(make)))

    async def _send(self, request: QueryRequest, reply: StreamedReply, send: Send) -> None:
        """Sends part after part. A client that does not take one in time gets no more: its connection is closed."""
        headers = [(name.encode(), value.encode("latin-1")) for name, value in reply.headers.items()]
        part, has_more = reply.first, reply.has_more
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while True:
                async with asyncio.timeout(min(self._limits.client.total_seconds(), request.left)):
                    await send({"type": "http.response.body", "body": part, "more_body": has_more})
                if not has_more or request.over.done():
                    return
                part, has_more = await asyncio.wrap_future(self.threads.submit(reply.next_part))
        except TimeoutError:
            _LOGGER.warning("id=%s the client takes its answer too slowly: the connection is closed", request.run.id)
        except Exception as error:
            # Its beginning is on the way: all that can be done is to end before the end.
            _LOGGER.warning("id=%s the answer broke off: %s", request.run.id, error)


def _outcome(reply: QueryReply | None, problem: Exception | None) -> Outcome:
    if reply is not None:
        return "stale" if reply.receipt is not None and reply.receipt.missed else "ok"
    if isinstance(problem, TooStale):
        return "stale"
    # Without a problem it was the server that gave it up.
    cancelled = problem is None or isinstance(problem, Cancelled | ClientDisconnect | NotReady)
    return "cancelled" if cancelled else "failed"


def forget(future: asyncio.Future[Any]) -> None:
    """Of work that was left alone nobody wants to know how it ended."""
    if not future.cancelled():
        future.exception()


async def watch_client(receive: Receive, over: asyncio.Future[Exception]) -> None:
    """Ends the request when its client goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass
    if not over.done():
        over.set_result(ClientDisconnect())
