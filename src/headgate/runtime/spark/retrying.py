"""What may pass by itself is tried again, with growing pauses: a lost executor, a broken connection."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PythonException

from headgate.errors import StorageFull, TransientError
from headgate.warehouse.spark_errors import condition_of, reason_of

_LOGGER = logging.getLogger(__name__)

PAUSES = (0.2, 1.0, 4.0)
"""Seconds before each further attempt; half of it is random, so that stages do not return all at once."""

_PASSING = (
    "ExecutorLostFailure",
    "executor lost",
    "ExecutorDeadException",
    "FetchFailed",
    "MetadataFetchFailed",
    "Connection reset",
    "Connection refused",
    "connection closed",
    "Failed to connect to",
    "RpcTimeout",
    "Futures timed out",
    "Python worker exited unexpectedly",
)
"""What Spark says of a lost executor, worker or connection, for which it has no condition."""

Found = TypeVar("Found")


def is_transient(error: BaseException) -> bool:
    """Whether the same attempt may succeed a moment later."""
    if isinstance(error, TransientError):
        # A full disk does not empty itself within seconds.
        return not isinstance(error, StorageFull)
    if not isinstance(error, PySparkException | Py4JError) or isinstance(error, PythonException):
        return False
    text = str(error)
    # What has a condition is about the query or its data, whatever the data say.
    return any(sign in text for sign in _PASSING) and condition_of(error) is None


def retried(work: Callable[[], Found], what: str, pauses: tuple[float, ...] = PAUSES) -> Found:
    """The work's result; work that fails for a passing reason is done again."""
    for pause in pauses:
        try:
            return work()
        except Exception as error:
            if not is_transient(error):
                raise
            _LOGGER.warning("tried again in %.1f s: %s failed: %s", pause, what, reason_of(error).words)
            time.sleep(pause * random.uniform(0.5, 1.0))
    return work()
