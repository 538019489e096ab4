"""The service: a warehouse over HTTP. `serve` runs it until it is told to stop, `Server` runs it beside a program.

Names are imported when they are first used: `headgate.service.listening` is for a process without Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.service.limits import ServiceLimits
    from headgate.service.server import Server, serve

__all__ = ["Server", "ServiceLimits", "serve"]

_PLACES = {
    "ServiceLimits": "headgate.service.limits",
    "Server": "headgate.service.server",
    "serve": "headgate.service.server",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
