"""Reading and writing data files on the driver, for amounts of rows that fit its memory.

Pages carry checksums and every read verifies them; a file that is missing or damaged is named. Fragments are kept,
because a file's footer never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from headgate.errors import CorruptWarehouse
from headgate.warehouse.changes import Matching, at_most, every, find_damaged
from headgate.warehouse.index import FileIndex
from headgate.warehouse.problems import storage_problems
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.statistics import ROWS_PER_GROUP, DataFile, indexed_columns, ranges_of
from headgate.warehouse.storage import Folder

KEPT_FRAGMENTS = 8192
THREADS = 2


@dataclass(frozen=True)
class Folded:
    """Files written and files they replace."""

    adds: tuple[DataFile, ...]
    removes: FileIndex
    changed_rows: int

    def require_growth(self, rows: int, table: str) -> None:
        """Raises unless there are so many rows more than before, as changes say: a row that they remove and that was not found is one
        too many. Then the changes do not belong to this base, and nothing may be committed."""
        excess = sum(file.rows for file in self.adds) - self.removes.rows - rows
        if excess:
            what = (
                f"{excess} rows that changes remove from table {table} are not in it"
                if excess > 0
                else f"{-excess} rows of table {table} are gone that no change removes"
            )
            raise CorruptWarehouse(what, hint="the changes do not belong to this version of the table; build it again")


class FileReader:
    """Rows of a table's data files."""

    def __init__(self, folder: Folder, spec: TableSpec) -> None:
        self._folder = folder
        self._schema = spec.arrow_schema
        options = ds.ParquetFragmentScanOptions(pre_buffer=False, page_checksum_verification=True)
        self._format = ds.ParquetFileFormat(default_fragment_scan_options=options)
        self._fragments: dict[str, ds.ParquetFileFragment] = {}

    def rows(
        self,
        paths: Sequence[str],
        columns: Sequence[str] | None = None,
        where: ds.Expression | None = None,
        most_rows: int | None = None,
        matching: Matching = every,
    ) -> pa.Table:
        """The rows of files for which `where` is true and which match, in no order; raises `TooManyRows` for more than `most_rows`."""
        names = list(columns) if columns is not None else self._schema.names
        if not paths:
            return self._schema.empty_table().select(names)
        fragments = [self._fragment(path) for path in paths]
        try:
            dataset = ds.FileSystemDataset(fragments, self._schema, self._format, self._folder.filesystem)
            if most_rows is None:
                return matching(dataset.to_table(columns=names, filter=where))
            schema = pa.schema([self._schema.field(name) for name in names])
            return at_most(dataset.to_batches(columns=names, filter=where), schema, most_rows, matching)
        except (OSError, pa.ArrowException) as error:
            for path in paths:
                self._fragments.pop(path, None)
            raise find_damaged([self._folder.file(path) for path in paths], self._folder, error) from error

    def _fragment(self, path: str) -> ds.ParquetFileFragment:
        found = self._fragments.get(path)
        if found is None:
            if len(self._fragments) >= KEPT_FRAGMENTS:
                self._fragments.clear()
            found = self._format.make_fragment(self._folder.file(path), self._folder.filesystem)
            self._fragments[path] = found
        return found


class FileWriter:
    """Writes rows into an attempt's folder, sorted, a given number of rows a file and a row group."""

    def __init__(
        self,
        folder: Folder,
        attempt: str,
        spec: TableSpec,
        rows_per_file: int,
        rows_per_group: int = ROWS_PER_GROUP,
    ) -> None:
        self._folder = folder
        self._attempt = attempt
        self._schema = spec.arrow_schema
        self._sort = [
            (name, "ascending") for name in spec.sort if not pa.types.is_nested(self._schema.field(name).type)
        ]
        self._columns = indexed_columns(self._schema, (*spec.sort, *spec.key))
        self._rows_per_file = rows_per_file
        self._rows_per_group = rows_per_group
        self._repeating = [
            field.name for field in self._schema if field.name != spec.lead and not pa.types.is_nested(field.type)
        ]
        self._numbers = count()

    def write(self, rows: pa.Table) -> list[DataFile]:
        """The files that now hold the rows."""
        if not rows.num_rows:
            return []
        if self._sort:
            rows = rows.take(pc.sort_indices(rows, sort_keys=self._sort))
        pieces = max(1, round(rows.num_rows / self._rows_per_file))
        cuts = [rows.num_rows * piece // pieces for piece in range(pieces + 1)]
        with storage_problems(self._folder, rows.nbytes):
            return [self._file(rows.slice(start, end - start)) for start, end in pairwise(cuts)]

    def write_in_order(self, rows: pa.Table) -> DataFile:
        """One file that holds the rows as they come."""
        with storage_problems(self._folder, rows.nbytes):
            return self._file(rows)

    def _file(self, rows: pa.Table) -> DataFile:
        name = f"{self._attempt}/part-{next(self._numbers):05d}.parquet"
        path = self._folder.file(name)
        footers: list[pq.FileMetaData] = []
        pq.write_table(
            rows,
            path,
            filesystem=self._folder.filesystem,
            row_group_size=self._rows_per_group,
            write_page_checksum=True,
            store_schema=False,
            store_decimal_as_integer=True,
            use_dictionary=self._repeating,
            metadata_collector=footers,
        )
        return described(self._folder, name, footers[0], self._schema, self._columns)


def described(
    folder: Folder, name: str, footer: pq.FileMetaData, schema: pa.Schema, columns: Sequence[str]
) -> DataFile:
    """A written file as the table knows it."""
    info = folder.filesystem.get_file_info(folder.file(name))
    modified = int((info.mtime_ns or 0) // 1_000_000)
    return DataFile(name, footer.num_rows, int(info.size), modified, ranges_of(footer, schema, columns))
