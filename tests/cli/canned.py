"""A service with prepared answers: what the command line and its shell do with them needs no Spark."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa

RECEIPT: dict[str, Any] = {
    "bound": {"max_staleness": 0.0, "deadline": 5.0, "when_stale": "fail"},
    "arrived_at": "2026-11-15T17:00:00+00:00",
    "data_timestamp": "2026-11-15T17:00:00+00:00",
    "staleness": 0.0,
    "job": 7,
    "sources": [
        {
            "name": "shop",
            "lag": 0.0,
            "clock_offset": 0.0,
            "clock_error": 0.0,
            "position": 12,
            "cannot_promise": ["rows deleted at the source may still be here"],
            "sampled": True,
        }
    ],
    "waited": {"capture": 0.1, "queue": 0.0, "spark": 0.2, "read": 0.0, "total": 0.3},
    "rows_processed": 3,
    "jobs_run": 1,
    "shared_cut": False,
    "closed_job": True,
    "missed": False,
    "why_missed": None,
    "decision": "no job contains everything that shop has committed",
    "notes": [],
    "ranges": [{"table": "sales", "of": 10, "read": ["[1, 5)"], "brought_forward": 1, "left_behind": 9}],
    "platform": "serving",
    "warnings": [],
}
ROWS = pa.table({"item": ["tea", "coffee"], "total": [3, 4]})
TABLES = [
    {"name": "shop.sales", "columns": [{"name": "id", "type": "bigint"}, {"name": "price", "type": "decimal(10,2)"}]},
    {"name": "revenue", "columns": [{"name": "item", "type": "string"}, {"name": "total", "type": "bigint"}]},
]


@dataclass
class Canned:
    """What the service answers, and what it was asked."""

    url: str = ""
    token: str | None = None
    answers: dict[str, Any] = field(default_factory=lambda: {"/v1/tables": {"tables": TABLES}})
    """Bodies by path."""
    rows: pa.Table = field(default_factory=lambda: ROWS)
    failure: tuple[int, dict[str, Any]] | None = None
    """Status and error that queries get."""
    delay: float = 0.0
    """Seconds before a query is answered."""
    asked: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def canned_service(token: str | None = None) -> Iterator[Canned]:
    """Serves until the end of the block."""
    service = Canned(token=token)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}"))

        do_PATCH = do_POST  # noqa: N815 the names that http.server looks for

        def _answer(self, body: dict[str, Any]) -> None:
            path = self.path.partition("?")[0]
            service.asked.append({"path": self.path, **body})
            if service.token is not None and self.headers["authorization"] != f"Bearer {service.token}":
                self._send(401, {"error": {"kind": "Unauthorized", "what": "the service asks for a token"}})
            elif path != "/v1/query":
                self._send(200, service.answers[path])
            elif service.failure is not None:
                self._send(service.failure[0], {"error": service.failure[1]})
            else:
                time.sleep(service.delay)
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, service.rows.schema) as writer:
                    writer.write_table(service.rows)
                self._send(200, sink.getvalue().to_pybytes())

        def _send(self, status: int, body: object) -> None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            if isinstance(body, bytes):
                self.send_header("headgate-receipt", json.dumps(RECEIPT))
            self.end_headers()
            self.wfile.write(content)

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:
                # A client that cancels goes away.
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    service.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
