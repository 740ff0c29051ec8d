"""The contents of an image: manifest, layers, and a summary of an SBOM or attestation."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec
from litestar import get

from registry.console.addresses import IMAGE
from registry.console.browser_request import is_whole_number
from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.repositories.image_rows import kind_of_image
from registry.console.pages.repositories.repositories import api_path, read_repository
from registry.oci.image_contents import ContentDescriptor, ManifestContents, parse_contents


class Layer(NamedTuple):
    """A layer, and the build step that made it."""

    descriptor: ContentDescriptor
    made_by: str


MAX_SHOWN: Final = 64 * 1024
"""Maximum bytes of a document that a page shows; showing 4 MiB would take seconds."""
MAX_INDENTED: Final = 4 * MAX_SHOWN
"""Maximum bytes of the indented text; a document that would be longer is shown as it was stored."""
_INDENT: Final = 2
_QUOTE, _BACKSLASH = b'"\\'
_OPENING, _CLOSING, _BETWEEN = b"[{", b"]}", b",:"


class RawDocument(NamedTuple):
    """A JSON document as a page shows it."""

    text: str
    """The text, indented if it is JSON and short enough; else as stored, cut to `MAX_SHOWN` bytes.
    """
    size: int
    """Bytes of the whole document."""
    is_whole: bool
    is_indented: bool


async def read_manifest(page: PageRequest, repository_id: str, digest: str) -> bytes:
    """Return the bytes of an image's manifest."""
    return await page.api.read(f"/v1/repositories/{repository_id}/images/{digest}/manifest")


def contents_of(manifest: bytes) -> ManifestContents:
    """Parse a manifest's contents; return empty ones if it is malformed."""
    return parse_contents(manifest) or ManifestContents()


def raw_document(document: bytes) -> RawDocument:
    """Return a document as a page shows it, indented unless that would be too long.

    Indentation can turn a deeply nested document of 64 KiB into 60 MB, so its length is computed
    first.
    """
    text, size = document[:MAX_SHOWN], len(document)
    is_indented = False
    if size <= MAX_SHOWN and indented_length(document) <= MAX_INDENTED:
        with suppress(ValueError, RecursionError):
            text, is_indented = msgspec.json.format(document, indent=_INDENT), True
    return RawDocument(text.decode("utf-8", "replace"), size, size <= MAX_SHOWN, is_indented)


def indented_length(document: bytes) -> int:
    """Return an upper bound of a JSON document's length once indented.

    White space in the document counts too. For invalid JSON, the result is meaningless.
    """
    length, depth, is_text, is_escaped = len(document), 0, False, False
    for byte in document:
        if is_text:
            if is_escaped:
                is_escaped = False
            elif byte == _BACKSLASH:
                is_escaped = True
            elif byte == _QUOTE:
                is_text = False
        elif byte == _QUOTE:
            is_text = True
        elif byte in _OPENING:
            depth += 1
            length += 1 + _INDENT * depth
        elif byte in _CLOSING:
            depth = max(0, depth - 1)
            length += 1 + _INDENT * depth
        elif byte in _BETWEEN:
            length += 1 + _INDENT * depth
    return length


def layers_of(manifest: ManifestContents, configuration: Mapping[str, Any] | None) -> list[Layer]:
    """Return the layers, with their build steps if the history has exactly one step for each."""
    history = configuration["history"] if configuration else []
    steps = [step["created_by"] for step in history if not step["empty_layer"]]
    layers = manifest.layers or []
    if len(steps) != len(layers):
        steps = [""] * len(layers)
    return [Layer(*pair) for pair in zip(layers, steps, strict=True)]


_MOST_ROWS: Final = 500
_MOST_LAYERS: Final = 20


class Summary(NamedTuple):
    """The summary of an SBOM or attestation."""

    format: str = ""
    """The format, such as ``SPDX``; empty if it is unknown."""
    facts: Sequence[tuple[str, str]] = ()
    packages: Sequence[tuple[str, str, str]] = ()
    """Name, version and licence of each package."""
    subjects: Sequence[tuple[str, str]] = ()
    """Name and digest of each thing that an attestation is about."""


@get(f"{IMAGE}/attachment")
async def show_attachment(page: InjectedPage) -> PageResponse:
    """Show a layer of an artifact."""
    digest = page.parameters["digest"]
    written = page.query.get("layer", "0")
    layer = int(written) if is_whole_number(written, 3) else 0
    repository = await read_repository(page)
    path = f"{api_path(page)}/images/{digest}"
    image = (await page.api.get(path))["image"]
    layers = contents_of(await read_manifest(page, repository["id"], digest)).layers or []
    content, refusal = b"", ""
    try:
        content = await page.api.read(f"{path}/attachment", layer=layer)
    except Refused as error:
        if error.status not in (403, 404):
            raise
        refusal = error.sentence
    return page.show(
        "attachment.html",
        repository=repository,
        image=image,
        kind=kind_of_image(image),
        layers=layers[:_MOST_LAYERS],
        layer=layer,
        document=raw_document(content),
        summary=summary_of(content),
        most_rows=_MOST_ROWS,
        refusal=refusal,
    )


def summary_of(content: bytes) -> Summary:
    """Return the summary of an SBOM (SPDX, CycloneDX) or attestation (in-toto, also in DSSE).

    Return an empty summary for other or malformed documents.
    """
    try:
        return _summary(msgspec.json.decode(content))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Summary()


def _summary(document: Any) -> Summary:  # noqa: ANN401 - JSON
    match document:
        case {"payload": payload, "payloadType": _}:  # DSSE envelope
            inner = _summary(msgspec.json.decode(b64decode(payload)))
            count = len(document.get("signatures") or [])
            return inner._replace(facts=[*inner.facts, ("Signatures", str(count))])
        case {"spdxVersion": _}:
            return _spdx(document)
        case {"bomFormat": "CycloneDX"}:
            return _cyclonedx(document)
        case {"predicateType": _}:
            return _statement(document)
    return Summary()


def _spdx(document: Mapping[str, Any]) -> Summary:
    created = document.get("creationInfo") or {}
    packages = [
        (
            _text(each.get("name")),
            _text(each.get("versionInfo")),
            _text(each.get("licenseConcluded") or each.get("licenseDeclared")),
        )
        for each in document.get("packages") or []
    ]
    facts = [
        ("Version", _text(document.get("spdxVersion"))),
        ("Name", _text(document.get("name"))),
        ("Created", _text(created.get("created"))),
        ("Created by", ", ".join(map(_text, created.get("creators") or []))),
    ]
    return Summary("SPDX", _given(facts), packages)


def _cyclonedx(document: Mapping[str, Any]) -> Summary:
    about = document.get("metadata") or {}
    packages = [
        (_text(each.get("name")), _text(each.get("version")), _licences(each))
        for each in document.get("components") or []
    ]
    facts = [
        ("Version", _text(document.get("specVersion"))),
        ("Name", _text((about.get("component") or {}).get("name"))),
        ("Created", _text(about.get("timestamp"))),
    ]
    return Summary("CycloneDX", _given(facts), packages)


def _licences(component: Mapping[str, Any]) -> str:
    found = []
    for each in component.get("licenses") or []:
        named = each.get("license") or {}
        found.append(_text(each.get("expression") or named.get("id") or named.get("name")))
    return ", ".join(found)


def _statement(document: Mapping[str, Any]) -> Summary:
    inner = _summary(document.get("predicate"))
    subjects = [
        (
            _text(each.get("name")),
            ", ".join(f"{name}:{value}" for name, value in (each.get("digest") or {}).items()),
        )
        for each in document.get("subject") or []
    ]
    facts = [("Predicate", _text(document["predicateType"])), *inner.facts]
    name = f"in-toto statement of {inner.format}" if inner.format else "in-toto statement"
    return Summary(name, _given(facts), inner.packages, subjects)


def _given(facts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in facts if value]


def _text(value: object) -> str:
    """Return a scalar as text of at most 300 characters; an empty string for other values."""
    return str(value)[:300] if isinstance(value, str | int | float) else ""
