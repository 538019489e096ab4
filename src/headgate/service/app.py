"""The routes of the service and what each answers."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.staticfiles import StaticFiles

from headgate.capture.source import Progress
from headgate.errors import DefiniteError, HeadgateError, UnknownTable
from headgate.producing.connect import ADDRESS
from headgate.producing.remote_values import Address
from headgate.runtime.flows.advice import FlowAdvice
from headgate.runtime.placing.platforms import Platforms
from headgate.runtime.sources.progress import describe
from headgate.runtime.tables.tables import INTERNAL
from headgate.scheduling.warehouse import Warehouse
from headgate.service.bodies import (
    LOAD_FIELDS,
    RANGE_FIELDS,
    range_change,
    read_change,
    read_fields,
    read_folder,
    read_queue_change,
)
from headgate.service.gate import VANISHED, Gate, error_response
from headgate.service.limits import ServiceLimits
from headgate.service.metrics import MetricsRegistry, WarehouseCollector
from headgate.service.openapi import document
from headgate.service.permissions import ALIVE, BACKUP, READY
from headgate.service.plain import to_plain
from headgate.service.problems import NotFound, NotReady, UnexpectedFailure, in_words_for
from headgate.service.queries import Queries
from headgate.service.restarts import Restarts
from headgate.service.subscriptions import SubscriptionEndpoint
from headgate.service.tables import tables_with_freshness
from headgate.warehouse.roles import Roles

_LOGGER = logging.getLogger("headgate.service")
PAGE = Path(__file__).parent / "page"
_MOST_HISTORY = 1000

_PAGE_HEADERS = {
    # Nothing inline and nothing from elsewhere; and scripts cannot make HTML of a text.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "Referrer-Policy": "no-referrer",
    # A page that is older than the service would not understand it.
    "Cache-Control": "no-cache",
}


class Service:
    """What the routes share; the warehouse may come later than the first request."""

    def __init__(self, warehouse: Warehouse | None, limits: ServiceLimits, restarts: Restarts) -> None:
        self.limits = limits
        self.restarts = restarts
        self.warehouse: Warehouse | None = None
        self.opening = ""
        """What opening the warehouse is about just now."""
        self._loads: dict[str, Progress] = {}
        """How far each source's tables are read, while they are."""
        self.postgres: str | None = None
        """Where PostgreSQL's clients connect."""
        self.roles: Roles | None = None
        """Known from the moment on at which the warehouse is open."""
        self.registry = MetricsRegistry()
        self.registry.register(WarehouseCollector(self.opened, restarts))
        self.queries = Queries(limits, self.opened, self.registry)
        self.subscriptions = SubscriptionEndpoint(limits, self.opened)
        if warehouse is not None:
            self.attach(warehouse)

    def attach(self, warehouse: Warehouse) -> None:
        """From now on requests are about this warehouse."""
        self.roles = Roles(warehouse.project.storage)
        self.warehouse = warehouse

    def opened(self) -> Warehouse:
        """The warehouse, once it is there."""
        if self.warehouse is None:
            loads = "".join(f"; {load['text']}" for load in self.loads)
            raise NotReady(f"the warehouse is being opened{self.opening}{loads}", hint="ask again in a moment")
        return self.warehouse

    def tell_load(self, source: str, progress: Progress) -> None:
        """A source's tables are read that far; from any thread."""
        # Replaced, so that whoever looks at it meanwhile sees one state.
        others = {name: each for name, each in self._loads.items() if name != source}
        self._loads = others if progress.is_done else {**others, source: progress}

    @property
    def loads(self) -> list[dict[str, Any]]:
        return [
            {"source": source, **to_plain(progress), "text": describe(source, progress)}
            for source, progress in self._loads.items()
        ]

    def healthz(self, request: Request) -> Response:
        self._require_spark()
        return PlainTextResponse("alive\n")

    def _require_spark(self) -> None:
        """Raises when Spark is lost: then only a new process can go on, and whoever supervises this one should know."""
        lost = None if self.warehouse is None else self.warehouse.spark_lost
        if lost is not None:
            raise NotReady(
                f"Spark cannot be used any more: {lost}", hint="ask again when the service has started again"
            )

    def readyz(self, request: Request) -> Response:
        self._require_spark()
        try:
            # Of a job that is named: nobody waits for it, and it does not count as being asked.
            with self.opened().sql("SELECT 1", 0) as answer:
                answer.collect()
        except NotReady:
            raise
        except HeadgateError as error:
            raise NotReady(f"the warehouse does not answer: {error.what}", hint=error.advice) from None
        except Exception as error:
            raise NotReady(f"the warehouse does not answer: {error}", hint="see the service log") from None
        return PlainTextResponse("ready\n")

    def status(self, request: Request) -> Response:
        warehouse = self.opened()
        loads = warehouse.loads
        return _told(
            request,
            {
                "name": warehouse.project.name,
                "postgres": self.postgres and f"postgresql://{self.postgres}/{warehouse.project.name}",
                **to_plain(warehouse.status),
                "sources": {
                    name: {
                        **to_plain(source.status),
                        "range_loads": to_plain(loads[name].ranges) if name in loads else {},
                    }
                    for name, source in warehouse.sources.items()
                },
                "failures": to_plain(warehouse.failures),
                "loads": self.loads,
                "restarts": to_plain(self.restarts),
                "queries": [
                    {"id": run.id, "text": run.text, "phase": run.phase, "at": to_plain(run.at), "seconds": run.seconds}
                    for run in self.queries.running
                ],
            },
        )

    def tables(self, request: Request) -> Response:
        return JSONResponse({"tables": tables_with_freshness(self.opened())})

    def history(self, request: Request) -> Response:
        limit, history = _limit(request), self.opened().history
        return JSONResponse({"jobs": to_plain(history.jobs(limit)), "receipts": to_plain(history.receipts(limit))})

    def explain(self, request: Request) -> Response:
        warehouse = self.opened()
        try:
            explanation = warehouse.explain(request.path_params["flow"])
        except DefiniteError as error:
            raise NotFound(error.what, where=error.where, hint=error.advice) from None
        return JSONResponse({**to_plain(explanation), "text": str(explanation)})

    def lineage(self, request: Request) -> Response:
        warehouse = self.opened()
        try:
            found = warehouse.lineage(request.path_params["table"])
        except UnknownTable as error:
            raise NotFound(error.what, where=error.where, hint=error.advice) from None
        return JSONResponse(to_plain(found))

    async def refresh(self, request: Request) -> Response:
        fields = await read_fields(request, self.limits, {"full": (bool,), "table": (str,)})
        return JSONResponse({"job": await run_in_threadpool(partial(self.opened().refresh, **fields))})

    def resume(self, request: Request) -> Response:
        warehouse = self.opened()
        warehouse.resume()
        return _told(request, {"failures": to_plain(warehouse.failures)})

    def advise(self, request: Request) -> Response:
        warehouse = self.opened()
        return _told(request, _advice(warehouse, warehouse.advise(request.query_params.get("flow"), dry_run=True)))

    async def follow_advice(self, request: Request) -> Response:
        fields = await read_fields(request, self.limits, {"flow": (str,), "space": (int, float)})
        if not 0 <= fields.get("space", 0) < math.inf:
            raise DefiniteError(f"space cannot be {fields['space']}", hint="it is 0 or more")
        warehouse = self.opened()
        advice = await run_in_threadpool(partial(warehouse.advise, fields.get("flow"), space=fields.get("space")))
        return _told(request, _advice(warehouse, advice))

    def serving(self, request: Request) -> Response:
        return _told(request, _serving(self.opened().platforms))

    async def repair(self, request: Request) -> Response:
        fields = await read_fields(request, self.limits, {"table": (str,)})
        platforms = self.opened().platforms
        await run_in_threadpool(platforms.repair, fields.get("table"))
        return _told(request, _serving(platforms))

    async def apply(self, request: Request) -> Response:
        fields = await read_fields(request, self.limits, {"dry_run": (bool,), "diff": (bool,), "expected": (str,)})
        return _told(request, to_plain(await run_in_threadpool(partial(self.opened().apply, **fields))))

    def settings(self, request: Request) -> Response:
        tuning = self.opened().tuning
        return JSONResponse({"settings": to_plain(tuning.current()), "changes": to_plain(tuning.changes())})

    async def change(self, request: Request) -> Response:
        change = await read_change(request, self.limits)
        tuning = self.opened().tuning

        def work() -> Response:
            if change.is_reset:
                tuning.reset(change.name, change.who)
            else:
                tuning.change(change.name, change.value, change.who)
            return self.settings(request)

        return await run_in_threadpool(work)

    def scale(self, request: Request) -> Response:
        return JSONResponse(to_plain(self.opened().scaling.status))

    async def rescale(self, request: Request) -> Response:
        fields = await read_fields(request, self.limits, {"part": (str,), "size": (int,)})
        if "part" not in fields:
            raise DefiniteError("the request names no part", hint='send {"part": "transform", "size": 2}')
        await run_in_threadpool(self.opened().scaling.fix, fields["part"], fields.get("size"))
        return self.scale(request)

    def ranges(self, request: Request) -> Response:
        return JSONResponse({"tables": to_plain(self.opened().ranges())})

    async def change_ranges(self, request: Request) -> Response:
        fields = await read_fields(request, self.limits, RANGE_FIELDS)
        change = range_change(fields)
        await run_in_threadpool(partial(self.opened().change_ranges, **change))
        return await run_in_threadpool(self.ranges, request)

    def unloaded(self, request: Request) -> Response:
        return JSONResponse({"sources": to_plain(self.opened().loads)})

    async def load_first(self, request: Request) -> Response:
        fields = await read_fields(request, self.limits, LOAD_FIELDS)
        if "first" not in fields:
            raise DefiniteError("the request names no table", hint='send {"first": "source.table"}')
        self.opened().load_first(fields["first"])
        return await run_in_threadpool(self.unloaded, request)

    async def queue(self, request: Request) -> Response:
        change = await read_queue_change(request, self.limits)
        warehouse = self.opened()

        def work() -> Response:
            if change.other is None:
                return _told(request, to_plain(warehouse.split_partition(change.source, change.partition)))
            return _told(request, to_plain(warehouse.merge_partitions(change.source, change.partition, change.other)))

        return await run_in_threadpool(work)

    async def backup(self, request: Request) -> Response:
        folder = await read_folder(request, self.limits)
        made = await run_in_threadpool(self.opened().backup, folder)
        return JSONResponse({"folder": str(folder), **made.summary()})

    def producers(self, request: Request) -> Response:
        file = Path(self.opened().project.storage) / INTERNAL / ADDRESS
        if not file.exists():
            raise NotFound("the warehouse has no tables that producers fill", hint="add a source of type producer")
        address = Address.read(file)
        return JSONResponse({"socket": address.socket, "port": address.elsewhere[1] if address.elsewhere else None})

    def metrics(self, request: Request) -> Response:
        page, content_type = self.registry.page(request.headers.get("accept", ""))
        return Response(page, headers={"Content-Type": content_type})

    def openapi(self, request: Request) -> Response:
        return JSONResponse(document(self.limits))

    @property
    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v1/query", self.queries, methods=["POST"]),
            Route("/v1/subscribe/{table}", self.subscriptions, methods=["GET"]),
            Route("/v1/status", self.status),
            Route("/v1/tables", self.tables),
            Route("/v1/history", self.history),
            Route("/v1/explain/{flow}", self.explain),
            Route("/v1/lineage/{table}", self.lineage),
            Route("/v1/refresh", self.refresh, methods=["POST"]),
            Route("/v1/resume", self.resume, methods=["POST"]),
            Route("/v1/apply", self.apply, methods=["POST"]),
            Route("/v1/advise", self.advise),
            Route("/v1/advise", self.follow_advice, methods=["POST"]),
            Route("/v1/serving", self.serving),
            Route("/v1/serving", self.repair, methods=["POST"]),
            Route("/v1/settings", self.settings),
            Route("/v1/settings", self.change, methods=["PATCH"]),
            Route("/v1/scale", self.scale),
            Route("/v1/scale", self.rescale, methods=["POST"]),
            Route("/v1/ranges", self.ranges),
            Route("/v1/ranges", self.change_ranges, methods=["PATCH"]),
            Route("/v1/load", self.unloaded),
            Route("/v1/load", self.load_first, methods=["POST"]),
            Route("/v1/queue", self.queue, methods=["POST"]),
            Route(BACKUP, self.backup, methods=["POST"]),
            Route("/v1/producers", self.producers),
            Route("/metrics", self.metrics),
            Route(ALIVE, self.healthz),
            Route(READY, self.readyz),
            Route("/openapi.json", self.openapi),
        ]


def _advice(warehouse: Warehouse, advice: tuple[FlowAdvice, ...]) -> dict[str, object]:
    return {
        "flows": to_plain(advice),
        "decided": warehouse.advised,
        "text": "\n".join([*map(str, advice), *(f"{name}: {why}" for name, why in warehouse.advised.items())]),
    }


class Page(StaticFiles):
    """The files of the page, with what a browser may do with them."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(_PAGE_HEADERS)
        return response


def make_app(service: Service, token: str, hosts: Iterable[str], *, is_open: bool) -> Starlette:
    """The routes behind the gate, and the page if there is one."""
    files = [f"/{file.relative_to(PAGE).as_posix()}" for file in PAGE.rglob("*") if file.is_file()]
    paths = ["/", *files] if files else []
    page = Page(directory=PAGE, html=True, check_dir=False)
    return Starlette(
        # File by file: were all paths the page's, a wrong method would be told as a path that is not there.
        routes=[*service.routes, *(Route(path, page) for path in paths)],
        middleware=[
            Middleware(Gate, token=token, is_open=is_open, roles=lambda: service.roles, hosts=tuple(hosts), page=paths)
        ],
        exception_handlers={
            HeadgateError: _answer_error,
            HTTPException: _answer_http_error,
            ClientDisconnect: _answer_nobody,
            Exception: _answer_mistake,
        },
    )


async def _answer_error(request: Request, error: Exception) -> Response:
    return error_response(error, request.headers)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = error_response(
        NotFound(f"{request.method} {request.url.path}: {error.detail}", hint="see /openapi.json"), request.headers
    )
    response.status_code = error.status_code
    response.headers.update(error.headers or {})
    return response


async def _answer_nobody(request: Request, error: Exception) -> Response:
    return Response(status_code=VANISHED)


async def _answer_mistake(request: Request, error: Exception) -> Response:
    identity = request.scope.get("headgate.id", "-")
    _LOGGER.error("id=%s failed", identity, exc_info=error)
    return error_response(
        UnexpectedFailure("internal error", hint=f"see the service log: look for id={identity} and report it"),
        request.headers,
    )


def _serving(platforms: Platforms) -> dict[str, Any]:
    return {"platforms": to_plain(platforms.status()), "problems": to_plain(platforms.problems)}


def _told(request: Request, content: dict[str, Any]) -> Response:
    return JSONResponse(in_words_for(request.headers, content))


def _limit(request: Request) -> int:
    said = request.query_params.get("limit", "100")
    if not (said.isascii() and said.isdigit() and len(said) <= 9 and 0 < int(said) <= _MOST_HISTORY):
        raise DefiniteError(f"limit cannot be {said[:50]!r}", hint=f"it is a whole number from 1 to {_MOST_HISTORY}")
    return int(said)
