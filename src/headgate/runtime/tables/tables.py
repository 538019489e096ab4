"""All stored tables of a warehouse, by name, and where each lies.

<storage>/<flow>                                a view or dimension, readable by any Delta client
<storage>/_headgate/replicas/<source>/<table>
<storage>/_headgate/states/<flow>/<number>      running sums
<storage>/_headgate/arrangements/<table>/<columns>
<storage>/_headgate/ledger, streams, scratch
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headgate.dataflow.demands import Demand
from headgate.delta.changes import JobId
from headgate.errors import DefiniteError
from headgate.runtime.tables.batch_views import KeptViews
from headgate.runtime.tables.stored import StoredTable
from headgate.warehouse.base import FileLimits
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.storage import Folder
from headgate.warehouse.store import Step
from headgate.warehouse.versioned import VersionedTable

INTERNAL = "_headgate"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the ledger says of a table: the Delta version that holds a job."""

    version: int
    through: JobId


class Tables:
    def __init__(
        self, root: str, limits: FileLimits, small_rows: int, session: Callable[[], SparkSession], step: Step
    ) -> None:
        self._root = root.rstrip("/")
        self._limits = limits
        self._small_rows = small_rows
        self._session = session
        self._step = step
        self._tables: dict[str, StoredTable] = {}
        self.damaged: dict[str, DefiniteError] = {}
        """Tables that could not be opened or built, and those that read them, by name: nobody answers from them."""
        self._paths: dict[int, str] = {}
        self.kept = KeptViews()

    def open(self, path: str, spec: TableSpec, checkpoint: Checkpoint | None, through: JobId) -> StoredTable:
        """Opens the table at its checkpoint, or creates it empty at job `through`; `add` makes it known by name."""
        return StoredTable(self._versioned(path, spec, checkpoint, through), self._session, small_rows=self._small_rows)

    def find_damaged(self, name: str) -> DefiniteError | None:
        """Why a table cannot be read at all; in a name, case does not matter."""
        return next((error for known, error in self.damaged.items() if known.casefold() == name.casefold()), None)

    def add(self, table: StoredTable) -> None:
        """Makes the table, which is new or has other columns now, the one of its name."""
        self.kept.forget(table.name)
        self.damaged.pop(table.name, None)
        self._tables[table.name] = table

    def _versioned(self, path: str, spec: TableSpec, checkpoint: Checkpoint | None, through: JobId) -> VersionedTable:
        found = VersionedTable.open(
            f"{self._root}/{path}",
            spec,
            version=checkpoint.version if checkpoint else None,
            through=checkpoint.through if checkpoint else through,
            limits=self._limits,
            step=self._step,
        )
        self._paths[id(found)] = path
        return found

    def remove(self, name: str) -> None:
        self.kept.forget(name)
        self._tables.pop(name, None)

    def folder(self, path: str) -> Folder:
        """Where a table of that path lies."""
        return Folder.at(f"{self._root}/{path}")

    def path(self, table: VersionedTable) -> str:
        return self._paths[id(table)]

    def get(self, name: str) -> StoredTable:
        return self._tables[name]

    @property
    def by_name(self) -> dict[str, StoredTable]:
        return self._tables

    def physical(self) -> list[tuple[str, VersionedTable]]:
        """Every versioned table with its path below the storage."""
        tables = list(self._tables.values())
        return [(self._paths[id(found)], found) for table in tables for found in table.physical()]

    def open_arrangement(self, demand: Demand, checkpoint: Checkpoint | None, through: JobId) -> VersionedTable:
        """Opens (or creates, empty) the arrangement for a demand and attaches it to its table."""
        table = self._tables[demand.table]
        spec = arrangement_spec(table.spec, demand)
        found = self._versioned(arrangement_path(demand), spec, checkpoint, through)
        table.attach(demand.by, found)
        return found

    def new_arrangement(self, demand: Demand, through: JobId) -> VersionedTable:
        """Creates an arrangement, empty at job `through`; `attach` makes it one of its table's."""
        spec = arrangement_spec(self._tables[demand.table].spec, demand)
        return self._versioned(arrangement_path(demand), spec, None, through)

    def attach(self, demand: Demand, arrangement: VersionedTable) -> None:
        """From now on the arrangement takes the same changes as its table."""
        self._tables[demand.table].attach(demand.by, arrangement)

    def missing(self, demand: Demand) -> bool:
        """Whether the demand wants an arrangement that is not there: the table is large and not sorted that way."""
        table = self._tables[demand.table]
        if table.is_small(table.level):
            return False
        return not any(
            found.spec.sort[0] in demand.by and demand.columns <= set(found.spec.columns) for found in table.physical()
        )


def arrangement_spec(table: TableSpec, demand: Demand) -> TableSpec:
    wanted = demand.columns | set(demand.by) | set(table.key)
    schema = StructType([field for field in table.schema.fields if field.name in wanted])
    return TableSpec(
        f"{table.name} by {', '.join(demand.by)}", schema, table.key, tuple(dict.fromkeys(demand.by + table.key))
    )


def arrangement_path(demand: Demand) -> str:
    """A folder per table, columns and content."""
    content = hashlib.sha256(repr((demand.by, sorted(demand.columns))).encode()).hexdigest()[:8]
    return f"{INTERNAL}/arrangements/{demand.table.replace('.', '/')}/{'-'.join(demand.by)}-{content}"
