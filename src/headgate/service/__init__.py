"""The service: a warehouse over HTTP. `serve` runs it until it is told to stop, `Server` runs it beside a program."""

from headgate.service.limits import ServiceLimits
from headgate.service.server import Server, serve

__all__ = ["Server", "ServiceLimits", "serve"]
