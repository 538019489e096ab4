"""Subscriptions over HTTP: a table's changes as server-sent events.

    event: table      the columns of every row, whose last is its weight, and the key
    event: changes    rows of a job; the last event of a job has its position as `id`, with which a client goes on (Last-Event-ID)
    event: problem    what ended the subscription, as any error is told

With `format=arrow` the rows of an event are an Arrow IPC stream in base64 (`arrow`) in place of JSON (`rows`).

One piece at a time is read and sent: a client that takes nothing is left after `limits.client`, and holds no memory until then.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from headgate.delta.changes import WEIGHT
from headgate.errors import Cancelled, DefiniteError, HeadgateError
from headgate.runtime.spark.threads import DaemonThreads
from headgate.scheduling.subscription import JobChanges, Subscription
from headgate.scheduling.warehouse import Warehouse
from headgate.service.formats import compact_json, json_rows
from headgate.service.limits import ServiceLimits
from headgate.service.plain import to_plain
from headgate.service.problems import (
    NotReady,
    TooManyQueries,
    UnexpectedFailure,
    error_to_json,
    in_words_for,
    status_of,
)
from headgate.service.queries import forget, watch_client
from headgate.tabular import arrow_pieces

_LOGGER = logging.getLogger("headgate.service")
EVENT_STREAM = "text/event-stream"
FORMATS = ("json", "arrow")
_SILENCE_SECONDS = 15.0
"""After so long without changes a comment is sent, so that a connection that is dead shows."""
_BEGIN_SECONDS = 5.0
"""For so long the first changes may take before the stream begins without them."""
_EVENT_ROWS = 1_000


class SubscriptionEndpoint:
    """Runs in the service's thread; waiting and reading are done in others."""

    def __init__(self, limits: ServiceLimits, warehouse: Callable[[], Warehouse]) -> None:
        self._limits = limits
        self._warehouse = warehouse
        self._open: set[Subscription] = set()
        self._lock = threading.Lock()
        self._stopping: Exception | None = None
        self._threads = DaemonThreads("headgate-subscription")

    def stop(self, problem: Exception | None = None) -> None:
        """Ends all of them and takes no more; clients hear the problem, if it is not just that the service stops."""
        self._stopping = problem or NotReady("the service is stopping", hint="subscribe again when it is back")
        with self._lock:
            running = list(self._open)
        for subscription in running:
            subscription.cancel()

    def admit(self, subscription: Subscription) -> None:
        """Counts a subscription as open, or closes it and says why not; from any thread."""
        with self._lock:
            has_room = len(self._open) < self._limits.subscriptions
            if has_room and self._stopping is None:
                self._open.add(subscription)
                return
        subscription.close()
        raise self._stopping or TooManyQueries(
            f"{self._limits.subscriptions} subscriptions are open already", hint="try again later, or end one"
        )

    def release(self, subscription: Subscription) -> None:
        """Closes a subscription that was admitted; from any thread, and more than once."""
        with self._lock:
            self._open.discard(subscription)
        subscription.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if self._stopping is not None:
            raise self._stopping
        asked = request.query_params
        form = asked.get("format", "json")
        if form not in FORMATS:
            raise DefiniteError(f"the format cannot be {form[:50]!r}", hint=f"it is one of {', '.join(FORMATS)}")
        subscription = self._warehouse().subscribe(
            request.path_params["table"],
            request.headers.get("last-event-id") or asked.get("as_of") or None,
            max_staleness=asked.get("max_staleness") or None,
        )
        self.admit(subscription)
        over: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        over.add_done_callback(lambda _: subscription.cancel())
        watching = asyncio.create_task(watch_client(receive, over))
        try:
            first = self._next(subscription, form, 0.0)
            if (await asyncio.wait({first}, timeout=_BEGIN_SECONDS))[0]:
                # What cannot be begun is an answer with a status, not an event.
                try:
                    first.result()
                except Cancelled:
                    raise self._stopping or ClientDisconnect() from None
            await self._send(subscription, first, form, request.headers, send)
        finally:
            watching.cancel()
            self.release(subscription)

    def _next(self, subscription: Subscription, form: str, seconds: float | None = None) -> asyncio.Future[list[str]]:
        """The events of the next piece, made in a thread; it ends when the subscription is cancelled."""

        def work() -> list[str]:
            piece = subscription.next(seconds)
            return [] if piece is None else list(_events(piece, form))

        future = asyncio.wrap_future(self._threads.submit(work))
        future.add_done_callback(forget)
        return future

    async def _send(
        self,
        subscription: Subscription,
        coming: asyncio.Future[list[str]],
        form: str,
        headers: Headers,
        send: Send,
    ) -> None:
        """Sends until one side ends it. A client that does not take an event in time gets no more."""
        kinds = [(b"content-type", EVENT_STREAM.encode()), (b"cache-control", b"no-store")]

        async def give(text: str, more: bool = True) -> None:
            async with asyncio.timeout(self._limits.client.total_seconds()):
                await send({"type": "http.response.body", "body": text.encode(), "more_body": more})

        try:
            await send({"type": "http.response.start", "status": 200, "headers": kinds})
            await give(_event("table", _described(subscription)))
            try:
                while True:
                    while not (await asyncio.wait({coming}, timeout=_SILENCE_SECONDS))[0]:
                        await give(":\n\n")
                    for event in coming.result():
                        await give(event)
                    coming = self._next(subscription, form)
            except TimeoutError:
                raise
            except Exception as error:
                if isinstance(error, Cancelled) and self._stopping is None:
                    return
                told = self._stopping if isinstance(error, Cancelled) else error
                if not isinstance(told, HeadgateError):
                    _LOGGER.error("subscription to %s failed", subscription.table, exc_info=error)
                    told = UnexpectedFailure("internal error", hint="see the service log")
                said = in_words_for(headers, {"error": error_to_json(told), "status": status_of(told)})
                await give(_event("problem", compact_json(said)), more=False)
        except TimeoutError:
            _LOGGER.warning("a client takes the changes of %s too slowly: its subscription ends", subscription.table)
        except ClientDisconnect:
            with suppress(Exception):
                subscription.cancel()


def _described(subscription: Subscription) -> str:
    columns = [{"name": field.name, "type": field.dataType.simpleString()} for field in subscription.columns]
    columns.append({"name": WEIGHT, "type": "bigint"})
    return compact_json({"table": subscription.table, "columns": columns, "key": to_plain(subscription.key)})


def _events(piece: JobChanges, form: str) -> Iterator[str]:
    """The piece in events of bounded size."""
    starts = range(0, max(1, piece.rows.num_rows), _EVENT_ROWS)
    head = compact_json(
        {"job": piece.job, "data_timestamp": to_plain(piece.data_timestamp), "snapshot": piece.is_snapshot}
    )
    for start in starts:
        is_last = piece.position is not None and start == starts[-1]
        rows = piece.rows.slice(start, _EVENT_ROWS)
        told = f'"rows":[{json_rows(rows)}]' if form == "json" else f'"arrow":"{_in_base64(rows)}"'
        data = f'{head[:-1]},"complete":{"true" if is_last else "false"},{told}}}'
        yield _event("changes", data, piece.position if is_last else None)


def _in_base64(rows: pa.Table) -> str:
    return base64.b64encode(b"".join(arrow_pieces(rows.schema, rows.to_batches()))).decode()


def _event(kind: str, data: str, identity: str | None = None) -> str:
    """JSON has no line breaks, so that the data is one line."""
    named = "" if identity is None else f"id: {identity}\n"
    return f"event: {kind}\n{named}data: {data}\n\n"
