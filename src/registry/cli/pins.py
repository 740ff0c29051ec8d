"""``entrepot images pin``, ``unpin`` and ``pins``: keep images from expiring."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import quote

from registry.cli.api import open_client
from registry.cli.options import Verbs, add_image, add_verb
from registry.cli.output import column, echo, time_text, write_records
from registry.cli.references import image_path

_COLUMNS: Final = (
    column("NAME", "name"),
    column("EXPIRES", "expires_at", time_text),
    column("BY", "created_by"),
    column("CREATED", "created_at", time_text),
)
_SPAN: Final = re.compile(r"([0-9]{1,6})([mhdw])")
_LONGEST: Final = timedelta(days=36500)
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def add_parsers(verbs: Verbs) -> None:
    """Add ``pin``, ``unpin`` and ``pins`` to the commands of images."""
    pin = add_verb(verbs, "pin", _pin, "pin an image, or renew a pin: lifecycle leaves it alone")
    _add_pin(pin)
    until = pin.add_mutually_exclusive_group()
    until.add_argument("--for", dest="span", type=_span, metavar="SPAN", help="such as 12h or 30d")
    until.add_argument(
        "--expires-at", metavar="TIME", help="such as 2030-01-31T12:00:00Z (until it is unpinned)"
    )
    _add_pin(add_verb(verbs, "unpin", _unpin, "remove a pin from an image"))
    add_image(add_verb(verbs, "pins", _list, "list the pins of an image"))


def _add_pin(parser: argparse.ArgumentParser) -> None:
    add_image(parser)
    parser.add_argument(
        "name", type=_name, metavar="PIN", help="such as where it is deployed: production"
    )


def _name(text: str) -> str:
    if "/" in text:  # the path would have no route, and the 404 would not say why
        raise argparse.ArgumentTypeError(f"{text!r} has a slash; write {text.replace('/', '.')!r}")
    return text


def _span(text: str) -> timedelta:
    found = _SPAN.fullmatch(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no span like 90m, 12h, 30d or 4w")
    span = timedelta(**{_UNITS[found[2]]: int(found[1])})
    if not timedelta() < span <= _LONGEST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not between 1m and {_LONGEST.days}d; without --for it never ends"
        )
    return span


def _pin(options: argparse.Namespace) -> int:
    expires_at = options.expires_at
    if options.span is not None:
        expires_at = f"{datetime.now(UTC) + options.span:%Y-%m-%dT%H:%M:%SZ}"
    client = open_client(options)
    path = f"{image_path(client, options.image)}/pins/{quote(options.name, safe='')}"
    pin = client.call("PUT", path, {"expires_at": expires_at})["pin"]
    until = "it is unpinned" if pin["expires_at"] is None else time_text(pin["expires_at"])
    echo(f"Pinned {options.image} as {pin['name']} until {until}", options.output, pin)
    return 0


def _unpin(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = f"{image_path(client, options.image)}/pins/{quote(options.name, safe='')}"
    client.call("DELETE", path)
    echo(f"Unpinned {options.image}: {options.name}", options.output)
    return 0


def _list(options: argparse.Namespace) -> int:
    client = open_client(options)
    rows = client.rows(f"{image_path(client, options.image)}/pins", "pins")
    write_records(rows, _COLUMNS, options.output)
    return 0
