"""Format 4: the ledger names the segments of a stream log, so that an owner need not link those of the owner before.

Each log of format 3 lies whole in the folder of its newest epoch, and that is its manifest. Files of large transactions move to
the folder that all owners share; their frames name them as before.
"""

from __future__ import annotations

from pathlib import Path

from headgate.warehouse.ledger import Ledger, LedgerEntry
from headgate.warehouse.storage import Folder
from headgate.warehouse.store import Step


def convert(ledger: Ledger, root: Folder, step: Step) -> list[LedgerEntry]:
    """The entries, and the manifest of every stream log."""
    entries = list(ledger.entries())
    streams = Path(root.child("_headgate").child("streams").address)
    for home in sorted(streams.iterdir()) if streams.exists() else ():
        epoch = max((int(path.name) for path in home.iterdir() if path.name.isdigit()), default=None)
        if epoch is None:
            continue
        files, shared = home / str(epoch) / "files", home / "files"
        shared.mkdir(exist_ok=True)
        for file in sorted(files.iterdir()) if files.exists() else ():
            file.rename(shared / file.name)
            step("moved-file")
        body = {"source": home.name, "epoch": epoch, "former": []}
        last = entries[-1]
        entries.append(LedgerEntry(last.sequence + 1, ledger.epoch, last.at, "stream", body))
    return entries
