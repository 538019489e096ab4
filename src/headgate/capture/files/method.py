"""Capture of files: what is new is found, read, and appended to the stream log, a transaction per file.

    look      lists the folders; every new file gets a position
    publish   small files are read here, large ones by Spark's executors, into files of the log
              ──► which files, at which positions, is written (`taken`) ──► the transactions are appended

A file that is broken is a transaction too: of the table `files`, which says what is wrong, so that a job comes to it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from headgate.capture.events import to_micros
from headgate.capture.files.discovery import Discovery, Entry
from headgate.capture.files.layout import Unreadable
from headgate.capture.files.listing import FoundFile
from headgate.capture.files.part import FilePart, PartOutcome, read_part
from headgate.capture.files.rows import FileShape
from headgate.capture.files.tables import BAD, FILES, FILES_TABLE, FilesTable
from headgate.capture.files.taken import TakenFile, TakenFiles
from headgate.capture.frames import SideFile
from headgate.capture.gears.method import Task
from headgate.capture.gears.throttle import Throttle
from headgate.capture.reading import stamp_micros
from headgate.capture.shape import Shape
from headgate.capture.source import Progress, Sample, TableProblem
from headgate.capture.streamlog import StreamLog
from headgate.capture.writing import TransactionWriter
from headgate.clock import Clock
from headgate.delta.events import OBSERVED, TRUNCATE, UPSERT
from headgate.errors import DefiniteError

RunParts = Callable[[Sequence[FilePart], str], list[PartOutcome]]
"""Reads parts somewhere, several at a time, into files of a folder; gives what became of each."""


def here(parts: Sequence[FilePart], folder: str) -> list[PartOutcome]:
    """Reads them one after the other in this process."""
    return [read_part(part, folder) for part in parts]


SMALL_BYTES = 8 << 20
"""Files up to this size are read in this process ..."""
SMALL_COMPRESSED_BYTES = 1 << 20
"""... and compressed ones up to this."""
_CHUNK_BYTES = 64 << 20
_CHUNK_LARGE_BYTES = 4 << 30
_CHUNK_FILES = 512
_THREADS = 4
_REPORTED_BYTES = 64 << 20
_FILE_BITS = 40
"""Of a sequence, where several files are one transaction."""
_LOGGER = logging.getLogger(__name__)


class FilesMethod:
    """Captures the files of one source; implements `Method`. Ranges are files, positions those of the stream log."""

    def __init__(
        self,
        name: str,
        tables: Mapping[str, FilesTable],
        taken: TakenFiles,
        log: StreamLog,
        clock: Clock,
        *,
        settle: timedelta,
        remember: timedelta,
        run: RunParts,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.tables = dict(tables)
        self.throttle = Throttle()
        self._name = name
        self._taken = taken
        self._log = log
        self._clock = clock
        self.run_parts = run
        self._progress = progress
        self.lock = threading.Lock()
        """Held by whoever looks at, or changes, which files are known."""
        self._discovery = Discovery(self.tables, taken, log.end, settle, remember)
        self._captured = self._published = log.end
        self._files = 0
        self._register = Shape(name, FILES_TABLE)

    # what the agent asks for

    @property
    def captured(self) -> int:
        return self._captured

    @property
    def problems(self) -> dict[str, TableProblem]:
        with self.lock:
            return {table: problem for table, (_, problem) in self._discovery.held.items()}

    def sample(self) -> Sample:
        at = self._clock.now()
        with self.lock:
            return Sample(at, self._discovery.look(), timedelta(0), timedelta(0))

    def plan(self, number: int) -> Task[tuple[Entry, ...]] | None:
        with self.lock:
            self._discovery.look()
            entries = self._discovery.take_waiting()
        return Task(number, entries[-1].end, tuple(entries)) if entries else None

    def read(self, task: Task[tuple[Entry, ...]]) -> tuple[Entry, ...]:
        """Nothing yet: files are appended in order, and as many are read as fit into memory."""
        return task.range

    def publish(self, batch: tuple[Entry, ...]) -> None:
        entries = [entry for entry in batch if entry.position > self._published]
        report = _BatchReport(sum(0 if each.file is None else each.file.size for each in entries), self._progress)
        for chunk in self._chunks(entries):
            self._publish(chunk, report)
            self._published = chunk[-1].end
        report.done()
        self._captured = batch[-1].end
        with self.lock:
            if loading := [each for each in self._taken.tables.values() if not each.loaded and each.load is None]:
                for state in loading:
                    state.loaded = True
                self._taken.save()

    def throughput(self) -> int:
        return self._files

    def close(self) -> None:
        """Nothing is connected."""

    def read_whole(self, tables: Collection[str]) -> list[Entry]:
        """Has tables read again, each as one transaction; they are done when the entries are."""
        for name in tables:
            if not self.tables[name].table.key:
                raise DefiniteError(
                    f"{self._name}.{name} has no key, so reading its files again would add their rows again",
                    hint="declare a key under another table name; or `headgate reset` begins anew with the files that are there",
                )
        with self.lock:
            self._discovery.look()
            return [self._discovery.enter_whole(name) for name in tables]

    def enter(self, table: str, write: Callable[[TransactionWriter], None]) -> Entry:
        """Has a transaction appended that somebody writes; it is there when the entry is done."""
        with self.lock:
            return self._discovery.enter_writing(table, write)

    def find_taken(self, table: str, file: FoundFile) -> str | None:
        """Where a file is now that counts as taken."""
        with self.lock:
            self._discovery.look()
            known = self._taken.tables[table].taken.items()
            return next((path for path, each in known if each.file.identity == file.identity), None)

    # taking

    def _publish(self, chunk: Sequence[Entry], report: _BatchReport) -> None:
        for entry in chunk:
            if entry.file is None:
                self._take_whole(entry) if entry.write is None else self._append_written(entry, entry.write)
                return
        at = self._commit_time()
        outcomes = self._read(chunk, at)
        pending: dict[str, list[TakenFile]] = {}
        append: list[tuple[Entry, str | None, list[PartOutcome]]] = []
        for entry in chunk:
            assert entry.file is not None
            found = outcomes.get(entry, [])
            if entry.table in self._discovery.held:
                # Behind a file that stops the table: found again when it goes on.
                self._leave(entry, found)
                continue
            problem = entry.problem or next((each.problem for each in found if each.problem), None)
            if problem is None and any(each.changed for each in found):
                _LOGGER.info("file changed or went while it was read: table=%s file=%s", entry.table, entry.file.path)
                self._leave(entry, found)
                continue
            if problem is not None:
                self.hold(entry, problem)
                self._remove(found)
            else:
                pending.setdefault(entry.table, []).append(TakenFile(entry.file, entry.position))
            append.append((entry, problem, found))
        self._append(append, pending, at)
        report.took(
            sum(each.rows for found in outcomes.values() for each in found),
            sum(0 if each.file is None else each.file.size for each in chunk),
            chunk[-1].table,
        )

    def _append(
        self,
        append: list[tuple[Entry, str | None, list[PartOutcome]]],
        pending: dict[str, list[TakenFile]],
        at: datetime,
    ) -> None:
        if not append:
            return
        with self.lock:
            self._taken.save(pending)
        for entry, problem, outcomes in append:
            with self._log.begin(entry.position, at, initial=entry.initial) as writer:
                if problem is None:
                    self._write(writer, entry.table, outcomes)
                writer.write(FILES, self.registered(entry, outcomes, problem))
                writer.commit()
        self._log.sync()
        with self.lock:
            for table, files in pending.items():
                state = self._taken.tables[table]
                state.taken |= {each.file.path: each for each in files}
            for entry, _, _ in append:
                self._discovery.done(entry)
        self._files += len(append)

    def _append_written(self, entry: Entry, write: Callable[[TransactionWriter], None]) -> None:
        with self._log.begin(entry.position, self._commit_time()) as writer:
            write(writer)
            writer.commit()
        self._log.sync()
        with self.lock:
            self._discovery.done(entry)

    def _take_whole(self, entry: Entry) -> None:
        """A whole table as one transaction: emptied, then the rows of its files, of which only differences remain."""
        table = self.tables[entry.table]
        files = table.in_order(list(table.find().values()))
        if table.settings.mode == "snapshot":
            files = files[-1:]
        at = self._commit_time()
        try:
            with self._log.begin(entry.position, at) as writer:
                self._truncate(writer, table)
                for number, file in enumerate(files):
                    whole, sequence = replace(entry, file=file), (number + 1) << _FILE_BITS
                    outcomes = self._read([whole], at, sequence)[whole]
                    if problem := next((each.problem for each in outcomes if each.problem), None):
                        raise DefiniteError(
                            f"{file.path}: {problem}", hint="correct or remove the file, then try again"
                        )
                    if any(each.changed for each in outcomes):
                        raise DefiniteError(f"{file.path} changed while it was read", hint="try again")
                    # Its broken rows were told of when it was first taken.
                    self._write(writer, entry.table, [replace(each, bad_events=None) for each in outcomes])
                    writer.write(FILES, self.registered(whole, outcomes, None, sequence + 1))
                with self.lock:
                    self._taken.save({entry.table: [TakenFile(file, entry.position) for file in files]})
                writer.commit()
            self._log.sync()
        except DefiniteError as error:
            entry.done.set_exception(error)
            return
        with self.lock:
            self._taken.tables[entry.table].taken |= {file.path: TakenFile(file, entry.position) for file in files}
            self._discovery.done(entry)

    def _commit_time(self) -> datetime:
        last = self._log.end_commit_at
        return self._clock.now() if last is None else max(self._clock.now(), last)

    def _leave(self, entry: Entry, outcomes: Sequence[PartOutcome]) -> None:
        """A file that is not taken now; when it is seen again, it is new."""
        self._remove(outcomes)
        with self.lock:
            self._discovery.done(entry)

    def _remove(self, outcomes: Sequence[PartOutcome]) -> None:
        """Events that nobody wants."""
        for outcome in outcomes:
            for _, file in outcome.files:
                (self._log.files_folder / file.name).unlink(missing_ok=True)

    def hold(self, entry: Entry, problem: str) -> None:
        """Stops a table because of a file."""
        assert entry.file is not None
        quarantine = "" if entry.problem else ", or let it be taken without its broken rows: bad_rows: quarantine"
        remedy = (
            "put it back as it was, or remove it, and give new rows in a new file"
            if entry.problem
            else f"correct or remove the file{quarantine}"
        )
        _LOGGER.warning(
            "file not taken: source=%s table=%s file=%s: %s", self._name, entry.table, entry.file.path, problem
        )
        with self.lock:
            self._discovery.hold(entry, f"{entry.file.path}: {problem}", f"{remedy}; the table then goes on by itself")

    # reading

    def _read(self, chunk: Sequence[Entry], at: datetime, whole: int = 0) -> dict[Entry, list[PartOutcome]]:
        """What became of each file's parts; `whole` is the sequence that they begin with, if they are observed."""
        small: list[tuple[Entry, FilePart]] = []
        large: list[tuple[Entry, FilePart]] = []
        outcomes: dict[Entry, list[PartOutcome]] = {entry: [] for entry in chunk}
        for entry in chunk:
            assert entry.file is not None
            if not whole and (entry.problem is not None or entry.table in self._discovery.held):
                continue
            try:
                parts = self._parts(entry, entry.file, at, whole)
            except (Unreadable, DefiniteError) as error:
                outcomes[entry].append(PartOutcome(problem=str(error)))
            except FileNotFoundError:
                outcomes[entry].append(PartOutcome(changed=True))
            except OSError as error:
                outcomes[entry].append(PartOutcome(problem=error.strerror or str(error)))
            else:
                (small if self._is_small(entry) else large).extend((entry, part) for part in parts)
        if large:
            done = self.run_parts([part for _, part in large], str(self._log.files_folder))
            for (entry, _), outcome in zip(large, done, strict=True):
                outcomes[entry].append(outcome)
        if small:
            with ThreadPoolExecutor(_THREADS, "read files") as threads:
                for (entry, _), outcome in zip(
                    small, threads.map(lambda each: read_part(each[1], None), small), strict=True
                ):
                    outcomes[entry].append(outcome)
        return outcomes

    def _parts(self, entry: Entry, file: FoundFile, at: datetime, whole: int) -> list[FilePart]:
        table = self.tables[entry.table]
        if file.size == 0:
            if table.settings.mode == "snapshot":
                raise Unreadable("it is empty; a snapshot without rows has at least a header")
            return []
        shape = self.shape_of(entry.table, file.path)
        table = self.tables[entry.table]
        if not shape.names:
            return []
        observed = bool(whole) or table.settings.mode == "snapshot"
        stamp = stamp_micros(to_micros(at), entry.initial)
        return [
            FilePart(
                table=entry.table,
                path=file.path,
                size=file.size,
                modified=file.modified,
                first=first,
                end=end,
                sequence=whole + number + 2,
                layout=table.layout,
                shape=shape,
                op=OBSERVED if observed else UPSERT,
                quarantine=table.settings.bad_rows == "quarantine",
                position=entry.position,
                commit_at=stamp,
            )
            for first, end, number in table.layout.cut(file.path, file.size)
        ]

    def shape_of(self, name: str, path: str) -> FileShape:
        """The columns of a file; the table gets those that it has more. Raises `Unreadable` when the file lacks what it needs."""
        table = self.tables[name]
        wider = table.widened_by(path)
        if wider is not table:
            with self.lock:
                self.tables[name] = table = wider
                state = self._taken.tables[name]
                state.schema, state.names = wider.table.schema.jsonValue(), dict(wider.names)
        return table.shape_of(path)

    def _is_small(self, entry: Entry) -> bool:
        assert entry.file is not None
        layout = self.tables[entry.table].layout
        is_packed = layout.format == "parquet" or layout.compression_of(entry.file.path) is not None
        return entry.file.size <= (SMALL_COMPRESSED_BYTES if is_packed else SMALL_BYTES)

    def _chunks(self, entries: Sequence[Entry]) -> Iterator[list[Entry]]:
        """Entries that are read together, in bounded memory; a whole table is alone."""
        chunk: list[Entry] = []
        small = large = 0
        for entry in entries:
            size = 0 if entry.file is None else entry.file.size
            is_full = small > _CHUNK_BYTES or large > _CHUNK_LARGE_BYTES or len(chunk) >= _CHUNK_FILES
            if chunk and (is_full or entry.file is None or chunk[-1].file is None):
                yield chunk
                chunk, small, large = [], 0, 0
            chunk.append(entry)
            if entry.file is not None and self._is_small(entry):
                small += size
            else:
                large += size
        if chunk:
            yield chunk

    # writing

    def _write(self, writer: TransactionWriter, table: str, outcomes: Sequence[PartOutcome]) -> None:
        if self.tables[table].settings.mode == "snapshot" and not writer.has_rows(table):
            self._truncate(writer, self.tables[table])
        for outcome in outcomes:
            if outcome.events is not None:
                writer.write(table, outcome.events)
            if outcome.bad_events is not None:
                writer.write(BAD, outcome.bad_events)
            for owner, file in outcome.files:
                writer.add_file(owner, SideFile(file.name, file.rows, file.bytes))

    def _truncate(self, writer: TransactionWriter, table: FilesTable) -> None:
        checked = Shape(self._name, table.table)
        nulls = [pa.nulls(1, field.type) for field in checked.fields]
        writer.write(table.name, checked.events(nulls, np.array([TRUNCATE], dtype=np.int8), 0))

    def registered(
        self, entry: Entry, outcomes: Sequence[PartOutcome], problem: str | None, sequence: int = 1
    ) -> pa.RecordBatch:
        """The row of the table `files` about a file."""
        file = entry.file
        assert file is not None
        row = {
            "path": file.path,
            "table": entry.table,
            "bytes": file.size,
            "modified_at": _at(file.modified),
            "taken_at": self._clock.now() if problem is None else None,
            "rows": sum(each.rows for each in outcomes) if problem is None else None,
            "bad_rows": sum(each.bad for each in outcomes) if problem is None else None,
            "problem": problem,
        }
        return self._register.build([row], [UPSERT], [()], [sequence])


def _at(nanoseconds: int) -> datetime:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=rest // 1000)


class _BatchReport:
    """How far a large batch of files is, for whoever wants to know."""

    def __init__(self, size: int, progress: Callable[[Progress], None] | None) -> None:
        self._progress = progress if size > _REPORTED_BYTES else None
        self._size = size
        self._read = self._rows = 0
        self._began = time.monotonic()

    def took(self, rows: int, size: int, table: str) -> None:
        self._rows += rows
        self._read += size
        if self._progress is not None:
            seconds = time.monotonic() - self._began
            estimated = self._rows * self._size // max(self._read, 1)
            left = timedelta(seconds=seconds * (self._size - self._read) / max(self._read, 1))
            self._progress(Progress(self._rows, estimated, left, table=table, rate=self._rows / max(seconds, 0.001)))

    def done(self) -> None:
        if self._progress is not None:
            rate = self._rows / max(time.monotonic() - self._began, 0.001)
            self._progress(Progress(self._rows, self._rows, timedelta(0), is_done=True, rate=rate))
