"""What a request needs: to read, to produce, to administer, or nothing at all. What is not listed here needs to administer."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.routing import compile_path

from headgate.warehouse.roles import Can

ALIVE = "/healthz"
"""Open to everyone: it says nothing."""
READY = "/readyz"
"""Needs no token: it says yes or no."""
BACKUP = "/v1/backup"
"""Writes to the machine's disk: for those who have a token, or are on the machine."""

PERMISSIONS: Mapping[tuple[str, str], Can | None] = {
    ("POST", "/v1/query"): "read",
    ("GET", "/v1/status"): "read",
    ("GET", "/v1/tables"): "read",
    ("GET", "/v1/history"): "read",
    ("GET", "/v1/explain/{flow}"): "read",
    ("GET", "/v1/subscribe/{table}"): "read",
    ("GET", "/v1/lineage/{table}"): "read",
    ("GET", "/v1/settings"): "read",
    ("GET", "/v1/ranges"): "read",
    ("GET", "/v1/serving"): "read",
    ("GET", "/v1/advise"): "read",
    ("GET", "/metrics"): "read",
    ("GET", "/openapi.json"): "read",
    ("GET", "/v1/scale"): "read",
    ("GET", "/v1/load"): "read",
    ("POST", "/v1/load"): "administer",
    ("POST", "/v1/scale"): "administer",
    ("GET", "/v1/producers"): "produce",
    ("PATCH", "/v1/settings"): "administer",
    ("PATCH", "/v1/ranges"): "administer",
    ("POST", "/v1/refresh"): "administer",
    ("POST", "/v1/resume"): "administer",
    ("POST", "/v1/serving"): "administer",
    ("POST", "/v1/advise"): "administer",
    ("POST", "/v1/apply"): "administer",
    ("POST", "/v1/queue"): "administer",
    ("POST", BACKUP): "administer",
    ("GET", ALIVE): None,
    ("GET", READY): None,
}
"""By method and path; None needs no token."""

_PATTERNS = [(method, compile_path(path)[0], can) for (method, path), can in PERMISSIONS.items()]


def permission(method: str, path: str) -> Can | None:
    """What a request with this method and path needs."""
    asked = "GET" if method == "HEAD" else method
    return next((can for known, pattern, can in _PATTERNS if known == asked and pattern.match(path)), "administer")
