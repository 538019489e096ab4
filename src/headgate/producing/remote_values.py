"""What messages hold besides plain values: errors, tables, instants, references, rows as files, and the server's address."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from headgate import errors
from headgate.capture.block_writer import Put
from headgate.capture.events import from_micros, to_micros
from headgate.capture.frames import Block
from headgate.capture.source import SourceTable
from headgate.errors import DefiniteError, EnvironmentProblem, HeadgateError, Location


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, and what shows who may talk to it."""

    socket: str
    key: str = field(repr=False)
    """The secret of the server, or the token of a role that can produce."""

    def write(self, file: Path) -> None:
        """Puts the file in place whole; only its owner can read it."""
        fresh = file.with_name(f"{file.name}.{os.getpid()}.new")
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as content:
            json.dump(asdict(self), content)
        fresh.replace(file)

    @staticmethod
    def read(file: Path) -> Address:
        try:
            return Address(**json.loads(file.read_text()))
        except FileNotFoundError:
            raise closed_warehouse(file) from None
        except OSError as error:
            raise EnvironmentProblem(
                f"the address of the warehouse cannot be read: {error.strerror}",
                where=Location(str(file)),
                hint="run the producer as the user who runs the warehouse",
            ) from error
        except (ValueError, TypeError):
            raise EnvironmentProblem(
                "this file does not hold the address of a warehouse", where=Location(str(file)), hint="give another one"
            ) from None


def closed_warehouse(place: Path | str) -> EnvironmentProblem:
    return EnvironmentProblem(
        "no open warehouse takes producers here", where=Location(str(place)), hint="open it first, then connect"
    )


def error_to_json(error: Exception) -> dict[str, Any]:
    """An error by the name of its nearest class that the other side has, too."""
    if not isinstance(error, HeadgateError):
        error = DefiniteError(f"the warehouse failed: {type(error).__name__}: {error}", hint="its log says where")
    known = next(kind for kind in type(error).__mro__ if getattr(errors, kind.__name__, None) is kind)
    where = None if error.where is None else [error.where.file, error.where.line]
    return {"class": known.__name__, "what": error.what, "where": where, "hint": error.advice}


def error_from_json(body: dict[str, Any]) -> HeadgateError:
    kind = getattr(errors, body["class"], None)
    if not (isinstance(kind, type) and issubclass(kind, HeadgateError)):
        kind = DefiniteError
    return kind(body["what"], where=None if body["where"] is None else Location(*body["where"]), hint=body["hint"])


def table_to_json(table: SourceTable) -> dict[str, Any]:
    return {"name": table.name, "schema": table.schema.jsonValue(), "key": list(table.key)}


def table_from_json(body: dict[str, Any]) -> SourceTable:
    return SourceTable(body["name"], StructType.fromJson(body["schema"]), tuple(body["key"]))


def tables_from_json(body: Iterable[dict[str, Any]]) -> dict[str, SourceTable]:
    return {table["name"]: table_from_json(table) for table in body}


def instant_to_json(at: datetime | None) -> int | None:
    return None if at is None else to_micros(at)


def instant_from_json(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def puts_to_json(puts: Iterable[Put]) -> list[list[Any]]:
    return [[table, *block] for table, block in puts]


def puts_from_json(body: Iterable[list[Any]], segments: Collection[str]) -> list[Put]:
    """References to blocks, which lie in the segments that the producer was given."""
    puts = []
    for table, segment, *numbers in body:
        block = Block(segment, *numbers)
        if segment not in segments or min(block.offset, block.length, block.rows) < 0:
            raise DefiniteError("a commit refers to rows that this producer did not write", hint="connect again")
        puts.append((str(table), block))
    return puts


@contextmanager
def rows_to_file(rows: pa.Table) -> Iterator[int]:
    """Rows in an open file without a name, from its start."""
    with tempfile.TemporaryFile() as file:
        with pa.ipc.new_stream(file, rows.schema) as writer:
            writer.write_table(rows)
        file.seek(0)
        yield file.fileno()


def rows_from_file(descriptor: int) -> pa.Table:
    """The rows of such a file, which is closed."""
    with os.fdopen(descriptor, "rb") as file, pa.ipc.open_stream(file) as reader:
        return reader.read_all()
