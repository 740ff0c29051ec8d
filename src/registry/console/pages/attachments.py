"""The content of an SBOM or an attestation: a summary of what it lists, and the document."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from litestar import get

from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageResponse
from registry.console.pages.contents import contents_of, read_manifest, shown
from registry.console.pages.image_rows import kind_of_image
from registry.console.pages.repository_paths import api_path, read_repository
from registry.console.paths import IMAGE

_MOST_ROWS: Final = 500
_MOST_LAYERS: Final = 20


class Summary(NamedTuple):
    """What a document says, as a page shows it."""

    format: str
    """Such as ``SPDX``; empty if it is none of the known."""
    facts: Sequence[tuple[str, str]]
    packages: Sequence[tuple[str, str, str]]
    """Name, version and licence of each package."""
    subjects: Sequence[tuple[str, str]]
    """Name and digest of each thing that an attestation is about."""


@get(f"{IMAGE}/attachment")
async def show_attachment(page: InjectedPage) -> PageResponse:
    """Show a layer of an artifact."""
    digest = page.parameters["digest"]
    written = page.query.get("layer", "0")
    layer = int(written) if written.isascii() and written.isdigit() and len(written) < 4 else 0
    repository = await read_repository(page)
    path = f"{api_path(page)}/images/{digest}"
    image = (await page.api.get(path))["image"]
    layers = contents_of(await read_manifest(page, repository["id"], digest)).layers or []
    content, complaint = b"", ""
    try:
        content = await page.api.read(f"{path}/attachment", layer=layer)
    except Refused as error:
        if error.status not in (403, 404):
            raise
        complaint = error.sentence
    return page.show(
        "attachment.html",
        repository=repository,
        image=image,
        kind=kind_of_image(image),
        layers=layers[:_MOST_LAYERS],
        layer=layer,
        document=shown(content),
        summary=summary_of(content),
        most_rows=_MOST_ROWS,
        complaint=complaint,
    )


def summary_of(content: bytes) -> Summary:
    """Return what an SBOM (SPDX, CycloneDX) or attestation (in-toto, also in DSSE) says.

    Anything else, and what is malformed, has an empty summary.
    """
    try:
        return _summary(msgspec.json.decode(content))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Summary("", (), (), ())


def _summary(document: Mapping[str, Any]) -> Summary:
    if "payload" in document and "payloadType" in document:  # DSSE envelope
        inner = _summary(msgspec.json.decode(b64decode(document["payload"])))
        count = len(document.get("signatures") or [])
        return inner._replace(facts=[*inner.facts, ("Signatures", str(count))])
    if "spdxVersion" in document:
        return _spdx(document)
    if document.get("bomFormat") == "CycloneDX":
        return _cyclonedx(document)
    if "predicateType" in document:
        return _statement(document)
    return Summary("", (), (), ())


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
    return Summary("SPDX", _given(facts), packages, ())


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
    return Summary("CycloneDX", _given(facts), packages, ())


def _licences(component: Mapping[str, Any]) -> str:
    found = []
    for each in component.get("licenses") or []:
        named = each.get("license") or {}
        found.append(_text(each.get("expression") or named.get("id") or named.get("name")))
    return ", ".join(found)


def _statement(document: Mapping[str, Any]) -> Summary:
    predicate = document.get("predicate")
    inner = _summary(predicate) if isinstance(predicate, dict) else Summary("", (), (), ())
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
    """Return a scalar as text of at most 300 characters, and nothing for anything else."""
    return str(value)[:300] if isinstance(value, str | int | float) else ""


HANDLERS: Final = (show_attachment,)
