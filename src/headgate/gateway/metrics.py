"""The gateway as Prometheus reads it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class GatewayMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.connections = Gauge(
            "headgate_postgres_connections", "Open connections of PostgreSQL clients.", registry=registry
        )
        self.connected = Counter(
            "headgate_postgres_connected_total", "Connections of PostgreSQL clients that began.", registry=registry
        )
        self.refused = Counter(
            "headgate_postgres_refused_total",
            "Connections that did not begin: wrong password, malformed, too many.",
            registry=registry,
        )
        self.statements = Counter(
            "headgate_postgres_statements_total", "Statements of PostgreSQL clients.", registry=registry
        )
        self.rows = Counter("headgate_postgres_rows_total", "Rows sent to PostgreSQL clients.", registry=registry)
