"""Makes an archive of the classes that Spark loads, which a Java process maps instead of reading and checking them one by one.

It is for the tests that start a process with a Spark of its own.

python -m tests.class_archive <file>
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext

import headgate
from tests.faults import shop


def main(archive: Path) -> None:
    known = os.environ.get("JAVA_TOOL_OPTIONS", "")
    made = archive.with_suffix(".new")
    os.environ["JAVA_TOOL_OPTIONS"] = f"{known} -XX:ArchiveClassesAtExit={made} -Xlog:cds*=off"
    with tempfile.TemporaryDirectory() as folder, headgate.open(shop.project(Path(folder))) as warehouse:
        shop.load(warehouse)
        shop.run(warehouse)
        shop.content(warehouse)
    gateway = SparkContext._gateway
    assert gateway is not None
    java = gateway.proc
    gateway.shutdown()
    java.stdin.close()
    # Java writes the archive when it ends.
    assert java.wait() == 0
    made.rename(archive)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
