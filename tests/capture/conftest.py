from __future__ import annotations

import pytest

from tests.capture.logs import LOGS, OpenLog


@pytest.fixture(scope="module", params=LOGS, ids=["local", "elastic"])
def open_log(request: pytest.FixtureRequest) -> OpenLog:
    """Opens a stream log; each test runs for every implementation."""
    found: OpenLog = request.param
    return found
