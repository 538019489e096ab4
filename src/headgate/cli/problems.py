"""Collecting what is wrong, so that a user hears of all of it at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headgate.errors import HeadgateError


class Problems(list[HeadgateError]):
    """What was found so far."""

    @contextmanager
    def collected(self) -> Iterator[None]:
        """An error inside ends the block and is kept."""
        try:
            yield
        except HeadgateError as error:
            self.append(error)
