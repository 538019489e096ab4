"""What the machine must have before anything starts, and the one line that says so when it does not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from headgate.errors import EnvironmentProblem

OLDEST_JAVA = 17

_INSTALL = f"install Java {OLDEST_JAVA} or later (Debian, Ubuntu: apt install openjdk-17-jre-headless)"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_URI = re.compile(r"[a-z][a-z0-9+.-]+://")


def check_java(environment: Mapping[str, str] = os.environ) -> int:
    """The major version of the Java that Spark will start: JAVA_HOME's, else the one on the PATH."""
    home = environment.get("JAVA_HOME")
    if home:
        java: str | None = str(Path(home) / "bin" / "java")
        if not os.access(str(java), os.X_OK):
            raise EnvironmentProblem(
                f"there is no Java in JAVA_HOME, {home}", hint=f"correct or unset JAVA_HOME, or {_INSTALL}"
            )
    else:
        java = shutil.which("java", path=environment.get("PATH", os.defpath))
    if java is None:
        raise EnvironmentProblem("Spark needs Java, and there is none", hint=f"{_INSTALL}, or set JAVA_HOME")
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentProblem(f"{java} does not run: {error}", hint=_INSTALL) from None
    found = _VERSION.search(answer.stderr + answer.stdout)
    if found is None:
        raise EnvironmentProblem(f"{java} does not tell its version", hint=_INSTALL)
    version = int(found[1])
    if version < OLDEST_JAVA:
        raise EnvironmentProblem(f"{java} is Java {version}, which is too old for Spark", hint=_INSTALL)
    return version


def check_storage(storage: str) -> None:
    """Makes sure that a storage folder exists and can be written; a URI is left to its own store."""
    if _URI.match(storage):
        return
    folder = Path(storage)
    if folder.is_file():
        raise EnvironmentProblem(f"the storage folder {storage} is a file", hint="choose another folder as storage")
    probe = folder / f".headgate-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise EnvironmentProblem(
            f"the storage folder {storage} cannot be written: {error.strerror}",
            hint="change its permissions, or choose another folder as storage",
        ) from None
