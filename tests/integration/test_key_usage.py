"""``/v1/key-usage/{key_id}``: what a key protects, and so what its deletion would shred."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from registry.oci.media_types import OCI_MANIFEST
from registry.services.encryption_bindings import key_usage
from tests.databases import on_both_databases
from tests.integration.served_world import Served
from tests.tenants import allow


async def make_repository(served: Served, name: str, key: str) -> str:
    body, token = {"name": name, "kms_key": key}, served.acme.program_token
    return str((await served.make("/v1/repositories", body, token=token))["id"])


async def make_key(served: Served, name: str) -> str:
    made = await served.make("/v1/keys", {"name": name}, token=served.acme.program_token)
    return str(made["id"])


async def push(served: Served, repository: str, *layers: bytes) -> str:
    """Push an image of these layers, the first of which is its config too; return its digest."""
    bearer = await served.bearer(served.acme, f"repository:acme/{repository}:*")
    descriptors = []
    for layer in layers:
        digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"
        path = f"/v2/acme/{repository}/blobs/uploads/?digest={digest}"
        assert (await served.ask("POST", path, layer, token=bearer)).status_code == 201
        descriptors.append({"mediaType": "application/x", "digest": digest, "size": len(layer)})
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": descriptors[0],
        "layers": descriptors,
    }
    body, kind = json.dumps(manifest).encode(), {"Content-Type": OCI_MANIFEST}
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    path = f"/v2/acme/{repository}/manifests/{digest}"
    put = await served.ask("PUT", path, body, token=bearer, headers=kind)
    assert put.status_code == 201, put.text
    return digest


async def usage(served: Served, key_id: str) -> dict[str, Any]:
    path = f"/v1/key-usage/{key_id}"
    answer = await served.ask("GET", path, token=served.acme.program_token)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["key_usage"])


def counts(found: dict[str, Any]) -> tuple[int, int, int, int]:
    names = ("blob_count", "exclusive_blob_count", "exclusive_bytes", "image_count")
    return tuple(found[name] for name in names)


@on_both_databases
async def test_what_only_a_key_opens_is_told_from_what_another_opens_too(served: Served) -> None:
    one, two = await make_key(served, "one"), await make_key(served, "two")
    assert counts(await usage(served, one)) == (0, 0, 0, 0)
    first = await make_repository(served, "first", "one")
    await make_repository(served, "second", "two")
    image = await push(served, "first", b"shared", b"alone!")
    await push(served, "second", b"shared")

    found = await usage(served, one)
    assert found["kms_key"]["name"] == "one"
    assert counts(found) == (2, 1, 6, 1)
    assert [(each["id"], each["name"]) for each in found["repositories"]] == [(first, "first")]
    assert [(each["repository"]["name"], each["digest"]) for each in found["images"]] == [
        ("first", image)
    ]
    assert (found["repository_count"], found["is_account_default"]) == (1, False)
    assert found["is_partial"] is False
    assert counts(await usage(served, two)) == (1, 0, 0, 1)

    token = served.acme.program_token
    await served.make("/v1/buckets", {"name": "files", "kms_key": "one"}, token=token)
    path = "/v1/buckets/files/objects/key"
    assert (await served.ask("PUT", path, b"12345", token=token)).status_code == 200
    found = await usage(served, one)
    assert (found["bucket_count"], found["buckets"][0]["name"]) == (1, "files")
    assert (found["object_count"], found["object_bytes"]) == (1, 5)

    path = "/v1/encryption-binding"
    assert (await served.ask("PUT", path, {"kms_key": "one"}, token=token)).status_code == 200
    assert (await usage(served, one))["is_account_default"] is True


async def test_a_key_that_is_to_be_deleted_itself_does_not_save_a_blob(served: Served) -> None:
    one, two = await make_key(served, "one"), await make_key(served, "two")
    for name in ("one", "two"):
        await make_repository(served, name, name)
        await push(served, name, b"shared")
    token = served.acme.program_token
    assert (await served.ask("POST", f"/v1/keys/{two}/disable", token=token)).status_code == 200
    assert counts(await usage(served, one)) == (1, 0, 0, 1)  # who enables it keeps the blob
    assert (await served.ask("DELETE", f"/v1/keys/{two}", token=token)).status_code == 202
    assert counts(await usage(served, one)) == (1, 1, 6, 1)
    assert counts(await usage(served, two)) == (1, 0, 0, 1)


@on_both_databases
async def test_no_more_is_read_than_the_bound(served: Served) -> None:
    key = await make_key(served, "one")
    for name in ("first", "second"):
        await make_repository(served, name, "one")
        await push(served, name, b"a layer", name.encode())
    found = await served.database.read(key_usage, served.acme.account_id, "local", key, 2)
    assert found.is_partial
    assert (found.repository_count, found.blobs.total) == (2, 2)
    whole = await served.database.read(key_usage, served.acme.account_id, "local", key, 100)
    assert not whole.is_partial
    assert (whole.blobs.total, whole.image_count) == (3, 2)


async def test_only_who_may_read_all_repositories_is_told_of_an_own_key(served: Served) -> None:
    named = await served.ask("GET", "/v1/key-usage/platform", token=served.acme.program_token)
    assert named.status_code == 404, named.text
    app = f"crn:registry:local:{served.acme.account_id}:repository/app"
    reader = await served.token_that_may(allow("registry:DescribeKeyUsage", on=app))
    path = f"/v1/key-usage/{served.acme.ids['/v1/keys/{}']}"
    assert (await served.ask("GET", path, token=reader)).status_code == 403
