"""Where producers on other machines connect."""

from __future__ import annotations

from headgate.config.fields import Port, Settings


class ProducersSettings(Settings):
    """The endpoint for producers on other machines that reach the storage at the same path; those on this machine need none."""

    host: str = "0.0.0.0"
    """The address to listen on."""
    port: Port
    """0 takes a free one, which the warehouse's address file names."""
