"""The content of SBOMs and attestations: as ``/v1`` returns it, and as the console shows it."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest

from registry.console.pages.repositories.image_contents import Summary, summary_of
from registry.oci.media_types import OCI_MANIFEST
from registry.services.images.image_contents import MAX_BYTES
from tests.integration.console_shop import CONFIG_TYPE, Descriptor, Shop, digest_of, open_shop

SPDX: dict[str, Any] = {
    "spdxVersion": "SPDX-2.3",
    "name": "app",
    "creationInfo": {"created": "2026-01-01T00:00:00Z", "creators": ["Tool: syft"]},
    "packages": [{"name": "<openssl>", "versionInfo": "3.0", "licenseConcluded": "Apache-2.0"}],
}
CYCLONEDX: dict[str, Any] = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "metadata": {"component": {"name": "app"}},
    "components": [
        {"name": "zlib", "version": "1.3", "licenses": [{"license": {"id": "Zlib"}}]},
        {"name": "musl", "licenses": [{"expression": "MIT OR BSD-2-Clause"}]},
    ],
}
STATEMENT: dict[str, Any] = {
    "_type": "https://in-toto.io/Statement/v1",
    "predicateType": "https://spdx.dev/Document",
    "subject": [{"name": "app", "digest": {"sha256": "ab"}}],
    "predicate": SPDX,
}


@pytest.fixture(scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path_factory.mktemp("attachments") / "data") as shop:
        yield shop


def summarized(document: object) -> Summary:
    return summary_of(json.dumps(document).encode())


def test_documents_are_summarized() -> None:
    spdx = summarized(SPDX)
    assert (spdx.format, list(spdx.packages)) == ("SPDX", [("<openssl>", "3.0", "Apache-2.0")])
    assert ("Created by", "Tool: syft") in spdx.facts
    cyclonedx = summarized(CYCLONEDX)
    assert list(cyclonedx.packages) == [
        ("zlib", "1.3", "Zlib"),
        ("musl", "", "MIT OR BSD-2-Clause"),
    ]
    statement = summarized(STATEMENT)
    assert statement.format == "in-toto statement of SPDX"
    assert list(statement.subjects) == [("app", "sha256:ab")]
    payload = b64encode(json.dumps(STATEMENT).encode()).decode()
    envelope = {"payloadType": "application/x", "payload": payload, "signatures": [{}]}
    sealed = summarized(envelope)
    assert (sealed.format, sealed.packages) == (statement.format, statement.packages)
    assert ("Signatures", "1") in sealed.facts


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[1]",
        b"[" * 10_000,
        b'{"spdxVersion": 1, "packages": 7}',
        b'{"spdxVersion": "1", "packages": ["x"]}',
        b'{"bomFormat": "CycloneDX", "components": [{"licenses": [1]}]}',
        b'{"predicateType": 1, "subject": {"a": 1}}',
        b'{"payload": "=", "payloadType": ""}',
    ],
)
def test_documents_that_lie_have_no_summary(content: bytes) -> None:
    assert summary_of(content).format == ""


async def artifact(shop: Shop, subject: Descriptor, *layers: bytes) -> Descriptor:
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": "application/spdx+json",
        "config": await shop.blob(b"{}", CONFIG_TYPE),
        "layers": [await shop.blob(layer, "application/spdx+json") for layer in layers],
        "subject": {key: subject[key] for key in ("mediaType", "digest", "size")},
    }
    return await shop.manifest(document)


async def test_an_sbom_is_read_where_it_is_attached(shop: Shop) -> None:
    image = await shop.image("with an SBOM", "1")
    content = json.dumps(SPDX).encode()
    sbom = await artifact(shop, image, content, b"second", b"x" * (MAX_BYTES + 1))
    page = await shop.see(f"/images/{image['digest']}")
    assert f'href="/console/acme/shop@{sbom["digest"]}/-/attachment">Read it<' in page
    read = await shop.see(f"/images/{sbom['digest']}/attachment")
    for told in ("<h1>SPDX</h1>", "1 package<", "&lt;openssl&gt;", "Apache-2.0", image["digest"]):
        assert told in read
    assert "second" in await shop.see(f"/images/{sbom['digest']}/attachment?layer=1")
    large = await shop.see(f"/images/{sbom['digest']}/attachment?layer=2")
    assert "at most 2000000 are shown; pull it instead." in large

    path = f"/v1/repositories/{shop.repository_id}/images/{sbom['digest']}/attachment"
    token = shop.served.acme.program_token
    whole = await shop.served.ask("GET", path, token=token)
    assert (whole.content, digest_of(whole.content)) == (content, digest_of(content))
    assert whole.headers["content-type"] == "application/octet-stream"
    for layer, status in (("2", 404), ("3", 404), ("-1", 400), ("101", 400)):
        answer = await shop.served.ask("GET", f"{path}?layer={layer}", token=token)
        assert answer.status_code == status
    foreign = await shop.served.ask("GET", path, token=shop.served.globex.program_token)
    assert foreign.status_code == 404
