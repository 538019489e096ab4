"""The Delta log as files: their names, and which of them is damaged when the table cannot be read."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.errors import CorruptWarehouse
from headgate.warehouse.problems import damaged, repair_hint
from headgate.warehouse.storage import Folder

LOG = "_delta_log"
ENTRY = re.compile(r"^(\d{20})\.")


def log_name(version: int) -> str:
    return f"{version:020d}.json"


def versions_in(folder: Folder) -> list[tuple[int, str]]:
    """(version, file name) of everything in the log, oldest first."""
    found = []
    for file in folder.files(LOG):
        name = file.name.removeprefix(f"{LOG}/")
        matched = ENTRY.match(name)
        if matched:
            found.append((int(matched.group(1)), name))
    return sorted(found)


def find_damage(folder: Folder, error: BaseException, doing: str | None = None) -> CorruptWarehouse:
    """The error that names the damaged or missing log file behind a failure to read a table."""
    entries = versions_in(folder)
    for _, name in entries:
        reason = _reason(folder, f"{LOG}/{name}")
        if reason is not None:
            return damaged(f"{folder.address}/{LOG}/{name}", reason)
    commits = [version for version, name in entries if name.endswith(".json") and name == log_name(version)]
    checkpoints = [version for version, name in entries if ".checkpoint" in name]
    first = max(checkpoints, default=-1)
    present = [version for version in commits if version > first]
    for expected, version in enumerate(present, start=first + 1):
        if version != expected:
            return damaged(f"{folder.address}/{LOG}/{log_name(expected)}", "the file is missing")
    text = str(error).strip().splitlines()
    subject = doing or f"the table in {folder.address}"
    return CorruptWarehouse(
        f"cannot read {subject}: {text[0] if text else type(error).__name__}", hint=repair_hint(folder.address)
    )


def _reason(folder: Folder, name: str) -> str | None:
    try:
        if name.endswith(".json"):
            lines = folder.read(name).decode().splitlines()
            if not lines:
                return "the file is empty"
            for line in lines:
                json.loads(line)
        elif name.endswith(".parquet"):
            pq.read_metadata(folder.file(name), filesystem=folder.filesystem)
    except (ValueError, OSError, pa.ArrowException) as problem:
        return str(problem) or type(problem).__name__
    return None
