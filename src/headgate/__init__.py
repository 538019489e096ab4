"""headgate: right-time ETL on Spark."""

from headgate.runtime.procedures import Call, Procedure
from headgate.scheduling.receipt import Receipt
from headgate.scheduling.session import Answer, Session
from headgate.scheduling.warehouse import Warehouse
from headgate.scheduling.warehouse import open_warehouse as open

__all__ = ["Answer", "Call", "Procedure", "Receipt", "Session", "Warehouse", "open"]
