"""A source table's events as files, for a batch whose events the driver does not hold.

    large transactions     files of the stream log, as they are
    small transactions     frames ──► tasks write their events into files of the batch (`capture.places`)

What the events are (`Kinds`) is known without a look at them, from the footers of the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkContext
from pyspark.cloudpickle import register_pickle_by_value

from headgate.capture import frames, places
from headgate.capture.places import spool
from headgate.capture.streamlog import StreamLog
from headgate.dataflow.rules.replica import Kinds
from headgate.delta.events import OBSERVED, OP, TRUNCATE, UNCHANGED
from headgate.errors import CorruptWarehouse, TransientError
from headgate.warehouse.changes import footer
from headgate.warehouse.problems import translate
from headgate.warehouse.storage import Folder

for module in (frames, places):
    register_pickle_by_value(module)  # type: ignore[no-untyped-call]


class EventFiles:
    """Parquet files with the events of a table in the transactions (after, upto] of a log."""

    def __init__(self, log: StreamLog, table: str, after: int, upto: int) -> None:
        self._log = log
        self._table = table
        self._found = log.places(table, after, upto)
        self._spooled: list[str] = []
        self._kinds: Kinds | None = None

    def spool(self, schema: pa.Schema, context: SparkContext, folder: Path) -> None:
        """Has executors write the events that lie in frames into files of a new folder."""
        if not self._found.frames:
            return
        folder.mkdir(0o700, parents=True)
        shares = self._found.shares(context.defaultParallelism)
        # Not through `mapInArrow`: the first use of Spark's Python workers then takes half the time.
        tasks = context.parallelize(enumerate(shares), len(shares))
        written = tasks.map(partial(spool, str(folder), schema)).collect()
        if problems := [problem for _, problem in written if problem is not None]:
            # Frame after frame, here: the log tells of a damaged one itself.
            for place in self._found.frames:
                self._log.read(self._table, int(place.stamps.positions[0]) - 1, int(place.stamps.positions[-1]))
            raise TransientError(f"an executor could not read the stream log: {problems[0]}", hint="ask again")
        self._spooled = [file for file, _ in written]

    @property
    def files(self) -> list[str]:
        return [*(file.path for file in self._found.files), *self._spooled]

    @property
    def kinds(self) -> Kinds:
        """What the footers tell of the events; what they do not tell may be."""
        if self._kinds is None:
            with self.damage_named():
                self._kinds = _kinds([footer(file, Folder.at(file)) for file in self.files])
        return self._kinds

    @contextmanager
    def damage_named(self) -> Iterator[None]:
        """Tells the log of a file of its own that could not be read."""
        try:
            yield
        except Exception as error:
            known = translate(error, Folder.at(self._log.files_folder))
            if isinstance(known, CorruptWarehouse):
                for file in self._found.files:
                    if Path(file.path).name in known.what:
                        raise self._log.lose_file(file.path, known.what).error() from error
            raise


def _kinds(footers: Iterable[pq.FileMetaData]) -> Kinds:
    partial, operation = False, 0
    for metadata in footers:
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        for chunk in [group.column(number) for group in groups for number in range(metadata.num_columns)]:
            known = chunk.statistics
            if chunk.path_in_schema.startswith(f"{UNCHANGED}."):
                partial = partial or known is None or known.num_values > 0
            elif chunk.path_in_schema == OP:
                operation = max(operation, OBSERVED if known is None or not known.has_min_max else known.max)
    return Kinds(partial, operation >= TRUNCATE, operation >= OBSERVED)
