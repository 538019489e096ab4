"""Executors of a real standalone cluster come, stay while they are busy, go, and are replaced when one dies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.errors import ConfigError
from headgate.runtime.spark.executors import SETTINGS
from headgate.runtime.spark.sessions import SparkSessions
from tests.deploy.standalone import StandaloneCluster

pytestmark = pytest.mark.slow


def test_executors_come_and_go_and_no_task_is_lost(tmp_path: Path) -> None:
    with StandaloneCluster(tmp_path, workers=1, cores=3) as cluster:
        program = [sys.executable, "-m", "tests.deploy.executors_process", cluster.url]
        done = subprocess.run(program, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "slots": 1,
        "least": 1,
        "more": 3,
        "while busy": 3,
        "done": [0, 1, 2],
        "fewer": 1,
        "squares": [0, 1, 4, 9, 16, 25],
        "replaced": 2,
    }


def test_dynamic_allocation_and_scaling_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match=r"spark.dynamicAllocation.enabled cannot be true together with scaling"):
        SparkSessions({"spark.dynamicAllocation.enabled": "true"}, "both", needed=SETTINGS)
