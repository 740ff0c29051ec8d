"""The ``entrepot`` command."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import TextIO

from registry.settings import Settings, SettingsError

DEFAULT_DATA = Path("entrepot-data")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0 well, 1 found wrong, 2 bad usage."""
    options = _parser().parse_args(arguments)
    try:
        defaults = Settings.from_env(os.environ, Settings(data=DEFAULT_DATA))
        status: int = options.run(options, defaults)
    except SettingsError as error:
        sys.stderr.write(f"entrepot: {error}\n")
        return 2
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="entrepot", description="A self-hosted cloud registry for OCI images and artifacts."
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    dev = commands.add_parser(
        "dev", help="run a registry on this machine: loopback only, no sign-in, account 'dev'"
    )
    dev.add_argument("--host", help="loopback address to listen on (default 127.0.0.1)")
    dev.add_argument("--port", type=int, help="port to listen on; 0 takes a free one (5000)")
    dev.add_argument("--data", type=Path, metavar="FOLDER", help=f"data (./{DEFAULT_DATA})")
    dev.add_argument("--workers", type=int, metavar="N", help="worker processes (1)")
    dev.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus metrics there (off)")
    dev.set_defaults(run=_dev)

    fsck = commands.add_parser(
        "fsck", help="compare the blob store with the metadata; exit 1 when anything is wrong"
    )
    fsck.add_argument("--data", type=Path, metavar="FOLDER", help=f"data (./{DEFAULT_DATA})")
    fsck.add_argument("--quick", action="store_true", help="do not read and hash every blob")
    fsck.set_defaults(run=_fsck)
    return parser


def _chosen(options: argparse.Namespace, defaults: Settings) -> Settings:
    """Return the settings with what the command line says instead."""
    given = {
        item.name: value
        for item in fields(Settings)
        if (value := getattr(options, item.name, None)) is not None
    }
    return replace(defaults, **given)


def _dev(options: argparse.Namespace, defaults: Settings) -> int:
    settings = _chosen(options, defaults)
    _require_loopback(settings.host)
    if settings.workers < 1:
        raise SettingsError("--workers must be at least 1")
    from registry.main import serve_dev  # noqa: PLC0415 - other commands start without a server

    return serve_dev(settings)


def _require_loopback(host: str) -> None:
    """Refuse an address others can reach: there is no sign-in."""
    try:
        is_loopback = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise SettingsError(
            f"'entrepot dev' has no sign-in, so it listens on loopback addresses only, not {host}"
        )


def _fsck(options: argparse.Namespace, defaults: Settings) -> int:
    from registry.gc.fsck import Progress, Report  # noqa: PLC0415
    from registry.main import check_data  # noqa: PLC0415

    settings = _chosen(options, defaults)
    bar = ProgressLine(sys.stderr)

    def tell(progress: Progress) -> None:
        read = f", {progress.read_bytes / 1e9:.2f} GB read" if progress.read_bytes else ""
        bar.show(f"{progress.stage} {progress.done} of {progress.total}{read}")

    report: Report = asyncio.run(check_data(settings, tell, read_objects=not options.quick))
    bar.end()
    for finding in [*report.violations, *report.leaks]:
        sys.stdout.write(f"{finding}\n")
    sys.stdout.write(
        f"{report.object_count} blobs and {report.manifest_count} manifests checked: "
        f"{len(report.violations)} violations, {len(report.leaks)} leaks\n"
    )
    return 1 if report.violations else 0


class ProgressLine:
    """One line that tells how far long work has come; on a terminal it is written over."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._shown_at = 0.0
        self._text = ""

    def show(self, text: str) -> None:
        """Show `text`, at most ten times a second, or each ten seconds where no one looks on."""
        self._text = text
        now = time.monotonic()
        if now - self._shown_at < (0.1 if self._is_terminal else 10):
            return
        self._shown_at = now
        self._write()

    def end(self) -> None:
        """Leave the last state in sight."""
        self._write()
        if self._is_terminal:
            self._stream.write("\n")
        self._stream.flush()

    def _write(self) -> None:
        if self._text:
            self._stream.write(f"\r\x1b[K{self._text}" if self._is_terminal else f"{self._text}\n")
            self._stream.flush()


if __name__ == "__main__":
    sys.exit(main())
