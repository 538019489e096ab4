"""Where PostgreSQL's clients connect."""

from __future__ import annotations

from headgate.config.fields import Port, Settings


class GatewaySettings(Settings):
    """The endpoint for PostgreSQL's clients in `headgate run`."""

    enabled: bool = True
    """Whether there is one."""
    host: str | None = None
    """The address to listen on; by default that of HTTP."""
    port: Port | None = None
    """0 takes a free one; without it 5433, or a free one if that is taken."""
