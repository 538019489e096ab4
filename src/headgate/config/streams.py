"""What a project file may say about the stream log of every source."""

from __future__ import annotations

from typing import Literal

from headgate.config.fields import Settings, Size


class StreamSettings(Settings):
    """What holds for the stream log of every source."""

    stream: Literal["local", "elastic"] = "local"
    """Where captured rows wait: in segments of the warehouse's process, or in a queue of partitions that grow with the load."""
    partition_bytes: Size = 8 << 20
    """Of a queue: a partition that has more waiting is split."""
