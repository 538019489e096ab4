"""The command line as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def headgate(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "headgate", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
