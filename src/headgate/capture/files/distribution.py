"""Distributes the files of a first load to buckets: the next chunk is copied while the one before is distributed.

What is distributed is on the disk, and noted, chunk by chunk: whoever goes on after a crash begins behind it.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from headgate.capture.durable import full_disk_is_named, sync_folder
from headgate.capture.files.buckets import Buckets
from headgate.capture.files.chunks import Took, choose_chunk
from headgate.capture.files.copying import Copier, FileChanged, Piece
from headgate.capture.files.first_load import BucketFile, LoadFile, TableLoad
from headgate.capture.files.layout import PART_BYTES, Unreadable
from headgate.capture.files.listing import FoundFile
from headgate.capture.files.method import FilesMethod
from headgate.capture.files.part import FilePart, PartOutcome
from headgate.capture.files.tables import BAD
from headgate.capture.files.taken import TakenFiles, TakenTable
from headgate.capture.source import Progress
from headgate.delta.events import UPSERT
from headgate.errors import DefiniteError

_LOGGER = logging.getLogger(__name__)
_LEAST_PART_BYTES = 2 << 20
_PARTS = 4
"""Tasks that share a chunk, if it is not too small for that."""


class BrokenFile(Exception):
    """A file of a load that cannot be taken."""

    def __init__(self, file: FoundFile, problem: str) -> None:
        self.file = file
        self.problem = problem
        super().__init__(problem)


class FileDistribution:
    """One try to distribute all that is left of a load."""

    def __init__(
        self,
        method: FilesMethod,
        taken: TakenFiles,
        state: TakenTable,
        load: TableLoad,
        table: str,
        folder: Path,
        is_stopped: Callable[[], bool],
    ) -> None:
        self._method = method
        self._taken = taken
        self._state = state
        self._load = load
        self._table = table
        self._folder = folder
        self._is_stopped = is_stopped
        self._copied: list[Took] = []
        self._distributed: list[Took] = []
        self._places = {number: each.upto for number, each in load.files.items()}
        """How far files are copied."""

    def run(self, rate: int | None, heard: Callable[[Progress], None]) -> None:
        copies = self._folder / "copies"
        with full_disk_is_named(self._folder):
            shutil.rmtree(copies, ignore_errors=True)
            copies.mkdir(parents=True)
            copier = Copier(copies, rate, self._is_stopped)
            # The latest files first: they are asked for most.
            left = [number for number, each in sorted(self._load.files.items(), reverse=True) if not each.is_done]
            chunks = self._chunks(copier, left)
            began = time.monotonic()
            with ThreadPoolExecutor(1, "copy files") as threads:
                ahead: Future[list[Piece]] | None = threads.submit(next, chunks, [])
                while ahead is not None and (pieces := ahead.result()):
                    ahead = threads.submit(next, chunks, [])
                    try:
                        self._distribute(pieces)
                    except BaseException:
                        self._is_stopped = lambda: True
                        copier.is_stopped = self._is_stopped
                        with suppress(Exception):
                            ahead.result()
                        raise
                    heard(self._how_far(time.monotonic() - began))
            shutil.rmtree(copies, ignore_errors=True)

    def _chunks(self, copier: Copier, left: list[int]) -> Iterator[list[Piece]]:
        """Pieces of files that are copied together, from the generator's own thread."""
        while left:
            size = choose_chunk(self._copied, self._distributed)
            pieces: list[Piece] = []
            began, held = time.monotonic(), 0
            while left and held < size:
                piece = self._piece(copier, left[0], size - held)
                if piece is not None:
                    pieces.append(piece)
                    held += piece.bytes
                    self._places[piece.number] = piece.end
                if piece is None or piece.is_last:
                    left.pop(0)
            self._copied.append((held, time.monotonic() - began))
            if pieces:
                yield pieces

    def _piece(self, copier: Copier, number: int, room: int) -> Piece | None:
        """The next piece of a file; None where the file is no part of the load any more."""
        each, layout = self._load.files[number], self._method.tables[self._table].layout
        for path in (each.file.path, None):
            # One that was renamed is found where it is now.
            path = self._method.find_taken(self._table, each.file) if path is None else path
            if path is None:
                break
            try:
                return copier.piece(number, path, each.file, layout, self._places[number], room)
            except FileChanged:
                continue
        _LOGGER.info("file changed or went before it was read: table=%s file=%s", self._table, each.file.path)
        with self._method.lock:
            self._load.drop(number)
            known = self._state.taken.get(each.file.path)
            if known is not None and known.position == self._load.position:
                # What is there now, or comes back, is a new file.
                del self._state.taken[each.file.path]
            self._taken.save()
        return None

    def _distribute(self, pieces: Sequence[Piece]) -> None:
        """Distributes a chunk and makes that durable."""
        began = time.monotonic()
        parts: list[tuple[Piece, FilePart]] = []
        problem: tuple[Piece, str] | None = None
        size = sum(piece.bytes for piece in pieces)
        for piece in pieces:
            try:
                parts += [(piece, part) for part in self._parts(piece, size)]
            except (Unreadable, DefiniteError) as error:
                problem = problem or (piece, str(error))
        done = self._method.run_parts([part for _, part in parts], str(self._folder)) if parts else []
        outcomes: dict[int, list[tuple[FilePart, PartOutcome]]] = {piece.number: [] for piece in pieces}
        for (piece, part), outcome in zip(parts, done, strict=True):
            outcomes[piece.number].append((part, outcome))
            if outcome.problem is not None:
                problem = problem or (piece, outcome.problem)
        sync_folder(self._folder)
        with self._method.lock:
            for piece in pieces:
                # A file that was dropped meanwhile has no part in it.
                if (each := self._load.files.get(piece.number)) is not None and (
                    problem is None or problem[0].number != piece.number
                ):
                    self._note(each, piece, outcomes[piece.number])
            self._taken.save()
        for piece in pieces:
            if piece.is_last:
                piece.copy.unlink(missing_ok=True)
        self._distributed.append((size, time.monotonic() - began))
        if problem is not None:
            raise BrokenFile(problem[0].file, problem[1])

    def _note(self, each: LoadFile, piece: Piece, outcomes: Sequence[tuple[FilePart, PartOutcome]]) -> None:
        for part, outcome in outcomes:
            each.rows += outcome.rows
            each.bad += outcome.bad
            self._load.buckets += [
                BucketFile(piece.number, part.first, place, file.name, is_bad=table == BAD)
                for place, (table, file) in enumerate(outcome.files)
            ]
        each.upto, each.is_done = piece.end, piece.is_last

    def _parts(self, piece: Piece, size: int) -> list[FilePart]:
        """What tasks read of a piece, of a chunk of so many bytes."""
        if piece.file.size == 0:
            return []
        path = str(piece.copy)
        shape = self._method.shape_of(self._table, path)
        table, load = self._method.tables[self._table], self._load
        if not shape.names:
            return []
        if table.layout.can_be_cut(path):
            each = min(PART_BYTES, max(_LEAST_PART_BYTES, -(-size // _PARTS)))
            firsts = range(piece.first, piece.end, each)
            cuts: list[tuple[int, int | None]] = [(first, min(first + each, piece.end)) for first in firsts]
        else:
            cuts = [(first, end) for first, end, _ in table.layout.cut(path, piece.file.size)]
        return [
            FilePart(
                table=self._table,
                path=piece.file.path,
                size=piece.file.size,
                modified=piece.file.modified,
                first=first,
                end=end,
                sequence=0,
                layout=table.layout,
                shape=shape,
                op=UPSERT,
                quarantine=table.settings.bad_rows == "quarantine",
                position=load.position,
                commit_at=0,
                buckets=Buckets(load.column, load.bounds or ()),
                copied_to=path,
            )
            for first, end in cuts
        ]

    def _how_far(self, seconds: float) -> Progress:
        with self._method.lock:
            files = list(self._load.files.values())
        rows, whole = sum(each.rows for each in files), self._load.bytes
        there, now = sum(each.upto for each in files), sum(size for size, _ in self._distributed)
        left = timedelta(seconds=seconds * (whole - there) / max(now, 1))
        estimated = rows * whole // max(there, 1)
        return Progress(rows, max(estimated, rows), left, table=self._table, rate=rows / max(seconds, 0.001))
