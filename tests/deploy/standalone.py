"""A Spark standalone cluster of processes on this machine: a master and its workers, started as the manifests start them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import pyspark

from tests.waiting import eventually

HOST = "127.0.0.1"
SPARK_HOME = Path(pyspark.__file__).parent


@dataclass
class StandaloneCluster:
    """Master and workers write their logs, and what executors leave behind, below the folder."""

    folder: Path
    workers: int = 2
    cores: int = 1
    """Of each worker: how many executors of one slot it can run."""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """The master, then the workers; each leads a process group, to which the executors of a worker belong."""

    def __enter__(self) -> StandaloneCluster:
        try:
            self._start("master.Master", "master", "--port", "0", "--webui-port", "0")
            eventually(
                lambda: "Starting Spark master at" in self._log("master") and "MasterWebUI" in self._log("master")
            )
            for number in range(self.workers):
                options = ["--cores", str(self.cores), "--memory", f"{self.cores}g", "--port", "0", "--webui-port", "0"]
                self._start(
                    "worker.Worker", f"worker{number}", *options, "--work-dir", str(self._work(number)), self.url
                )
            eventually(lambda: self.alive == self.workers)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def url(self) -> str:
        """What a project names as its master."""
        return self._said("Starting Spark master at ").rstrip(".")

    @property
    def alive(self) -> int:
        """How many workers the master counts on."""
        with urllib.request.urlopen(self._said("started at ") + "/json/", timeout=10) as answer:
            return int(json.load(answer)["aliveworkers"])

    def tasks(self, worker: int) -> int:
        """How many tasks the executors of a worker have finished."""
        logs = self._work(worker).rglob("stderr")
        return sum(log.read_text(errors="replace").count("Finished task") for log in logs)

    def kill(self, worker: int) -> None:
        """Kills a worker and its executors."""
        os.killpg(self.processes[1 + worker].pid, signal.SIGKILL)
        self.processes[1 + worker].wait()

    def kill_executor(self, worker: int) -> None:
        """Kills an executor of a worker, which starts another one."""
        group = self.processes[1 + worker].pid
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (place / "cmdline").read_bytes()
                if b"CoarseGrainedExecutorBackend" in command and os.getpgid(int(place.name)) == group:
                    os.kill(int(place.name), signal.SIGKILL)
                    return
        raise AssertionError(f"worker {worker} has no executor")

    def _work(self, worker: int) -> Path:
        return self.folder / f"work{worker}"

    def _log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _said(self, words: str) -> str:
        """What follows some words in the master's log."""
        return self._log("master").partition(words)[2].split()[0]

    def _start(self, name: str, log: str, *options: str) -> None:
        program = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", HOST]
        environment = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_DAEMON_MEMORY": "256m"}
        with (self.folder / f"{log}.log").open("w") as output:
            self.processes.append(
                subprocess.Popen(
                    [*program, *options], env=environment, stdout=output, stderr=output, start_new_session=True
                )
            )

    def _end(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
