"""What went wrong with storage, as headgate's errors.

Disk full shows as an `OSError`, as text from delta-rs, or deep inside a Spark failure; a damaged data file shows as
one of a dozen messages. Whatever cannot be told apart here is raised as it came.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headgate.errors import CorruptWarehouse, HeadgateError, StorageFull
from headgate.warehouse.spark_errors import condition_of
from headgate.warehouse.storage import Folder

FULL_TEXTS = ("No space left on device", "os error 28", "Disk quota exceeded")
DAMAGED_CONDITIONS = ("FAILED_READ_FILE", "PATH_NOT_FOUND")
DAMAGED_TEXTS = (
    "is not a Parquet file",
    "ChecksumException",
    "could not verify page integrity",
    "Could not read footer",
    "FileNotFoundException",
)
SPARK_FILE = re.compile(r"(?:file:|[a-z0-9]+://)/*(/[^\s,;'\"]+?\.parquet)")
_FOLDERS = re.compile(r"/_headgate/(?P<kind>replicas|states|inputs|arrangements)/(?P<rest>.+)")
_GENERATION = re.compile(r"[.-]\d+$")


def is_full(error: BaseException) -> bool:
    """Whether a disk or quota was full, anywhere in the error's chain."""
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, OSError) and current.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if any(text in str(current) for text in FULL_TEXTS):
            return True
        current = current.__cause__ or current.__context__
    return False


def storage_full(folder: Folder, needed: int | None) -> StorageFull:
    free = folder.free_bytes()
    want = f"about {format_size(needed)} needed" if needed is not None else "more space needed"
    return StorageFull(
        f"no space left in {folder.address}: {want}, {format_size(free)} free", hint="free space there and try again"
    )


def damaged(name: str, reason: object) -> CorruptWarehouse:
    """A file of a table that is missing or cannot be read."""
    text = str(reason).strip().splitlines()
    folder = name.rpartition("/")[0].rpartition("/")[0]
    return CorruptWarehouse(f"cannot read {name}: {text[0] if text else 'damaged'}", hint=repair_hint(folder))


def repair_hint(folder: str) -> str:
    """What makes the table in a folder whole again."""
    found = _FOLDERS.search(folder)
    if found is None:
        table = _GENERATION.sub("", folder.rpartition("/")[2])
    elif found["kind"] == "arrangements":
        return f"close the warehouse, remove {folder} and open it again: this copy is made again from its table"
    elif found["kind"] == "replicas":
        table = ".".join(_GENERATION.sub("", part) for part in found["rest"].split("/")[:2])
    else:
        table = found["rest"].split("/")[0].split(".")[0]
    return (
        f"`headgate refresh --table {table}` makes the table again, or says why only a backup can: `headgate restore`"
    )


def translate(error: BaseException, folder: Folder, needed: int | None = None) -> HeadgateError | None:
    """The error of storage behind `error`, also when it happened in a Spark task; None if it is something else."""
    if isinstance(error, HeadgateError):
        return error
    if is_full(error):
        return storage_full(folder, needed)
    if isinstance(error, PySparkException | Py4JJavaError):
        text = str(error)
        condition = condition_of(error)
        if (condition is not None and condition.startswith(DAMAGED_CONDITIONS)) or any(
            mark in text for mark in DAMAGED_TEXTS
        ):
            found = SPARK_FILE.search(text)
            return damaged(found.group(1) if found else folder.address, _spark_reason(text))
    return None


@contextmanager
def storage_problems(folder: Folder, needed: int | None = None) -> Iterator[None]:
    """Raises headgate's errors in place of the libraries'."""
    try:
        yield
    except (OSError, RuntimeError, DeltaError, pa.ArrowException, PySparkException, Py4JJavaError) as error:
        known = translate(error, folder, needed)
        if known is None or known is error:
            raise
        raise known from error


def _spark_reason(text: str) -> str:
    for mark in DAMAGED_TEXTS:
        for line in text.splitlines():
            if mark in line:
                return line.strip()[:300]
    return text.splitlines()[0][:300]


def format_size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count} bytes"
