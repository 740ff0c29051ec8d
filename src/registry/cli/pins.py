"""``entrepot images pin``, ``unpin`` and ``pins``: keep images from expiring."""

from __future__ import annotations

import argparse
from typing import Final
from urllib.parse import quote

from registry.cli.api import open_client
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_image, add_verb
from registry.cli.output import column, echo, time_text
from registry.cli.references import image_path
from registry.cli.spans import span, time_after

_COLUMNS: Final = (
    column("NAME", "name"),
    column("EXPIRES", "expires_at", time_text),
    column("BY", "created_by"),
    column("CREATED", "created_at", time_text),
)


def add_parsers(verbs: Verbs) -> None:
    """Add ``pin``, ``unpin`` and ``pins`` to the commands of images."""
    pin = add_verb(verbs, "pin", _pin, "pin an image, or renew a pin: lifecycle leaves it alone")
    _add_pin(pin)
    until = pin.add_mutually_exclusive_group()
    until.add_argument("--for", dest="span", type=span, metavar="SPAN", help="such as 12h or 30d")
    until.add_argument(
        "--expires-at", metavar="TIME", help="such as 2030-01-31T12:00:00Z (until it is unpinned)"
    )
    _add_pin(add_verb(verbs, "unpin", _unpin, "remove a pin from an image"))
    listing = add_verb(verbs, "pins", _list, "list the pins of an image")
    add_image(listing)
    add_quiet(listing, "names")


def _add_pin(parser: argparse.ArgumentParser) -> None:
    add_image(parser)
    parser.add_argument(
        "name", type=_name, metavar="PIN", help="such as where it is deployed: production"
    )


def _name(text: str) -> str:
    if "/" in text:  # the path would have no route, and the 404 would not say why
        raise argparse.ArgumentTypeError(f"{text!r} has a slash; write {text.replace('/', '.')!r}")
    return text


def _pin(options: argparse.Namespace) -> int:
    expires_at = options.expires_at
    if options.span is not None:
        expires_at = time_after(options.span)
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
    return show_list(options, rows, _COLUMNS, lambda row: str(row["name"]))
