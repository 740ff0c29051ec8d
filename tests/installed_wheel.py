"""A wheel that is installed in a new environment, which borrows what the program depends on."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest


def install_wheel(wheel: Path, home: Path) -> Path:
    """Install a wheel in a new environment at `home`; return the folder of its commands."""
    pytest.importorskip("pip")
    venv.create(home)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(home)]
    # Of a thousand modules, what is run compiles those that it imports.
    options = ("--quiet", "--no-deps", "--no-index", "--no-compile")
    command = [*pip, "install", *options, str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    (packages,) = (home / "lib").glob("python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin"
