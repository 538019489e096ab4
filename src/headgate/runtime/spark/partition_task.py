"""What Spark's Python workers do with a partition of an answer: few rows go into the task's result, more into a file.

    batches ─► up to INLINE_BYTES: an Arrow IPC stream in the task's result
            └► more: an Arrow IPC stream in a file of the answer's folder
            └► more than allowed: a file named CUT, and the worker ends

A worker holds one batch and INLINE_BYTES. The function is pickled whole: executors need PySpark and the same storage, not this package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

INLINE_BYTES = 64 << 10
"""What a partition has up to this size comes with the task's result."""
CUT = "cut"
"""A file of this name says that the answer has more bytes than allowed."""
_LOOK_BYTES = 8 << 20
"""Bytes between two looks at what other tasks have written."""

RESULT = "partition int, rows long, bytes long, file string, stream binary"
"""One row per partition that has any; either the file or the stream is NULL."""
_RESULT = pa.schema(
    [
        ("partition", pa.int32()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("file", pa.string()),
        ("stream", pa.binary()),
    ]
)

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def partition_task(folder: Path, most_bytes: int) -> Task:
    """For `mapInArrow`. The answer is cut when a partition, or all files in the folder together, exceed the bytes."""
    # Functions inside of this one are pickled by value.
    inline_bytes, look_bytes, cut_name, result = INLINE_BYTES, _LOOK_BYTES, CUT, _RESULT

    def private_file(name: str) -> int:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        return os.open(folder / name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)

    def cut() -> None:
        # A worker that returns early, or fails, has Spark compute the rest of the partition and throws it away.
        os.close(private_file(cut_name))
        os._exit(1)

    def written_by_all() -> int:
        with os.scandir(folder) as entries:
            return sum(entry.stat().st_size for entry in entries)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        file = f"{context.partitionId()}-{context.taskAttemptId()}"
        rows, size, look_at = 0, 0, 0
        held: list[pa.RecordBatch] = []
        writer: pa.RecordBatchStreamWriter | None = None
        with ExitStack() as open_files:
            for batch in batches:
                rows += batch.num_rows
                size += batch.nbytes
                if size > most_bytes:
                    cut()
                held.append(batch)
                if size <= inline_bytes:
                    continue
                if writer is None:
                    sink = open_files.enter_context(os.fdopen(private_file(file), "wb"))
                    writer = open_files.enter_context(pa.ipc.new_stream(sink, batch.schema))
                for each in held:
                    writer.write_batch(each)
                held.clear()
                if size >= look_at:
                    look_at = size + look_bytes
                    if written_by_all() > most_bytes or (folder / cut_name).exists():
                        cut()
        if not rows:
            return
        stream: bytes | None = None
        if writer is None:
            buffer = pa.BufferOutputStream()
            with pa.ipc.new_stream(buffer, held[0].schema) as inline:
                for each in held:
                    inline.write_batch(each)
            stream = buffer.getvalue().to_pybytes()
        found = [context.partitionId(), rows, size, None if writer is None else file, stream]
        yield pa.RecordBatch.from_arrays(
            [pa.array([value], field.type) for value, field in zip(found, result, strict=True)], schema=result
        )

    return task
