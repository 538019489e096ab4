"""Console blocks typed into a shell, and what comes compared with what they show.

`…` stands for anything, alone in a line for any lines. Times, durations, sizes, positions, ports and fractions may differ.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.markdown import Block

_SECONDS = 120
_SERVICE = "headgate run"
_SELL = "python sell.py"
_SEEDED = "import random, runpy; random.seed(7); runpy.run_path('sell.py', run_name='__main__')"
"""What is sold by chance is the same in every run."""

_VARYING = (
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(\+00:00| UTC)?"), "<time>"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "<time>"),
    (re.compile(r"\b\d+(\.\d+)?(e[+-]?\d+)? (ms|s|min|h)\b( \d+ (s|min)\b)?"), "<duration>"),
    (re.compile(r"\b\d+(\.\d+)? (bytes|[KMG]iB)"), "<size>"),
    (re.compile(r"\bposition \d+"), "position <n>"),
    (re.compile(r"\b\d+\.\d+\b"), "<fraction>"),
    (re.compile(r" \((?:(?:capture|queue|spark|read) <fraction>(?:, )?)+\)"), ""),
    (re.compile(r"─+"), "─"),
    (re.compile(r"[ \t]+"), " "),
)


def masked(text: str) -> str:
    """The text without what differs from run to run."""
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    return "\n".join(line.strip() for line in text.strip().splitlines())


def is_as_shown(shown: str, found: str) -> bool:
    """Whether a command wrote what the documentation shows."""
    pattern = ""
    for line in masked(shown).splitlines():
        pattern += r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + "\n"
    return re.fullmatch(pattern, masked(found) + "\n" if found.strip() else "") is not None


def commands(block: Block) -> list[tuple[str, str]]:
    """Each command with what the block shows of its output."""
    pieces = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not pieces[0], f"{block} does not begin with a command"
    return [(command, shown) for command, _, shown in (piece.partition("\n") for piece in pieces[1:])]


@dataclass
class Terminal:
    """A shell in a folder; a service that is started stays until the reader leaves the folder or resets the project."""

    folder: Path
    replacements: dict[str, str]
    """What stands in a command, and what is typed instead."""
    environment: dict[str, str] = field(default_factory=dict)
    url: str = ""
    _code: int = 0
    _service: subprocess.Popen[str] | None = None

    def type(self, block: Block) -> None:
        """Types the block's commands one after another."""
        listed = commands(block)
        for (command, shown), (following, _) in zip(listed, [*listed[1:], ("", "")], strict=True):
            found = self._run(command)
            assert is_as_shown(shown, found), f"{block}: {command}\n--- shown\n{shown}\n--- found\n{found}"
            assert self._code == 0 or "$?" in following, f"{block}: {command} ends with {self._code}\n{found}"

    def close(self) -> None:
        """Stops the service, as Ctrl-C does."""
        if self._service is not None:
            process, self._service = self._service, None
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(_SECONDS) == 0
            finally:
                process.kill()
                assert process.stdout is not None
                process.stdout.close()

    def _run(self, command: str) -> str:
        word, _, rest = command.partition(" ")
        if word == "cd" or command.startswith("headgate reset"):
            self.close()
        if word == "cd":
            self.folder = (self.folder / rest).resolve(strict=True)
        elif word == "export":
            name, _, self.environment[name] = rest.partition("=")
        elif command == _SERVICE:
            return self._start()
        else:
            return self._done(command)
        return ""

    def _done(self, command: str) -> str:
        for written, typed in self.replacements.items():
            command = command.replace(written, typed)
        done = subprocess.run(
            [sys.executable, "-c", _SEEDED]
            if command == _SELL
            else ["bash", "-c", command.replace("$?", str(self._code))],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
        )
        self._code = done.returncode
        return done.stdout

    def _start(self) -> str:
        log = self.folder / "service.log"
        with log.open("w") as stream:
            self._service = subprocess.Popen(
                [*_SERVICE.split(), "--port", "0"],
                cwd=self.folder,
                env=self._environment(),
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
            )
        assert self._service.stdout is not None
        ready, _, _ = select.select([self._service.stdout], [], [], _SECONDS)
        line = self._service.stdout.readline() if ready else ""
        assert line, log.read_text()
        self.url = line.split()[3]
        return line

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, **self.environment}
