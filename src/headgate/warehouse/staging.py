"""Files of a table that are no part of its base: changes of the overlay, and rows of the driver that executors are to read.

The folder is emptied when the table is opened: what was staged is made again from its origin.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.warehouse.problems import storage_problems
from headgate.warehouse.storage import Folder

_GROUP_ROWS = 1 << 17


class Staging:
    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def new_folder(self) -> Folder:
        """A name for a folder, for Spark to write into."""
        return self.folder.child(uuid.uuid4().hex)

    def write(self, rows: pa.Table) -> str:
        """Rows in a new file, whose address it gives: to be read soon and once or twice, hence plain, in pieces that tasks share."""
        name = f"{uuid.uuid4().hex}.parquet"
        with storage_problems(self.folder, rows.nbytes):
            pq.write_table(
                rows,
                self.folder.file(name),
                filesystem=self.folder.filesystem,
                store_schema=False,
                compression="none",
                use_dictionary=False,
                write_statistics=False,
                row_group_size=_GROUP_ROWS,
            )
        return self.folder.child(name).address

    def delete(self, files: Collection[str], live: Collection[str]) -> None:
        """Deletes those of the files that lie here, and folders in which no live file is left."""
        start = f"{self.folder.address}/"
        for file in files:
            if not file.startswith(start):
                continue
            name = file.removeprefix(start)
            self.folder.delete(name)
            parent = name.rpartition("/")[0]
            if parent and not any(other.startswith(f"{start}{parent}/") for other in live):
                self.folder.delete_folder(parent)
