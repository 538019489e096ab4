"""Acknowledged transactions that a stream log no longer has: noted beside it, until the source made good for them.

    folder/lost      which positions, why, and the damaged file; and the gaps that are settled

The note is on the disk before the damaged bytes go. A loss is settled when the source's tables were read afresh, when its
transactions were fetched again, or, where programs are the source, when somebody said to go on without them.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from headgate.capture.durable import read_checked, replace_checked
from headgate.errors import HistoryLost, Location

_FILE = "lost"


@dataclass(frozen=True, slots=True)
class Loss:
    """Transactions in (after, upto] are missing, some or all; or those after, when it is not known how many there were."""

    after: int
    upto: int
    what: str
    where: str

    def __str__(self) -> str:
        which = f"between positions {self.after} and {self.upto}" if self.upto > self.after else f"after {self.after}"
        return f"acknowledged transactions {which} may be lost: {self.what}, in {self.where}"

    def error(self) -> HistoryLost:
        return HistoryLost(
            f"acknowledged transactions are lost: {self.what}",
            where=Location(self.where),
            hint="`headgate status` names the source and what to do",
        )

    def overlaps(self, after: int, upto: int) -> bool:
        """Whether the transactions in (after, upto] would lack some."""
        return after < upto and upto > self.after and after < max(self.upto, self.after + 1)

    def joined(self, other: Loss | None) -> Loss:
        """Both, as one."""
        if other is None:
            return self
        return replace(self, after=min(self.after, other.after), upto=max(self.upto, other.upto))


@dataclass(frozen=True, slots=True)
class Losses:
    """What is noted of a log."""

    open: Loss | None = None
    settled: tuple[tuple[int, int], ...] = field(default=())
    """Gaps that the log goes on with."""

    def with_loss(self, loss: Loss) -> Losses:
        return replace(self, open=loss.joined(self.open))

    def settle(self) -> Losses:
        return self if self.open is None else Losses(None, (*self.settled, (self.open.after, self.open.upto)))

    def trim(self, upto: int) -> Losses:
        """Without the gaps before a position."""
        return replace(self, settled=tuple(gap for gap in self.settled if gap[1] > upto))

    def explains(self, last: int, missing: int) -> bool:
        """Whether it is known that a transaction at `missing` does not follow the one at `last`."""
        gaps: Collection[tuple[int, int]] = self.settled
        if self.open is not None:
            gaps = (*gaps, (self.open.after, self.open.upto))
        return any(after <= last and missing <= upto for after, upto in gaps)

    @staticmethod
    def read(folder: Path) -> Losses:
        """What was noted; a note that cannot be read stands for the whole log."""
        file = folder / _FILE
        if not file.exists():
            return Losses()
        try:
            content = json.loads(read_checked(file))
            noted = None if content["open"] is None else Loss(**content["open"])
            return Losses(noted, tuple((int(after), int(upto)) for after, upto in content["settled"]))
        except (ValueError, TypeError, KeyError) as error:
            return Losses(Loss(0, 0, f"the note of an earlier loss is damaged: {error}", str(file)))

    def write(self, folder: Path) -> None:
        replace_checked(folder / _FILE, json.dumps(asdict(self)).encode())
