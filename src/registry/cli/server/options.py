"""Options of commands on the registry's machine, and the settings that result from them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, Final

from cloudcore.commands.parser import Run, Verbs
from registry.settings.reading import NAMES, from_environment, read_config, with_values
from registry.settings.settings import Settings

DEFAULT_DATA: Final = Path("entrepot-data")
_CONFIG_VARIABLE: Final = "ENTREPOT_CONFIG"


def add_local(
    commands: Verbs,
    name: str,
    run: Run,
    summary: str,
    description: str,
) -> argparse.ArgumentParser:
    """Add a command that opens the data instead of calling a registry; return its parser."""
    command = commands.add_parser(
        name,
        help=f"{summary} (on the registry's machine)",
        description=f"{description} For operators of the registry: it needs the data and the"
        " settings of 'serve', and may run beside it.",
    )
    add_data(command)
    command.set_defaults(run=run)
    return command


def add_data(command: argparse.ArgumentParser, default: Path = DEFAULT_DATA) -> None:
    """Add ``--data``, the folder of a registry's data, and ``--config``."""
    command.add_argument(
        "--config", type=Path, metavar="FILE", help=f"file of settings ({_CONFIG_VARIABLE})"
    )
    command.add_argument("--data", type=Path, metavar="FOLDER", help=f"data (./{default})")
    command.set_defaults(default_data=default)


def add_serving(command: argparse.ArgumentParser) -> None:
    """Add the options of a server."""
    command.add_argument("--host", help="address to listen on (127.0.0.1)")
    command.add_argument("--port", type=int, help="port to listen on; 0 takes a free one (5000)")
    command.add_argument("--workers", type=int, metavar="N", help="worker processes (1)")
    command.add_argument(
        "--tls-certificate",
        metavar="FILE",
        help="serve TLS with this certificate, PEM, its issuers' behind it (plain HTTP)",
    )
    command.add_argument("--tls-key", metavar="FILE", help="the certificate's private key, PEM")
    command.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus metrics (off)")
    command.add_argument(
        "--drain-seconds",
        type=int,
        metavar="N",
        help="on SIGTERM serve on for so long, /readyz 503, then stop (0)",
    )


def add_acme(command: argparse.ArgumentParser) -> None:
    """Add the options of a certificate that the server obtains itself."""
    command.add_argument(
        "--tls",
        action="store_const",
        const="own",
        help="serve TLS with a certificate of the install's own authority, if none is named",
    )
    command.add_argument(
        "--tls-acme",
        metavar="NAME[,NAME]",
        help="serve TLS with a certificate of these host names, ordered by ACME and renewed",
    )
    command.add_argument(
        "--tls-acme-terms", metavar="agree", help="agree to the terms of the ACME authority"
    )
    command.add_argument(
        "--tls-acme-email", metavar="ADDRESS", help="for the authority's messages (none)"
    )
    command.add_argument(
        "--tls-acme-directory", metavar="URL", help="another authority (Let's Encrypt)"
    )
    command.add_argument(
        "--tls-acme-roots", metavar="FILE", help="roots of its own certificate, PEM (public ones)"
    )
    command.add_argument(
        "--tls-acme-http",
        metavar="HOST:PORT",
        help="answer the authority by plain HTTP here, such as :80 (by TLS, on --port)",
    )


def add_s3(command: argparse.ArgumentParser) -> None:
    """Add the options of the S3 endpoint."""
    command.add_argument("--s3-port", type=int, metavar="PORT", help="serve S3 at this port (off)")
    command.add_argument(
        "--s3-host", metavar="HOST", help="host name of S3, of which buckets are subdomains (none)"
    )
    command.add_argument(
        "--s3-any-region",
        action="store_const",
        const="on",
        help="take requests that are signed for any region (off)",
    )


def add_allowed_hosts(command: argparse.ArgumentParser) -> None:
    """Add ``--allowed-host``."""
    command.add_argument(
        "--allowed-host",
        action="append",
        dest="allowed_hosts",
        metavar="HOST[:PORT]",
        help="a host name of the registry, for clients, if it has no public URL; repeatable",
    )


def settings_of(options: argparse.Namespace) -> Settings:
    """Return the settings, each from the command line, else the environment, else the file.

    Raise `SettingsError` if a setting is unknown or invalid, or `data` is a file.
    """
    defaults = Settings(data=options.default_data)
    path = config_path(options)
    if path is not None:
        defaults = with_values(defaults, read_config(path))
    environ = {name: text for name, text in os.environ.items() if name != _CONFIG_VARIABLE}
    given = given_options(options)
    if "allowed_hosts" in given:
        given["allowed_hosts"] = ",".join(given["allowed_hosts"])
    settings = with_values(from_environment(environ, defaults), given)
    settings.check_data()
    return settings


def config_path(options: argparse.Namespace) -> Path | None:
    """Return the path of the settings file, or None if there is none."""
    path: Path | None = options.config
    named = os.environ.get(_CONFIG_VARIABLE)
    return path if path is not None or not named else Path(named)


def given_options(options: argparse.Namespace) -> dict[str, Any]:
    """Map setting names to the values passed as options."""
    return {name: value for name in NAMES if (value := getattr(options, name, None)) is not None}
