"""Static files: style sheet, script and icon of pages, and the wheel of the command line."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from importlib import metadata, resources
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from litestar import get
from litestar.response import Response

from cloudcore import base64url
from cloudcore.errors import NotFound
from cloudcore.identity.oauth.forms import values_of
from cloudcore.web.revisions import tags_named
from registry.console.admission import Requires
from registry.console.page_request import InjectedPage, PageResponse

_PATH: Final = "/console/static"
_TYPES: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript", "svg": "image/svg+xml"}
_FOREVER: Final = "public, max-age=31536000, immutable"
POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
"""What pages may load."""
UPLOADING: Final = f"{POLICY}; connect-src 'self'"
"""Of a page whose script sends files."""
SHOWING_MAIL: Final = POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
"""Of a page with a mail in a frame, which has the page's policy: mails have styles within."""


class Asset(NamedTuple):
    """A static file."""

    content: bytes
    content_type: str
    version: str
    """A hash of the content."""


@cache
def assets() -> Mapping[str, Asset]:
    """Return all files by name."""
    found = {}
    for file in resources.files("registry.console").joinpath("static").iterdir():
        content = file.read_bytes()
        kind = _TYPES[file.name.rpartition(".")[2]]
        found[file.name] = Asset(content, kind, sha256(content).hexdigest()[:12])
    return found


def address_of(name: str) -> str:
    """Return the address of a file, with the version of its content."""
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
    """Return the path of the file, which names its version."""
    return f"{_CLIENT}/{wheel_name()}"


@get(f"{_CLIENT}/{{wheel:str}}", opt={"requires": Requires.NOTHING})
async def send_client(page: InjectedPage) -> PageResponse:
    """Send the wheel of this release, or 304 to who has it."""
    if page.parameters["wheel"] != wheel_name():
        raise NotFound("there is no such file")
    wheel = await asyncio.to_thread(client_wheel)
    headers = {"etag": f'"{wheel.sha256}"', "cache-control": "public, no-cache"}
    conditions = b",".join(values_of(page.scope["headers"], b"if-none-match")).decode("latin-1")
    if not tags_named(conditions).isdisjoint({wheel.sha256, "*"}):
        return Response(b"", status_code=304, headers=headers)
    headers["content-type"] = "application/octet-stream"
    return Response(wheel.content, headers=headers)


# The command is no program of its own: its modules describe requests and answers by compiled
# libraries (msgspec), and import the families that bring its nouns. So what is handed out is all of
# it, as it runs here; what it depends on comes from the client's own package index.
_DISTRIBUTION: Final = "entrepot"
_PACKAGES: Final = ("cloudcore", "registry")
_COPIED: Final = ("METADATA", "entry_points.txt", "licenses/LICENSE")
"""Files of the installed ``.dist-info`` that the wheel has too."""
_WHEEL: Final = (
    "Wheel-Version: 1.0\nGenerator: entrepot\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
)
_MADE_AT: Final = (2020, 2, 2, 0, 0, 0)
"""The time of all files, so that the same sources make the same bytes everywhere."""
_MODE: Final = 0o644 << 16

_making = Lock()


class Wheel(NamedTuple):
    """A wheel (PEP 427)."""

    name: str
    """Of its file."""
    content: bytes
    sha256: str
    """In hex."""


def client_wheel() -> Wheel:
    """Return the wheel; the first call of a process makes it, in half a second, for all callers."""
    with _making:
        return _made()


def wheel_name() -> str:
    """Return the name of the wheel's file."""
    return f"{_DISTRIBUTION}-{metadata.version(_DISTRIBUTION)}-py3-none-any.whl"


@cache
def _made() -> Wheel:
    from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo  # noqa: PLC0415 - when one is asked for

    record, buffer = "", io.BytesIO()
    info = f"{_DISTRIBUTION}-{metadata.version(_DISTRIBUTION)}.dist-info"
    with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:

        def add(path: str, content: bytes) -> None:
            entry = ZipInfo(path, _MADE_AT)
            entry.compress_type, entry.external_attr = ZIP_DEFLATED, _MODE
            archive.writestr(entry, content)

        for path, content in (*_sources(), *_information(info)):
            add(path, content)
            digest = base64url.encode(sha256(content).digest())
            record += f"{path},sha256={digest},{len(content)}\n"
        add(f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode())
    content = buffer.getvalue()
    return Wheel(wheel_name(), content, sha256(content).hexdigest())


def _sources() -> Iterator[tuple[str, bytes]]:
    """Yield the files of the packages, as the build takes them: all but compiled ones."""
    for package in _PACKAGES:
        root = resources.files(package)
        assert isinstance(root, Path)
        for file in sorted(root.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield f"{package}/{file.relative_to(root).as_posix()}", file.read_bytes()


def _information(folder: str) -> Iterator[tuple[str, bytes]]:
    distribution = metadata.distribution(_DISTRIBUTION)
    for name in _COPIED:
        text = distribution.read_text(name)
        if text is not None:
            yield f"{folder}/{name}", text.encode()
    yield f"{folder}/WHEEL", _WHEEL.encode()
