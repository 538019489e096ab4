"""The implementations of a stream log, for tests that hold for each."""

from __future__ import annotations

from headgate.capture.elastic.log import ElasticLog
from headgate.capture.locallog import LocalLog

OpenLog = type[LocalLog]
LOGS: tuple[OpenLog, ...] = (LocalLog, ElasticLog)
