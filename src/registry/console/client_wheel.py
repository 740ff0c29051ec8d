"""The wheel of this program, built from the installed files, so that clients can install it.

The wheel contains the whole program as it runs here, since the command cannot be split off: its
modules use msgspec, which is compiled, and import the families for their nouns. Dependencies come
from the client's own package index.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib import metadata, resources
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from cloudcore import base64url

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

    content: bytes
    sha256: str
    """In hex."""


def client_wheel() -> Wheel:
    """Return the wheel; the first call in a process builds it, which takes half a second."""
    with _making:
        return _made()


def wheel_name() -> str:
    """Return the name of the wheel's file."""
    return f"{_DISTRIBUTION}-{metadata.version(_DISTRIBUTION)}-py3-none-any.whl"


@cache
def _made() -> Wheel:
    from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo  # noqa: PLC0415 - only few processes build a wheel

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
    return Wheel(content, sha256(content).hexdigest())


def _sources() -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each file in the packages, except compiled ones."""
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
