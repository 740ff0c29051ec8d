"""Begin a server that keeps out of its memory what it does not need."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pkgutil import walk_packages
from types import ModuleType
from typing import Final

from cloudcore.db.absent_sqlalchemy import keep_out_sqlalchemy
from cloudcore.db.sql_writer import SqlWriter

_METADATA: Final = "registry.metadata"
_UNUSED: Final = ("attr", "pdb", "yaml")
"""What the framework loads for schemas that a server does not write, and for its debugger."""


def start_lean(database: str) -> None:
    """Keep out SQLAlchemy, the command line of uvicorn, and what the framework loads in vain.

    Call it before they are imported.

    The SQL is for the database at this URL. What is loaded already stays. The statements are then
    compiled here as ever.
    """
    if keep_out_sqlalchemy():
        from cloudcore.db.opening import is_postgresql  # noqa: PLC0415 - it loads statements

        dialect = "postgresql" if is_postgresql(database) else "sqlite"
        writer = SqlWriter(dialect, tuple(_with_statements()))
        from cloudcore.db.statement import let_write  # noqa: PLC0415 - now it loads the stand-in

        let_write(writer)
    _keep_out_command_line()
    for name in _UNUSED:
        sys.modules.setdefault(name, ModuleType(name))  # to use it fails: it has no such attribute


def _with_statements() -> Iterator[str]:
    """Yield the modules whose SQL a server needs, and a few more."""
    for found in walk_packages(import_module(_METADATA).__path__, f"{_METADATA}."):
        if not found.name.startswith(f"{_METADATA}.migrations"):
            yield found.name


def _keep_out_command_line() -> None:
    """Make the package of uvicorn without running it, which would load its command line.

    That takes 1.5 MiB, with click and multiprocessing. The modules in the package load as always.
    """
    spec = find_spec("uvicorn")
    if spec is not None and "uvicorn" not in sys.modules:
        package = sys.modules["uvicorn"] = module_from_spec(spec)
        vars(package)["Config"] = import_module("uvicorn.config").Config
