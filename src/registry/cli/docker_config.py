"""Name the credential helper in the configuration of container clients (``config.json``)."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from registry.cli.failure import CommandFailure

HELPER: Final = "entrepot"
_TAB: Final = "\t"
"""Docker's own indentation."""
_PROGRAM: Final = f"docker-credential-{HELPER}"


def config_path(environ: Mapping[str, str]) -> Path:
    """Return docker's ``config.json``, which the other clients read too."""
    folder = environ.get("DOCKER_CONFIG")
    return (Path(folder) if folder else Path.home() / ".docker") / "config.json"


def add_helper(path: Path, hosts: Iterable[str]) -> bool:
    """Make the helper give the passwords of hosts; return False if it did so already.

    All other settings stay. The file is replaced at once, and keeps its mode.

    Raises:
        CommandFailure: the file holds something else, or cannot be written.

    """
    target = path.resolve()  # a link stays one
    config = _read(target)
    helpers = config.setdefault("credHelpers", {})
    if not isinstance(helpers, dict):
        raise CommandFailure(f"{path}: credHelpers is no JSON object; mend the file first")
    missing = [host for host in hosts if helpers.get(host) != HELPER]
    if not missing:
        return False
    helpers.update(dict.fromkeys(missing, HELPER))
    try:
        _replace(target, f"{json.dumps(config, indent=_TAB, ensure_ascii=False)}\n")
    except OSError as error:
        raise CommandFailure(f"cannot write {path}: {error.strerror}") from None
    return True


def missing_program(environ: Mapping[str, str]) -> str:
    """Return where the helper's program is, if clients would not find it; else an empty string."""
    if shutil.which(_PROGRAM, path=environ.get("PATH")):
        return ""
    return str(Path(sys.executable).with_name(_PROGRAM))


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CommandFailure(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise CommandFailure(f"{path} holds no JSON object; mend the file first")
    return config


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".config-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
