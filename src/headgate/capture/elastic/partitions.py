"""The partitions of an elastic queue: ranges of the salt that together hold every salt.

    0 ────────── 1 ──┬── 2 ────────── 2³²        a split cuts a range in the middle, a merge joins neighbours
                     └ later blocks are spread anew, those before stay with the partition they were put into

A file beside the log keeps them, written when the log is trimmed or closed. They say who reads a block, never what is in it: if
the file is lost, one partition goes on.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headgate.capture.block_writer import SALTS
from headgate.capture.durable import read_checked, replace_checked
from headgate.errors import DefiniteError

_FILE = "partitions"


@dataclass(frozen=True, slots=True)
class Partition:
    """The salts from `low` up to, but without, `high`."""

    id: int
    low: int
    high: int
    since: int = 0
    """The log's end when it was made."""

    @property
    def can_split(self) -> bool:
        return self.high - self.low >= 2


@dataclass(frozen=True, slots=True)
class Partitions:
    """All partitions in the order of their salts; ids are never used twice."""

    found: tuple[Partition, ...] = (Partition(1, 0, SALTS),)
    next_id: int = 2
    _lows: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_lows", tuple(each.low for each in self.found))

    def __len__(self) -> int:
        return len(self.found)

    def of_salt(self, salt: int) -> Partition:
        return self.found[bisect_right(self._lows, salt) - 1]

    def get(self, number: int) -> Partition:
        for partition in self.found:
            if partition.id == number:
                return partition
        known = ", ".join(str(partition.id) for partition in self.found)
        raise DefiniteError(f"the queue has no partition {number}", hint=f"its partitions are {known}")

    def neighbour(self, partition: Partition) -> Partition | None:
        """The one behind it."""
        place = self.found.index(partition) + 1
        return self.found[place] if place < len(self.found) else None

    def split(self, number: int, end: int) -> Partitions:
        """Two partitions instead of one, each with half of its salts."""
        parent = self.get(number)
        if not parent.can_split:
            raise DefiniteError(f"partition {number} has one salt and cannot be split")
        middle = (parent.low + parent.high) // 2
        daughters = (
            Partition(self.next_id, parent.low, middle, end),
            Partition(self.next_id + 1, middle, parent.high, end),
        )
        place = self.found.index(parent)
        return Partitions((*self.found[:place], *daughters, *self.found[place + 1 :]), self.next_id + 2)

    def merge(self, number: int, other: int, end: int) -> Partitions:
        """One partition instead of two neighbours."""
        left, right = sorted((self.get(number), self.get(other)), key=_low)
        if self.neighbour(left) != right:
            raise DefiniteError(
                f"partitions {number} and {other} are not neighbours",
                hint="only partitions whose salts follow one another can be merged",
            )
        place = self.found.index(left)
        both = Partition(self.next_id, left.low, right.high, end)
        return Partitions((*self.found[:place], both, *self.found[place + 2 :]), self.next_id + 1)

    @staticmethod
    def read(folder: Path, used: int) -> Partitions:
        """As the file has them; `used` is the largest id that a block names, which the file may not know."""
        try:
            content = json.loads(read_checked(folder / _FILE))
            found = tuple(Partition(**each) for each in content["partitions"])
            ends = [0, *(each.high for each in found)]
            if [each.low for each in found] == ends[:-1] and ends[-1] == SALTS:
                return Partitions(found, max(int(content["next_id"]), used + 1))
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return Partitions((Partition(used + 1, 0, SALTS),), used + 2) if used else Partitions()

    def write(self, folder: Path) -> None:
        content = {"partitions": [asdict(each) for each in self.found], "next_id": self.next_id}
        replace_checked(folder / _FILE, json.dumps(content).encode())


def _low(partition: Partition) -> int:
    return partition.low
