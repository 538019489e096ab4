"""How large answers may be."""

from __future__ import annotations

from headgate.config.fields import Count, Settings, Size


class ServiceSettings(Settings):
    """What the service gives a client at once, over HTTP and to PostgreSQL's clients."""

    answer_rows: Count = 1_000_000
    """The most rows of an answer; a query with more is refused unless it asks for fewer."""
    answer_bytes: Size = 256 << 20
    """The most bytes of an answer in Arrow's form; a query with more is refused unless it asks for fewer rows."""
