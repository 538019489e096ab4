"""Disks that can be full, for tests of what happens then."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


def mount_disk(place: Path, options: str) -> Path:
    """Mounts a disk in memory at a new folder; only root may do that, and nothing else makes a disk full for real."""
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"a disk of its own cannot be mounted here, and only such a one can be full: {done.stderr.strip()}")
    return place


def unmount_disk(place: Path) -> None:
    subprocess.run(["umount", "--lazy", str(place)], check=True)
