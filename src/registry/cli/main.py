"""The command line: which commands there are, and how each of them ends.

A module a noun: it adds its parsers, and each of these says by ``run`` which function does it.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Final

from cloudcore.errors import PlatformError
from registry.cli import (
    completion,
    events,
    gc,
    images,
    lifecycle,
    login,
    operating,
    policies,
    repositories,
    settings,
    storage,
    tags,
)
from registry.cli.failure import FAILED, MISUSE, Failure
from registry.settings import SettingsError

_MODULES: Final = (
    operating,
    login,
    repositories,
    images,
    tags,
    policies,
    lifecycle,
    storage,
    gc,
    settings,
    events,
    completion,
)
_INTERRUPTED: Final = 130  # 128 and the number of SIGINT, as shells have it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status, of which `registry.cli.failure` tells."""
    options = make_parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Others' words need not fit the encoding of this terminal.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has seen enough. Python would complain again when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return _INTERRUPTED
    except Failure as error:
        return _tell(str(error), error.exit_status)
    except (SettingsError, PlatformError) as error:
        return _tell(str(error), MISUSE)
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        return _tell(f"{where}{error.strerror or error}", MISUSE)
    return status


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="entrepot", description="A self-hosted cloud registry for OCI images and artifacts."
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in _MODULES:
        module.add_parsers(commands)
    return parser


def _tell(words: str, status: int) -> int:
    sys.stderr.write(f"entrepot: {words}\n")
    return status
