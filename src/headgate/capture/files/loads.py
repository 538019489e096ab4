"""First loads of large tables range by range: the files are copied and distributed once, then ranges are read out of the buckets.

    copy          chunk 1 │ chunk 2 │ chunk 3 │                  the latest files first
    distribute            │ chunk 1 │ chunk 2 │ chunk 3 │        by Spark's executors, into unsorted buckets of key ranges
    up                                                  └─ all rows are there: whether a range is whole can be told
    ranges                                              │ sorted and written once, as base files, in the order of who waits (`range_loads`)

All files that were there at first contact count as taken, at one position p, from the beginning on: a file that comes, or changes,
later goes through the log behind p. Of a key the row of the latest file counts, in whichever order files are distributed.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

import numpy as np

from headgate.capture.files.bucket_read import BucketRead, read_batches
from headgate.capture.files.copying import CopyStopped, is_as_it_was
from headgate.capture.files.discovery import Entry
from headgate.capture.files.distribution import BrokenFile, FileDistribution
from headgate.capture.files.first_load import LoadFile, TableLoad
from headgate.capture.files.listing import FoundFile
from headgate.capture.files.method import FilesMethod
from headgate.capture.files.part import PartOutcome
from headgate.capture.files.sampling import sampled_bounds
from headgate.capture.files.tables import BAD, BAD_TABLE, FILES, FilesTable
from headgate.capture.files.taken import TakenFile, TakenFiles, TakenTable
from headgate.capture.shape import Shape
from headgate.capture.source import FirstLoad, Progress, RangeRead
from headgate.capture.streamlog import StreamLog
from headgate.capture.writing import TransactionWriter
from headgate.clock import Clock
from headgate.delta.events import UPSERT
from headgate.errors import TransientError
from headgate.ranges.key_set import Value
from headgate.ranges.range_map import kind_of, parse

_LOGGER = logging.getLogger(__name__)
_COUNT = 16
"""Buckets, where nobody says how many."""


def begin_loads(
    tables: Mapping[str, FilesTable], taken: TakenFiles, log: StreamLog, clock: Clock, settle: timedelta, beyond: int
) -> None:
    """Decides at first contact which tables are loaded range by range: large ones with ranges. Their files count as taken from now on."""
    position = log.end + 1
    begun = False
    for name, table in tables.items():
        state = taken.tables[name]
        is_known = state.loaded or bool(state.taken) or state.load is not None
        if is_known or table.settings.ranges is None or table.settings.mode != "append":
            continue
        latest = min(time.time() - settle.total_seconds(), state.opened_at)
        files = table.in_order([each for each in table.find().values() if each.modified / 1e9 <= latest])
        if sum(each.size for each in files) <= beyond:
            continue
        state.load = TableLoad(position, {number: LoadFile(file) for number, file in enumerate(files)})
        state.taken = {file.path: TakenFile(file, position) for file in files}
        begun = True
    if begun:
        taken.save()
        last = log.end_commit_at
        with log.begin(position, clock.now() if last is None else max(clock.now(), last), initial=True) as writer:
            writer.commit()
        log.sync()


class FileLoads:
    """The first loads of one source; `distribute` runs in one thread at a time, beside the one that captures."""

    def __init__(
        self,
        method: FilesMethod,
        taken: TakenFiles,
        log: StreamLog,
        append: Callable[[Entry], None],
        rate: int | None,
        heard: Callable[[Progress], None] | None,
    ) -> None:
        """`append` waits until an entry is in the log; of files at most `rate` bytes a second are read."""
        self.progress: Progress | None = None
        self._method = method
        self._taken = taken
        self._log = log
        self._append = append
        self._rate = rate
        self._heard = heard
        self._home = log.files_folder.parent / "loads"
        self._held: dict[str, tuple[FoundFile, str]] = {}
        self._found: Mapping[str, FirstLoad] = {}
        self._remove_leftovers()
        self._find_buckets()
        self._look()

    @property
    def found(self) -> Mapping[str, FirstLoad]:
        return self._found

    @property
    def problems(self) -> tuple[str, ...]:
        """Files that loads wait for, because they cannot be taken as they are."""
        return tuple(what for _, what in self._held.copy().values())

    def bounds(self, table: str, column: str, count: int) -> tuple[Value, ...] | None:
        """Bounds of the table's buckets, and of its ranges; chosen once, from a sample of the files."""
        state = self._taken.tables[table]
        load, settings = state.load, self._method.tables[table].settings.ranges
        if load is None or settings is None:
            return None
        kind = kind_of(self._method.tables[table].table.schema[column].dataType.simpleString())
        if kind is None:
            return None
        if load.bounds is None or load.column != column:
            if settings.bounds:
                found: tuple[Value, ...] | None = tuple(parse(kind, each) for each in settings.bounds)
            else:
                files = [each.file for each in load.files.values()]
                found = sampled_bounds(self._method.tables[table], files, column, settings.count or count)
            if found is None:
                return None
            with self._method.lock:
                load.column, load.kind, load.bounds = column, kind, found
                self._taken.save()
        return load.bounds

    def release(self, table: str) -> None:
        """The table's files are taken through the log, as if they were found now."""
        with self._method.lock:
            state = self._taken.tables[table]
            if state.load is None:
                return
            position = state.load.position
            state.taken = {path: each for path, each in state.taken.items() if each.position != position}
            self._end(table, state)
        _LOGGER.info("the first files are read whole, through the log: table=%s", table)

    def ranges_read(self, table: str) -> None:
        """All ranges are durable: the buckets are of no use any more."""
        with self._method.lock:
            self._end(table, self._taken.tables[table])

    def reading(self, table: str) -> RangeRead:
        load = self._taken.tables[table].load
        if load is None or not self._is_up(load):
            raise TransientError(f"the files of {table} are not distributed yet", hint="it goes on by itself")
        key = self._method.tables[table].table.key
        read = BucketRead(str(self._folder(table)), load.names(), load.ranges, load.column, key)
        return RangeRead(load.position, read, lambda: None)

    def distribute(self, table: str, is_stopped: Callable[[], bool]) -> None:
        """Distributes what is not distributed yet; returns when the table is up."""
        state = self._taken.tables[table]
        load = state.load
        if load is None or self._is_up(load):
            return
        if load.bounds is None:
            # Known to the warehouse before the source forgot what it had taken.
            said = self._method.tables[table].settings.ranges
            key = self._method.tables[table].table.key
            column = next((own for own in key if said is not None and own.casefold() == said.column.casefold()), key[0])
            if self.bounds(table, column, _COUNT) is None:
                raise TransientError(f"the files of {table} cannot be read", hint="`headgate check` tells why")
        self._require_released(table)
        run = FileDistribution(self._method, self._taken, state, load, table, self._folder(table), is_stopped)
        try:
            run.run(self._rate, self._told)
        except BrokenFile as error:
            raise self._held_by(table, error) from None
        except CopyStopped:
            raise TransientError("the load was stopped", hint="it goes on when the warehouse is opened again") from None
        finally:
            self.progress = None
        self._append(self._method.enter(table, lambda writer: self._write_up(writer, table, load)))
        state.loaded = True
        _LOGGER.info("files are distributed, ranges can be read: table=%s files=%d", table, len(load.files))
        self._look()

    # files that are not as they should be

    def _held_by(self, table: str, broken: BrokenFile) -> TransientError:
        """What to tell: the load waits until the file is another one, or gone."""
        file, problem = broken.file, broken.problem
        _LOGGER.warning("file not taken: table=%s file=%s: %s", table, file.path, problem)
        entry = Entry(table, file, 0)
        self._append(
            self._method.enter(table, lambda writer: writer.write(FILES, self._method.registered(entry, [], problem)))
        )
        self._held[table] = file, f"{file.path}: {problem}"
        return _told(self._held[table][1])

    def _require_released(self, table: str) -> None:
        if table not in self._held:
            return
        file, what = self._held[table]
        if is_as_it_was(file.path, file):
            raise _told(what)
        del self._held[table]
        _LOGGER.info("load goes on: table=%s file=%s", table, file.path)

    # what others see

    def _told(self, progress: Progress) -> None:
        self.progress = progress
        if self._heard is not None:
            self._heard(progress)

    def _look(self) -> None:
        self._found = MappingProxyType(
            {
                name: FirstLoad(state.load.position, None, state.load.bytes)
                for name, state in self._taken.tables.items()
                if state.load is not None
            }
        )

    def _is_up(self, load: TableLoad) -> bool:
        return load.up_at is not None and load.up_at <= self._log.durable

    def _write_up(self, writer: TransactionWriter, table: str, load: TableLoad) -> None:
        """The transaction that says what was taken; that it is this one is on the disk before."""
        with self._method.lock:
            load.up_at = writer.position
            self._taken.save()
        for number, each in sorted(load.files.items()):
            outcome = PartOutcome(each.rows, each.bad)
            entry = Entry(table, each.file, writer.position)
            writer.write(FILES, self._method.registered(entry, [outcome], None, number))
        shape, count = Shape("", BAD_TABLE), len(load.files)
        for name in load.names(bad=True) if not load.is_told else ():
            for rows in read_batches(self._folder(table) / name):
                ops = np.full(rows.num_rows, UPSERT, dtype=np.int8)
                writer.write(BAD, shape.events(rows.columns, ops, count))
                count += rows.num_rows

    # folders

    def _folder(self, table: str) -> Path:
        return self._home / table

    def _end(self, table: str, state: TakenTable) -> None:
        """Called with the method's lock held."""
        state.load = None
        self._taken.save()
        shutil.rmtree(self._folder(table), ignore_errors=True)
        self._look()

    def _remove_leftovers(self) -> None:
        """What a process left that was killed."""
        for folder in self._home.iterdir() if self._home.exists() else ():
            state = self._taken.tables.get(folder.name)
            if state is None or state.load is None:
                shutil.rmtree(folder, ignore_errors=True)
                continue
            named = {each.name for each in state.load.buckets}
            for path in folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                elif path.name not in named:
                    path.unlink(missing_ok=True)

    def _find_buckets(self) -> None:
        """Has files distributed again whose buckets are gone: a backup has none."""
        for name, state in self._taken.tables.items():
            if (load := state.load) is None:
                continue
            folder = self._folder(name)
            there = {path.name for path in folder.iterdir()} if folder.exists() else set()
            if gone := {each.number for each in load.buckets if each.name not in there}:
                _LOGGER.warning(
                    "files are distributed again, their buckets are gone: table=%s files=%d", name, len(gone)
                )
                load.lose(gone)
                self._taken.save()


def _told(what: str) -> TransientError:
    remedy = "correct or remove the file, or let it be taken without its broken rows: bad_rows: quarantine"
    return TransientError(what, hint=f"{remedy}; the load then goes on by itself")
