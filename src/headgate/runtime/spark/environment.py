"""What the machine must have before anything starts, and the one line that says so when it does not.

What headgate writes is for its own user. A private folder protects all that lies below it, whatever the modes there are
(`make_private`); a process that is headgate's own also writes every file and folder that way (`private_files`).
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from headgate.errors import EnvironmentProblem

_LOGGER = logging.getLogger(__name__)

OLDEST_JAVA = 17
PRIVATE_UMASK = 0o077
"""Takes all rights from everybody but the owner."""

_INSTALL = f"install Java {OLDEST_JAVA} or later (Debian, Ubuntu: apt install openjdk-17-jre-headless)"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


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
    """Makes sure that a storage folder exists, can be written, and is private."""
    folder = Path(storage)
    if folder.is_file():
        raise EnvironmentProblem(f"the storage folder {storage} is a file", hint="choose another folder as storage")
    probe = folder / f".headgate-{os.getpid()}"
    try:
        make_private(folder)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise EnvironmentProblem(
            f"the storage folder {storage} cannot be written: {error.strerror}",
            hint="change its permissions, or choose another folder as storage",
        ) from None


def make_private(folder: Path) -> None:
    """Makes the folder, or takes the rights of others from one that is there: nobody else gets at what lies below."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = stat.S_IMODE(folder.stat().st_mode)
    if not mode & PRIVATE_UMASK:
        return
    private = mode & ~PRIVATE_UMASK
    try:
        folder.chmod(private)
    except PermissionError:
        _LOGGER.warning("others can read the folder, which belongs to another user: folder=%s mode=%o", folder, mode)
    else:
        _LOGGER.warning("took the rights of others from the folder: folder=%s mode=%o before=%o", folder, private, mode)


@contextmanager
def private_files() -> Iterator[None]:
    """Inside the block every file and folder that this process or one that it starts makes is for its own user.

    For headgate's own processes: the file mode mask is the process's, so a program that uses the library keeps its own.
    """
    before = os.umask(PRIVATE_UMASK)
    try:
        yield
    finally:
        os.umask(before)
