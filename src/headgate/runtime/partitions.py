"""An answer's rows on their way from Spark: Arrow batches of bounded size, of which neither Spark nor this process holds many.

    task      rows ─► batches ─► few bytes: the task's result          (PartitionWriter.java)
                              └► more: a file of the answer's folder
    driver    batch after batch, from results and files in the order of the partitions

The executors see the same storage as the driver.
"""

from __future__ import annotations

import io
import shutil
import struct
import tempfile
import threading
import weakref
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark import SparkContext
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.util import _load_from_socket

UNLIMITED = (1 << 63) - 1
INLINE_BYTES = 64 << 10
"""What a partition has up to this size comes with the task's result."""

_SOURCE = Path(__file__).parent / "java" / "PartitionWriter.java"
_CLASS = "headgate.PartitionWriter"
_HEAD = struct.Struct(">q??")
_LENGTH = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """How much of an answer is read."""

    rows: int = UNLIMITED
    """Partitions end once they have so many; the answer may have more, since there are several."""
    bytes: int = UNLIMITED
    """In Arrow's form. An answer that has more is cut short."""


class Batches:
    """An answer's rows outside of Spark; its files are deleted when nobody holds it any more."""

    def __init__(
        self, schema: pa.Schema, partitions: Sequence[bytes], most_bytes: int, discard: Callable[[], None]
    ) -> None:
        self.schema = schema
        self.rows = 0
        self.is_cut = False
        """Whether rows are missing at the end, since there were more bytes than allowed."""
        self._parts: list[Path | bytes] = []
        size = 0
        for partition in partitions:
            rows, self.is_cut, is_file = _HEAD.unpack_from(partition)
            payload = partition[_HEAD.size :]
            part = Path(payload.decode()) if is_file else payload
            size += part.stat().st_size if isinstance(part, Path) else len(part)
            self.is_cut = self.is_cut or size > most_bytes
            if self.is_cut:
                break
            self.rows += rows
            self._parts.append(part)
        if any(isinstance(part, Path) for part in self._parts):
            weakref.finalize(self, discard)
        else:
            discard()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for part in self._parts:
            with part.open("rb") if isinstance(part, Path) else io.BytesIO(part) as frames:
                yield from self._decoded(frames)

    def _decoded(self, frames: BinaryIO) -> Iterator[pa.RecordBatch]:
        while head := frames.read(_LENGTH.size):
            with pa.ipc.open_stream(frames.read(*_LENGTH.unpack(head))) as stream:
                for batch in stream:
                    yield batch if batch.schema == self.schema else batch.cast(self.schema)

    def to_arrow(self) -> pa.Table:
        return pa.Table.from_batches(self, self.schema)


class PartitionReader:
    """Reads the frames of one Spark context; may be used by many threads."""

    _of_contexts: ClassVar[WeakKeyDictionary[SparkContext, PartitionReader]] = WeakKeyDictionary()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def of(cls, context: SparkContext) -> PartitionReader:
        """The context's reader: its executors are given the code of the tasks once."""
        with cls._lock:
            found = cls._of_contexts.get(context)
            if found is None:
                folder = Path(tempfile.mkdtemp(prefix="headgate-tasks-"))
                weakref.finalize(context, shutil.rmtree, folder, ignore_errors=True)
                found = cls._of_contexts[context] = cls(context, folder)
            return found

    def __init__(self, context: SparkContext, folder: Path) -> None:
        """Compiles the code of the tasks into the folder and hands it to the executors."""
        jvm, gateway = context._jvm, context._gateway
        assert jvm is not None and gateway is not None and context._jsc is not None
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(_SOURCE.read_text(encoding="utf-8"))
        archive = folder / "headgate-tasks.jar"
        with zipfile.ZipFile(archive, "w") as jar:
            for name, code in compiler.getBytecodes().items():
                jar.writestr(f"{name.replace('.', '/')}.class", bytes(code))
        context._jsc.addJar(str(archive))
        made = compiler.getClassLoader().loadClass(_CLASS).getConstructors()
        self._writer: Any = made[0].newInstance(gateway.new_array(jvm.java.lang.Object, 0))
        self._tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        self._serve = jvm.org.apache.spark.api.python.PythonRDD.collectAndServe

    def read(self, frame: DataFrame, limit: ReadLimit, folder: Path, done: Callable[[], None]) -> Batches:
        """The rows as one Spark job gives them; large partitions are put into the folder, which `done` is told of at the end."""

        def discard() -> None:
            shutil.rmtree(folder, ignore_errors=True)
            done()

        try:
            planned = frame._jdf
            writer = self._writer.limited(planned.schema(), str(folder), limit.rows, limit.bytes, INLINE_BYTES)
            rows = planned.queryExecution().toRdd().mapPartitions(writer, False, self._tag)
            with _load_from_socket(self._serve(rows), NoOpSerializer()) as partitions:
                found = list(partitions)
            return Batches(to_arrow_schema(frame.schema, timezone="UTC"), found, limit.bytes, discard)
        except BaseException:
            discard()
            raise
