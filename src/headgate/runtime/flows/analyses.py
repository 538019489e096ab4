"""What Spark says about the columns of queries over empty tables, kept from one opening to the next.

An empty table is named by its columns. The text of a query therefore says all that its columns depend on, apart from Spark's version
and settings, and a flow that was planned before is planned again without Spark. The file may be lost or deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from headgate.capture.durable import read_checked, replace_checked
from headgate.runtime.spark.parser import SparkParser
from headgate.runtime.spark.types import parse_type, simple_type
from headgate.warehouse.local import empty_frame

_LOGGER = logging.getLogger(__name__)


class Analyses:
    """Used by one thread at a time. `session` is called when Spark is needed for the first time."""

    def __init__(self, session: Callable[[], SparkSession], file: Path | None = None, spark: str = "") -> None:
        """`spark` names the version and the settings of Spark: what was said by another one does not count."""
        self._session = session
        self._file = file
        self._spark = spark
        self._known: dict[str, str] = {} if file is None else _read(file)
        self._used: dict[str, str] = {}
        self._types: dict[str, DataType] = {}
        self._empty: dict[str, StructType] = {}
        self._entered: set[str] = set()
        self.asked = 0
        """How many queries Spark has analysed."""

    @cached_property
    def parser(self) -> SparkParser:
        return SparkParser(self._session())

    def table(self, schema: StructType) -> str:
        """The name of an empty table with these columns, for the texts that are analysed here."""
        # The number begins with a zero: no other view has such a name.
        name = f"headgate_view_0{int(_digest(schema.json()), 16)}"
        self._empty[name] = schema
        return name

    def columns(self, text: str) -> StructType:
        """The columns of a query over empty tables; raises what Spark says against the query."""
        place = _digest(self._spark, text)
        found = self._known.get(place)
        if found is None:
            found = self._known[place] = self._asked(text).json()
        self._used[place] = found
        return StructType.fromJson(json.loads(found))

    def type_of(self, name: str) -> DataType:
        """The type that Spark calls so."""
        found = simple_type(name) or self._types.get(name)
        if found is None:
            self._session()
            found = self._types[name] = parse_type(name)
        return found

    def keep_used(self) -> None:
        """Writes what was used since the warehouse was opened: the rest is of flows that are gone."""
        for name in self._entered:
            self._session().catalog.dropTempView(name)
        self._entered.clear()
        self._empty.clear()
        if self._file is None or self._used == _read(self._file):
            return
        try:
            replace_checked(self._file, json.dumps(self._used).encode())
        except OSError as error:
            _LOGGER.warning("the next opening takes longer: %s cannot be written: %s", self._file, error.strerror)

    def _asked(self, text: str) -> StructType:
        self.asked += 1
        session = self._session()
        for name, schema in self._empty.items():
            if name not in self._entered and name in text:
                empty_frame(session, schema).createOrReplaceTempView(name)
                self._entered.add(name)
        return session.sql(text).schema


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _read(file: Path) -> dict[str, str]:
    """What the file holds; nothing if it is missing or damaged."""
    try:
        found = json.loads(read_checked(file))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
