"""headgate: right-time ETL on Spark."""

from headgate.runtime.answer import Answer
from headgate.runtime.warehouse import Warehouse
from headgate.runtime.warehouse import open_warehouse as open

__all__ = ["Answer", "Warehouse", "open"]
