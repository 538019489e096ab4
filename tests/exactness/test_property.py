"""For every flow and every job: the table at that job is the flow run from scratch on the history up to it.

Every run tries other random scenarios, each four flows, in every way of running in turn. The seed follows from the
commit; `HEADGATE_SEED` gives another one, or that of a run that failed, and `HEADGATE_EXAMPLES` the number of scenarios.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.exactness.choosing import Chooser
from tests.exactness.scenarios import WAYS, scenario
from tests.seed import SEED

EXAMPLES = int(os.environ.get("HEADGATE_EXAMPLES", 2 * len(WAYS)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [pytest.param(number, id=f"{number}-{WAYS[number % len(WAYS)].name}") for number in range(EXAMPLES)]
)
def test_every_flow_is_exact_at_every_job(oracle: SparkSession, tmp_path: Path, number: int) -> None:
    found = scenario(Chooser(random.Random(f"{SEED} {number}")), WAYS[number % len(WAYS)])
    found.run(tmp_path, oracle)
