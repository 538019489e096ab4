"""Comments on tables and columns, which clients set and the catalogs show.

_headgate/comments.json    {"shop.items": {"": "What we sell", "price": "in euros"}}
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path

from headgate.capture.durable import read_checked, replace_checked
from headgate.warehouse.ledger import HOME

_FILE = Path(HOME) / "comments.json"


class Comments:
    """May be used by several threads. Of a table that is gone nothing is shown."""

    def __init__(self, storage: str | Path) -> None:
        self._file = Path(storage) / _FILE
        self._lock = threading.Lock()
        self._known = self._read()

    def of(self, table: str) -> Mapping[str, str]:
        """By column; the table's own has the empty name."""
        return self._known.get(table.casefold(), {})

    def set(self, table: str, column: str, text: str | None) -> None:
        with self._lock:
            kept = {name: each for name, each in self.of(table).items() if name != column}
            found = kept if text is None else {**kept, column: text}
            known = {name: each for name, each in self._known.items() if name != table.casefold()}
            self._known = {**known, table.casefold(): found} if found else known
            replace_checked(self._file, json.dumps(self._known).encode())

    def rename(self, old: str, new: str) -> None:
        with self._lock:
            known = dict(self._known)
            found = known.pop(old.casefold(), None)
            if found is not None:
                self._known = {**known, new.casefold(): found}
                replace_checked(self._file, json.dumps(self._known).encode())

    def _read(self) -> Mapping[str, Mapping[str, str]]:
        try:
            found = json.loads(read_checked(self._file))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
