"""A client of the service, which needs no Spark: `headgate.client.connect()`."""

from headgate.client.client import Client, Reply, connect
from headgate.client.connections import ServiceUnreachable
from headgate.client.subscription import ReceivedChanges, TableSubscription

__all__ = ["Client", "ReceivedChanges", "Reply", "ServiceUnreachable", "TableSubscription", "connect"]
