"""For every flow and every job: the table at that job is the flow run from scratch on the history up to it.

The number of random scenarios (each about eight flows) is small by default and the same in every run;
`HEADGATE_EXAMPLES=500` tries that many new ones.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import SparkSession

from tests.exactness.scenarios import Scenario, scenarios

ASKED = os.environ.get("HEADGATE_EXAMPLES")


@settings(
    max_examples=int(ASKED) if ASKED else 2,
    derandomize=ASKED is None,
    database=None,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
@given(scenario=scenarios())
def test_every_flow_is_exact_at_every_job(oracle: SparkSession, scenario: Scenario) -> None:
    with tempfile.TemporaryDirectory() as folder:
        scenario.run(Path(folder), oracle)
