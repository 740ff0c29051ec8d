"""Real programs that tests drive: found, or skipped with a reason; in CI their absence fails."""

from __future__ import annotations

import os
import shutil

import pytest


def missing(reason: str) -> None:
    """Skip the test for want of `reason`, or fail it where CI should have installed it."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason} (CI installs it)", pytrace=False)
    pytest.skip(reason)


def require_tool(name: str) -> str:
    """Return the path of program `name`, or skip (fail in CI) when it is not installed."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        missing(f"{name} is not installed")
        raise AssertionError  # missing() never returns
    return path
