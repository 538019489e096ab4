"""headgate: right-time ETL on Spark.

It is also the module that PEP 249 speaks of: `connect`, `paramstyle`, the errors and the types of a producer's connection. Names
are imported when they are first used: `headgate.client` and the command line start without Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.producing.connect import connect
    from headgate.producing.connect import open_for_producers as open
    from headgate.runtime.stages.procedures import Call, Procedure
    from headgate.scheduling.receipt import Receipt
    from headgate.scheduling.session import Answer, Session
    from headgate.scheduling.warehouse import Warehouse

__all__ = ["Answer", "Call", "Procedure", "Receipt", "Session", "Warehouse", "connect", "open"]

_PLACES = {
    "Answer": ("headgate.scheduling.session", "Answer"),
    "Call": ("headgate.runtime.stages.procedures", "Call"),
    "Procedure": ("headgate.runtime.stages.procedures", "Procedure"),
    "Receipt": ("headgate.scheduling.receipt", "Receipt"),
    "Session": ("headgate.scheduling.session", "Session"),
    "Warehouse": ("headgate.scheduling.warehouse", "Warehouse"),
    "connect": ("headgate.producing.connect", "connect"),
    "open": ("headgate.producing.connect", "open_for_producers"),
}
_PEP_249 = (
    "BINARY",
    "Binary",
    "DATETIME",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NUMBER",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "ROWID",
    "STRING",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "paramstyle",
    "threadsafety",
)
_PLACES |= {name: ("headgate.producing.dbapi", name) for name in _PEP_249}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    found = globals()[name] = getattr(import_module(module), attribute)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
