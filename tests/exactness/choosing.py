"""Random choices, in the words of a generator; the same seed gives the same choices."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Chooser:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def pick(self, options: Sequence[T]) -> T:
        return options[self.number(0, len(options) - 1)]

    def number(self, least: int, most: int) -> int:
        return self._chance.randint(least, most)

    def maybe(self, percent: int) -> bool:
        return self.number(0, 99) >= 100 - percent

    def some(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """Some of the options, in their order, none twice."""
        count = self.number(min(least, len(options)), min(most, len(options)))
        rest = list(range(len(options)))
        chosen = [rest.pop(self.number(0, len(rest) - 1)) for _ in range(count)]
        return [options[index] for index in sorted(chosen)]

    def text(self) -> str:
        """Any text that Spark can hold: letters, control characters, and whatever else Unicode has but surrogates."""
        return "".join(chr(self._code_point()) for _ in range(self.number(0, 6)))

    def _code_point(self) -> int:
        least, most = self.pick(((0x20, 0x7E), (0x00, 0x1F), (0x80, 0x24F), (0x250, 0xD7FF), (0xE000, 0x10FFFF)))
        return self.number(least, most)
