"""The Spark sessions of a warehouse: one context, five sessions. Results do not depend on the settings
that change after the start: into how many tasks large work is divided (`resize`).

    small        deltas of a few thousand rows: no code generation, no adaptive execution, one partition
    planning     plans of such deltas that are kept: nothing is broadcast
    bulk         loads, rebuilds and large batches
    background   the same for what nobody waits for: it leaves a slot to others
    query        what users ask

A context that is already active in this process is used as it is, and left running. Spark's own output goes to a log
file, so that a user's terminal shows only what headgate says.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import get_args

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession

from headgate.errors import ConfigError, EnvironmentProblem
from headgate.runtime.spark.collecting import Collector
from headgate.runtime.spark.environment import PRIVATE_UMASK, check_java
from headgate.runtime.spark.gates import Gated, TaskGate
from headgate.runtime.spark.health import SparkHealth
from headgate.runtime.spark.pools import ALLOCATION_FILE, write_allocations

FIXED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.variable.substitute": "false",
    "spark.sql.runSQLOnFiles": "false",
}
"""Settings that results depend on; a project cannot change them."""

DEFAULTS = {
    "spark.master": "local[*]",
    "spark.driver.memory": "2g",
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # What a Python worker is given at once, however wide the rows are.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(1 << 20),
    # A LIMIT of more rows sorts them with the disk's help, not in memory.
    "spark.sql.execution.topKSortFallbackThreshold": "100000",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # An executor with a task that was killed and does not end is ended; in this process QueryWork sees to it.
    "spark.task.reaper.enabled": "true",
    "spark.task.reaper.killTimeout": "10s",
    "spark.hadoop.fs.permissions.umask-mode": f"{PRIVATE_UMASK:03o}",
}
"""Settings that a project may change."""

LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A task that runs out of memory fails; it does not end the process that all others work in.
    "spark.executor.killOnFatalError.depth": "0",
}
"""Settings of a Spark inside the driver's process, which a project may change."""

SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    # Spark describes every plan for a page that nobody opens.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "100",
}
PLANNING = {
    # What is joined is one partition on either side: a broadcast would be a job of its own.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    # What stands twice is computed twice, by one task: it is not shuffled for that.
    "spark.sql.exchange.reuse": "false",
}
LARGE = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
}

_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{ISO8601} %p %c: %m%n%ex
"""


@dataclass(frozen=True, slots=True)
class _StartedSpark:
    context: SparkContext
    health: SparkHealth
    small: SparkSession
    planning: SparkSession
    bulk: SparkSession
    background: SparkSession
    query: SparkSession


class SparkSessions:
    """Starts Spark, or joins the context that is active; its sessions are ready to use.

    Where Spark is started in the background, whoever uses it first waits until it is there, or hears why it is not.
    """

    def __init__(
        self,
        conf: Mapping[str, str],
        app_name: str,
        *,
        in_background: bool = False,
        needed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`needed` are settings that the project's, `conf`, may not contradict."""
        _refuse_fixed(conf)
        for key, value in needed.items():
            if conf.get(key, value).lower() != value:
                raise ConfigError(
                    f"the Spark setting {key} cannot be {conf[key]} together with scaling",
                    hint=f"headgate asks for executors itself and needs {value}; remove one of the two",
                )
        if needed and (divided := conf.keys() & _few_tasks(1).keys()):
            raise ConfigError(
                f"the Spark setting {min(divided)} cannot be given together with scaling",
                hint="sizes say into how many tasks work is divided; remove one of the two",
            )
        self.tasks: Mapping[str, int] = {}
        """By part how many tasks it may run; empty without scaling."""
        self.gates: Mapping[Gated, TaskGate] = {part: TaskGate() for part in get_args(Gated)}
        self._conf = conf
        self._needed = needed
        # PySpark writes every failed query to the terminal; headgate tells what failed in its own words.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
        self._folder: Path | None = None
        self.log_file: Path | None = None
        """Where Spark's own output goes; None when the Java process was there before."""
        active = SparkContext._active_spark_context
        self._started = active is None
        self._active: dict[str, str] = {} if active is None else dict(active.getConf().getAll())
        self._opened: Future[_StartedSpark] = Future()
        if active is None and in_background:
            Thread(target=self._fill, args=[app_name], name="spark", daemon=True).start()
        else:
            self._fill(app_name)
            self.wait()

    def _fill(self, app_name: str) -> None:
        try:
            self._opened.set_result(self._open(app_name))
        except BaseException as error:
            self._opened.set_exception(error)

    def _open(self, app_name: str) -> _StartedSpark:
        active, conf = SparkContext._active_spark_context, self._conf
        context = active if active is not None else self._start(conf, app_name)
        health = SparkHealth(getattr(SparkContext._gateway, "proc", None))
        parent = SparkSession(context)
        partitions = {"spark.sql.shuffle.partitions": str(4 * context.defaultParallelism)}
        small = _session(parent, {**conf, **SMALL})
        bulk = _session(parent, {**partitions, **LARGE, **conf})
        background = _session(parent, {**LARGE, **conf, **_few_tasks(context.defaultParallelism - 1)})
        planning = _session(parent, {**conf, **SMALL, **PLANNING})
        return _StartedSpark(
            context, health, small, planning, bulk, background, _session(parent, {**partitions, **LARGE, **conf})
        )

    def wait(self) -> None:
        """Waits until Spark is there; raises why it is not."""
        self._opened.result()

    @property
    def context(self) -> SparkContext:
        return self._opened.result().context

    @property
    def health(self) -> SparkHealth:
        return self._opened.result().health

    @property
    def small(self) -> SparkSession:
        return self._opened.result().small

    @cached_property
    def slots(self) -> int:
        """Tasks that Spark runs at the same time, as far as it knew when first asked."""
        return max(1, self.context.defaultParallelism)

    @cached_property
    def collector(self) -> Collector:
        """Runs queries of the small session."""
        return self.new_collector()

    def new_collector(self) -> Collector:
        """One without plans."""
        return Collector(self.small, self._opened.result().planning)

    @property
    def bulk(self) -> SparkSession:
        return self._opened.result().bulk

    @property
    def background(self) -> SparkSession:
        return self._opened.result().background

    @property
    def query(self) -> SparkSession:
        return self._opened.result().query

    def resize(self, tasks: Mapping[str, int]) -> None:
        """From now on each part has so many tasks; what runs already stays as it is."""
        self.tasks = dict(tasks)
        opened = self._opened.result()
        for part, gate in self.gates.items():
            gate.resize(tasks[part])
        _divide(opened.background, tasks["load"])
        # Of two queries none waits until the other has ended.
        _divide(opened.query, self._tasks_of_query)

    @property
    def _tasks_of_query(self) -> int:
        return max(1, self.tasks["query"] // 2)

    @contextmanager
    def execution(
        self, frame: DataFrame, cancelled: Future[None] | None = None, until: float | None = None
    ) -> Iterator[None]:
        """Inside the block the frame may run, with the tasks that its part has; waits until these are free.

        Stages of its inputs run at the same time: a large batch has all tasks of its part, divided among its inputs, and a
        query takes for each input what it is divided into. Small batches run one short task and wait for nobody.
        """
        if not self.tasks:
            yield
            return
        opened, session = self._opened.result(), frame.sparkSession
        if session is opened.bulk:
            with self.gates["transform"].taken() as size:
                assert size is not None
                _divide(session, size // _inputs(frame))
                yield
        elif session is opened.query:
            with self.gates["query"].taken(self._tasks_of_query * _inputs(frame), cancelled, until):
                yield
        else:
            yield

    def folding(self, *, gives_way: bool) -> SparkSession:
        """The session that tables are folded in."""
        return self.background if gives_way or self.tasks else self.bulk

    @cached_property
    def identity(self) -> str:
        """Equal for a Spark of the same version and settings; Spark need not be there yet."""
        # A Spark that is started here has the settings of this class, which are headgate's own, and the project's.
        shared = {key: value for key, value in self._active.items() if key.startswith("spark.sql.")}
        shared.pop("spark.sql.warehouse.dir", None)
        return json.dumps(
            [pyspark.__version__, sorted(shared.items()), sorted({**FIXED, **SMALL, **self._conf}.items())]
        )

    def stop(self) -> None:
        """Stops the context if this object started it; the sessions are of no use afterwards."""
        if self._opened.exception() is not None:
            return
        self.health.close()
        if not self._started:
            return
        self._started = False
        try:
            self.context.stop()
        except OSError:
            # Spark's Java process is dead. PySpark has noted that, and stops its own part when it is asked again.
            self.context.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, conf: Mapping[str, str], app_name: str) -> SparkContext:
        self._folder = Path(tempfile.mkdtemp(prefix="headgate-spark-"))
        log_settings = self._folder / "log4j2.properties"
        log_settings.write_text(_LOGGING)
        places = {
            "spark.sql.warehouse.dir": str(self._folder / "tables"),
            "spark.local.dir": str(self._folder / "blocks"),
        }
        settings = {**DEFAULTS, **places, **self._needed, **conf, **FIXED}
        if settings["spark.master"].startswith("local"):
            settings = {**LOCAL, **settings}
        options = f"-Dlog4j2.configurationFile={log_settings.as_uri()} {conf.get('spark.driver.extraJavaOptions', '')}"
        settings["spark.driver.extraJavaOptions"] = options.strip()
        settings.setdefault(ALLOCATION_FILE, write_allocations(self._folder).as_uri())
        spark_conf = SparkConf(loadDefaults=False).setAll(list(settings.items())).setAppName(app_name)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        try:
            if SparkContext._gateway is not None:
                return SparkContext(conf=spark_conf)
            check_java()
            self.log_file = self._folder / "spark.log"
            with self.log_file.open("ab") as output:
                gateway = launch_gateway(spark_conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
            context = SparkContext(conf=spark_conf, gateway=gateway)
            context.setLogLevel(settings.get("spark.log.level", "ERROR"))
            return context
        except EnvironmentProblem:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        except Exception as error:
            why = _reason(error, self.log_file)
            shutil.rmtree(self._folder, ignore_errors=True)
            raise EnvironmentProblem(
                f"Spark did not start: {why}", hint="check the spark settings of the project"
            ) from error


def _few_tasks(count: int) -> dict[str, str]:
    """Stages of about so many tasks, at least one."""
    return dict.fromkeys(
        ("spark.sql.shuffle.partitions", "spark.sql.leafNodeDefaultParallelism", "spark.sql.files.maxPartitionNum"),
        str(max(1, count)),
    )


def _divide(session: SparkSession, tasks: int) -> None:
    for key, value in _few_tasks(tasks).items():
        if session.conf.get(key, None) != value:
            session.conf.set(key, value)


def _inputs(frame: DataFrame) -> int:
    """How many stages of its plan can run at the same time, at the most."""
    return max(1, int(frame._jdf.queryExecution().optimizedPlan().collectLeaves().size()))


def _session(parent: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    session = parent.newSession()
    wanted = {**{key: value for key, value in DEFAULTS.items() if key.startswith("spark.sql.")}, **settings, **FIXED}
    for key, value in wanted.items():
        if not session.conf.isModifiable(key):
            continue
        try:
            session.conf.set(key, value)
        except PySparkException as error:
            raise ConfigError(f"Spark refuses the setting {key}: {value}", hint=_first_line(str(error))) from None
    return session


def _refuse_fixed(conf: Mapping[str, str]) -> None:
    for key, value in FIXED.items():
        if conf.get(key, value).lower() != value.lower():
            raise ConfigError(
                f"the Spark setting {key} cannot be {conf[key]}", hint=f"headgate needs {value}; remove the setting"
            )


def _reason(error: Exception, log_file: Path | None) -> str:
    """The last line that Spark wrote about it, or the error's own first."""
    lines = log_file.read_text(errors="replace").splitlines() if log_file is not None else []
    telling = [line.strip() for line in lines if "rror" in line or "xception" in line]
    return telling[-1] if telling else _first_line(str(error))


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
