"""For every flow and every job: the table at that job is the flow run from scratch on the history up to it.

Every run tries other random scenarios, each four flows, in every regime in turn. The seed follows from the
commit; `HEADGATE_SEED` gives another one, or that of a run that failed, and `HEADGATE_EXAMPLES` the number of scenarios.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.runtime.evaluation import wide_inputs
from tests.exactness.choosing import Chooser
from tests.exactness.scenarios import REGIMES, scenario
from tests.seed import SEED

EXAMPLES = int(os.environ.get("HEADGATE_EXAMPLES", 2 * len(REGIMES)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [pytest.param(number, id=f"{number}-{REGIMES[number % len(REGIMES)].name}") for number in range(EXAMPLES)]
)
def test_every_flow_is_exact_at_every_job(
    oracle: SparkSession, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chooser = Chooser(random.Random(f"{SEED} {number}"))
    # Wide batches read tables whole or look rows up, and skip row groups or not.
    monkeypatch.setattr(wide_inputs, "ROWS_PER_CHANGE", chooser.number(0, 1))
    monkeypatch.setattr(wide_inputs, "MANY_ROWS", chooser.pick((0, wide_inputs.MANY_ROWS)))
    found = scenario(chooser, REGIMES[number % len(REGIMES)])
    found.run(tmp_path, oracle)
