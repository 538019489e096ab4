"""headgate: right-time ETL on Spark."""

from headgate.runtime.answer import Answer
from headgate.scheduling.warehouse import Warehouse
from headgate.scheduling.warehouse import open_warehouse as open

__all__ = ["Answer", "Warehouse", "open"]
