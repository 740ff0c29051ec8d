"""Import the modules of commands on the registry's machine when their command runs."""

from __future__ import annotations

import argparse
import gc
import sys
from importlib import import_module
from types import ModuleType

from cloudcore.commands.parser import Run


def lazy_command(module: str, function: str) -> Run:
    """Return a command of `registry.cli.server`, whose module is imported when the command runs.

    Commands on the registry's machine import the whole registry, which no other command needs.
    """

    def run(options: argparse.Namespace) -> int | None:
        status: int | None = getattr(import_server_module(module), function)(options)
        return status

    return run


def import_server_module(module: str) -> ModuleType:
    """Import a module of `registry.cli.server`, and with it the whole registry; return the module.

    Python's garbage collector is off meanwhile, and never scans the imported objects again: they
    stay alive anyway, and scanning them takes a fifth of a server's start.
    """
    name = f"registry.cli.server.{module}"
    if name in sys.modules:
        return sys.modules[name]
    collects = gc.isenabled()
    gc.disable()
    try:
        imported = import_module(name)
        gc.freeze()
    finally:
        if collects:
            gc.enable()
    return imported
