"""How often the service was started again because Spark or its process died, as its parent process counts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Restarts:
    """Since `headgate run` was started; a service inside a program has none."""

    count: int = 0
    last_at: datetime | None = None
    last_why: str | None = None
