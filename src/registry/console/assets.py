"""Static files: the style sheet, script and icon of pages, and the command line's wheel."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Final, NamedTuple

from litestar import get
from litestar.response import Response

from cloudcore.errors import NotFound
from cloudcore.serving.asgi import header_values
from cloudcore.web.revisions import tags_named
from registry.console.admission import Requires
from registry.console.client_wheel import client_wheel, wheel_name
from registry.console.page_request import InjectedPage, PageResponse

_PATH: Final = "/console/static"
_TYPES: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript", "svg": "image/svg+xml"}
_FOREVER: Final = "public, max-age=31536000, immutable"
POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of pages."""
UPLOADING: Final = f"{POLICY}; connect-src 'self'"
"""The policy of a page whose script sends files."""
SHOWING_MAIL: Final = POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
"""The policy of a page with a mail in a frame: the frame inherits it, and mails have styles."""


class Asset(NamedTuple):
    """A static file."""

    content: bytes
    content_type: str
    version: str
    """A hash of the content."""


@cache
def assets() -> Mapping[str, Asset]:
    """Map file names to the static files."""
    found = {}
    for file in resources.files("registry.console").joinpath("static").iterdir():
        content = file.read_bytes()
        kind = _TYPES[file.name.rpartition(".")[2]]
        found[file.name] = Asset(content, kind, sha256(content).hexdigest()[:12])
    return found


def address_of(name: str) -> str:
    """Return the path of a file, with a version derived from its content."""
    return f"{_PATH}/{name}?v={assets()[name].version}"


@get(f"{_PATH}/{{asset:str}}", opt={"requires": Requires.NOTHING})
async def send_asset(page: InjectedPage) -> PageResponse:
    """Send a file; browsers cache it for a year if the address has its current version."""
    asset = assets().get(page.parameters["asset"])
    if asset is None:
        raise NotFound("there is no such file")
    kept = _FOREVER if page.query.get("v") == asset.version else "no-cache"
    headers = {"cache-control": kept, "content-type": asset.content_type}
    return Response(asset.content, headers=headers)


_CLIENT: Final = "/console/client"


def address_of_client() -> str:
    """Return the path of the wheel, whose file name has the version."""
    return f"{_CLIENT}/{wheel_name()}"


@get(f"{_CLIENT}/{{wheel:str}}", opt={"requires": Requires.NOTHING})
async def send_client(page: InjectedPage) -> PageResponse:
    """Send the wheel of this release, or 304 if the client has it already."""
    if page.parameters["wheel"] != wheel_name():
        raise NotFound("there is no such file")
    wheel = await asyncio.to_thread(client_wheel)
    headers = {"etag": f'"{wheel.sha256}"', "cache-control": "public, no-cache"}
    conditions = b",".join(header_values(page.scope, b"if-none-match")).decode("latin-1")
    if not tags_named(conditions).isdisjoint({wheel.sha256, "*"}):
        return Response(b"", status_code=304, headers=headers)
    headers["content-type"] = "application/octet-stream"
    return Response(wheel.content, headers=headers)
