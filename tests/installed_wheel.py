"""A wheel that is installed in a new environment, which borrows what the program depends on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from tests.loaded import ROOT


def install_wheel(wheel: Path, home: Path) -> Path:
    """Install a wheel in a new environment at `home`; return the folder of its commands."""
    pytest.importorskip("pip")
    venv.create(home)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(home)]
    options = ("--quiet", "--no-deps", "--no-index", "--no-compile")
    command = [*pip, "install", *options, str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    (packages,) = (home / "lib").glob("python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    _copy_compiled(ROOT / "src", packages)
    return home / "bin"


def _copy_compiled(sources: Path, packages: Path) -> None:
    """Give installed modules that equal our sources what those were compiled to.

    To compile the thousand modules of a server takes longer than all else that a test of it does.
    """
    for source in sources.rglob("*.py"):
        installed = packages / source.relative_to(sources)
        compiled = Path(cache_from_source(source))
        if not (compiled.exists() and installed.exists()):
            continue
        if installed.read_bytes() == source.read_bytes():
            os.utime(installed, ns=(source.stat().st_mtime_ns,) * 2)
            target = Path(cache_from_source(installed))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(compiled, target)
