"""From one format of a warehouse to the next: a step per format, run on opening, in order.

A step can be repeated: whatever a crash leaves of it, running it again does what is missing. The last thing that it does is to
write its number into the ledger. It reads the ledger's entries as its own format has them, not through classes that go on
with later formats.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headgate.warehouse import format_2, format_3, format_4
from headgate.warehouse.ledger import FORMAT, Ledger, LedgerEntry
from headgate.warehouse.storage import Folder
from headgate.warehouse.store import Step, no_step

_LOGGER = logging.getLogger(__name__)

Convert = Callable[[Ledger, Folder, Step], list[LedgerEntry]]
"""Converts what the ledger names, which lies below the folder; gives the ledger's entries in the new format."""

CONVERSIONS: tuple[tuple[int, Convert], ...] = ((2, format_2.convert), (3, format_3.convert), (4, format_4.convert))


def bring_up_to_date(ledger: Ledger, root: str, step: Step = no_step) -> None:
    """Converts the warehouse to the newest format, if it is of an earlier one."""
    for number, convert in CONVERSIONS:
        if ledger.format < number:
            _LOGGER.warning("converting the warehouse: storage=%s format=%d to=%d", root, ledger.format, number)
            entries = convert(ledger, Folder.at(root), step)
            last = entries[-1]
            ledger.rewrite(
                [*entries, LedgerEntry(last.sequence + 1, ledger.epoch, last.at, FORMAT, {"number": number})]
            )
            _LOGGER.warning("converted the warehouse: storage=%s format=%d", root, number)
