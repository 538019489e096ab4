"""A driver of a standalone cluster, in a process of its own: asks for executors, keeps them busy, lets go of them, and has one
killed. Prints what it saw as JSON.

    python -m tests.deploy.executors_process spark://127.0.0.1:7077
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from pyspark import SparkContext, TaskContext

from headgate.runtime.spark.executors import SETTINGS, executor_supply
from headgate.runtime.spark.sessions import SparkSessions
from tests.waiting import eventually


def main(master: str) -> None:
    conf = {
        "spark.master": master,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
    }
    sessions = SparkSessions(conf, "executors", needed=SETTINGS)
    context = sessions.context
    supply = executor_supply(context)
    seen: dict[str, object] = {"slots": supply.slots}

    def becomes(count: int) -> int:
        """As the actor does: the same wish, again and again."""

        def is_there() -> bool:
            supply.want(count)
            return supply.running == count

        eventually(is_there, seconds=120)
        return supply.running

    seen["least"] = becomes(1)
    seen["more"] = becomes(3)

    # All three are busy: none may be let go before its task has ended.
    def slow(number: int) -> int:
        time.sleep(4)
        return number

    results: list[int] = []
    work = threading.Thread(target=lambda: results.extend(context.parallelize(range(3), 3).map(slow).collect()))
    work.start()
    eventually(lambda: _active(context) == 3)
    supply.want(1)
    seen["while busy"] = supply.running
    work.join()
    seen["done"] = results
    seen["fewer"] = becomes(1)

    becomes(2)

    def killing(number: int) -> int:
        # The first attempt of one task takes its executor with it.
        task = TaskContext.get()
        assert task is not None
        if number == 0 and task.attemptNumber() == 0:
            os.kill(_java_parent(os.getpid()), signal.SIGKILL)
            time.sleep(60)
        return number * number

    seen["squares"] = context.parallelize(range(6), 6).map(killing).collect()
    seen["replaced"] = becomes(2)
    sessions.stop()
    sys.stdout.write(json.dumps(seen))


def _active(context: SparkContext) -> int:
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


def _java_parent(process: int) -> int:
    """The executor's Java process: the nearest ancestor that is one."""
    while True:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        if Path(f"/proc/{process}/comm").read_text().strip() == "java":
            return process


if __name__ == "__main__":
    main(sys.argv[1])
