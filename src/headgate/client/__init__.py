"""A client of the service, which needs no Spark: `headgate.client.connect()`."""

from headgate.client.client import Client, Reply, connect
from headgate.client.connections import ServiceUnreachable

__all__ = ["Client", "Reply", "ServiceUnreachable", "connect"]
