"""How many repositories, images, tags and upload sessions an account may have."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from cloudcore.clock import uuid7
from cloudcore.quotas.limits import EVERY_ACCOUNT, Counted, put_limit, remove_limit
from registry.metadata.blobs import upload_quota
from registry.metadata.quotas import COUNTED_RESOURCES
from registry.metadata.repositories.repository import add_account
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.settings.groups import Limits
from tests.databases import on_both_databases
from tests.inprocess import Answer, Registry, open_registry
from tests.integration.pushing import create
from tests.integration.restoration_world import UndoWorld
from tests.memory_store import MemoryStore
from tests.recount import check_counters, querying
from tests.tenants import ALLOW_ALL, Install, bearer

CONFIG: Final = b"{}"
BY_NAME: Final[dict[str, Counted]] = {
    each.quota.name: each for each in (*COUNTED_RESOURCES, upload_quota.COUNTED)
}


@pytest.fixture
async def registry(metadata_url: str) -> AsyncIterator[Registry]:
    """Return a registry whose account has the repositories ``r0`` to ``r15``."""
    async with open_registry(
        metadata_url, MemoryStore(), limits=Limits(max_open_uploads=3)
    ) as registry:
        for number in range(16):
            path = f"/v2/dev/r{number}/blobs/uploads/?digest={digest_of(CONFIG)}"
            assert (await registry.client.request("POST", path, CONFIG)).status == 201
        yield registry
        with querying(metadata_url) as query:
            check_counters(query, "dev")


async def allow(registry: Registry, quota: str, most: int) -> None:
    account_id = await registry.account_id()
    await registry.ctx.database.write(put_limit, account_id, quota, most, 1)


async def used(registry: Registry, quota: str) -> int:
    found = await registry.ctx.database.read(
        BY_NAME[quota].read, await registry.account_id(), region="local", now=registry.clock()
    )
    return found.used


def document(number: int) -> bytes:
    """Return an image that differs by number."""
    size, digest = len(CONFIG), str(digest_of(CONFIG))
    config = {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest, "size": size}
    annotations = {"number": str(number)}
    return json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": config,
            "layers": [],
            "annotations": annotations,
        }
    ).encode()


async def push(registry: Registry, name: str, reference: str, number: int) -> Answer:
    path = f"/v2/dev/{name}/manifests/{reference}"
    kind = {"content-type": OCI_MANIFEST}
    return await registry.client.request("PUT", path, document(number), kind)


def refused(answer: Answer, quota: str, limit: int, used: int) -> None:
    assert (answer.status, answer.codes) == (403, ["DENIED"]), answer.body
    (error,) = answer.json()["errors"]
    assert error["detail"] == {"quota": quota, "limit": limit, "used": used}
    assert f"may have {limit} {quota}" in error["message"]


@on_both_databases
async def test_an_account_has_so_many_images_and_no_more(registry: Registry) -> None:
    await allow(registry, "images", 2)
    assert (await push(registry, "r0", "v1", 1)).status == 201
    assert (await push(registry, "r1", "v1", 1)).status == 201  # one more, in another repository
    refused(await push(registry, "r0", "v2", 2), "images", 2, 2)
    assert await used(registry, "tags") == 2
    # What is there is tagged, moved and pushed again.
    assert (await push(registry, "r0", "v2", 1)).status == 201
    assert await used(registry, "images") == 2
    path = f"/v2/dev/r1/manifests/{digest_of(document(1))}"
    assert (await registry.client.request("DELETE", path)).status == 202
    assert (await push(registry, "r0", "v2", 2)).status == 201


@on_both_databases
async def test_an_account_has_so_many_tags_and_no_more(registry: Registry) -> None:
    await allow(registry, "tags", 2)
    for tag in ("a", "b"):
        assert (await push(registry, "r0", tag, 1)).status == 201
    refused(await push(registry, "r1", "c", 1), "tags", 2, 2)
    assert await used(registry, "images") == 1  # all or none
    assert (await push(registry, "r0", "a", 2)).status == 201  # it moves
    assert (await push(registry, "r1", str(digest_of(document(1))), 1)).status == 201
    assert (await registry.client.request("DELETE", "/v2/dev/r0/manifests/a")).status == 202
    assert (await push(registry, "r1", "c", 1)).status == 201


@on_both_databases
async def test_an_account_has_so_many_repositories_and_no_more(registry: Registry) -> None:
    await allow(registry, "repositories", 17)
    path = f"blobs/uploads/?digest={digest_of(CONFIG)}"
    ask = registry.client.request
    assert (await ask("POST", f"/v2/dev/new/{path}", CONFIG)).status == 201
    refused(await ask("POST", f"/v2/dev/newer/{path}", CONFIG), "repositories", 17, 17)
    refused(await ask("POST", "/v2/dev/newer/blobs/uploads/"), "repositories", 17, 17)
    assert (await ask("POST", "/v2/dev/new/blobs/uploads/")).status == 202


@on_both_databases
@pytest.mark.parametrize("quota", ["images", "tags", "repositories"])
async def test_sixteen_racing_pushes_never_exceed_a_limit(registry: Registry, quota: str) -> None:
    before = await used(registry, quota)
    await allow(registry, quota, before + 5)
    if quota == "repositories":
        ask, path = registry.client.request, f"blobs/uploads/?digest={digest_of(CONFIG)}"
        asked = [ask("POST", f"/v2/dev/new{number}/{path}", CONFIG) for number in range(16)]
    else:
        asked = [push(registry, f"r{number}", "v1", number) for number in range(16)]
    answers = await asyncio.gather(*asked)
    assert sorted(answer.status for answer in answers) == [201] * 5 + [403] * 11
    assert await used(registry, quota) == before + 5


async def test_the_limits_of_another_account_are_its_own(registry: Registry) -> None:
    write, other = registry.ctx.database.write, uuid7()
    await write(add_account, other, "other", registry.clock())
    for quota in ("images", "tags", "repositories", "upload_sessions", "registry_bytes"):
        await write(put_limit, other, quota, 0, 1)
    assert (await push(registry, "r0", "v1", 1)).status == 201
    for name in ("r0", "new"):
        for size in (8, 80_000):
            data = bytes(size)
            path = f"/v2/dev/{name}/blobs/uploads/"
            location = (await registry.client.request("POST", path)).headers["location"]
            assert (await registry.client.request("PATCH", location, data)).status == 202
            done = f"{location}?digest={digest_of(data)}"
            assert (await registry.client.request("PUT", done)).status == 201


async def test_an_operator_sets_how_many_uploads_may_be_open(registry: Registry) -> None:
    """Beyond, it is 429 as ever: some end by themselves."""
    ask = registry.client.request

    async def open_some() -> list[int]:
        statuses = []
        for number in range(6):
            answer = await ask("POST", f"/v2/dev/r{number}/blobs/uploads/")
            statuses.append(answer.status)
            if answer.status == 202:
                location = answer.headers["location"]
                assert (await ask("PATCH", location, b"x")).status == 202
                opened.append(location)
            else:
                assert f"has {most} uploads open" in answer.json()["errors"][0]["message"]
        return statuses

    opened: list[str] = []
    for most in (3, 5, 0, 1):
        if most != 3:
            await allow(registry, "upload_sessions", most)
        assert await open_some() == [202] * most + [429] * (6 - most)
        assert await used(registry, "upload_sessions") == most
        while opened:
            assert (await ask("DELETE", opened.pop())).status == 204


@on_both_databases
async def test_what_is_created_and_restored_on_v1_is_refused_alike(install: Install) -> None:
    account = await install.add_account("acme")
    program = await install.add_program(account, "ci", ALLOW_ALL)
    client, write = install.connect(), install.database.write
    client.headers.update(bearer(program.access_token))

    def quota_exceeded(answer: Any, used: int) -> None:  # noqa: ANN401 - httpx
        assert answer.status_code == 403, answer.text
        error = answer.json()["error"]
        assert error["code"] == "QUOTA_EXCEEDED"
        assert error["params"] == {"quota": "repositories", "limit": used, "used": used}

    any_number = (await client.get("/v1/quotas/repositories")).json()["quota"]
    assert (any_number["limit"], any_number["used"]) == (1 << 62, 0)
    await write(put_limit, EVERY_ACCOUNT, "repositories", 1, 1)
    first = (await create(client, "one"))["id"]
    quota_exceeded(await client.post("/v1/repositories", json={"name": "two"}), 1)
    assert (await client.delete(f"/v1/repositories/{first}")).status_code == 204
    second = (await create(client, "two"))["id"]
    quota_exceeded(await client.post(f"/v1/repositories/{first}/restore"), 1)
    await write(put_limit, account.id, "repositories", 2, 1)
    assert (await client.post(f"/v1/repositories/{first}/restore")).status_code == 200
    found = (await client.get("/v1/quotas/repositories")).json()["quota"]
    assert (found["used"], found["limit"], found["default"]) == (2, 2, 1)
    assert await write(remove_limit, account.id, "repositories")
    assert second != first


@on_both_databases
@pytest.mark.parametrize("quota", ["images", "tags"])
async def test_images_are_not_restored_beyond_a_limit(undo: UndoWorld, quota: str) -> None:
    account_id = undo.account.id
    digest = await undo.image(b"one", tag="v1")
    await undo.delete(digest)
    await undo.image(b"two", tag="v2")
    await undo.install.database.write(put_limit, account_id, quota, 1, 1)
    answer = await undo.control.post(f"{undo.images}/restore", json={"digests": [digest]})
    assert answer.status_code == 403
    params = {"quota": quota, "limit": 1, "used": 1}
    assert answer.json()["error"]["params"] == params
    assert [each["digest"] for each in await undo.deleted()] == [digest]
    await undo.install.database.write(put_limit, account_id, quota, 2, 1)
    assert (await undo.restore(digest))["failures"] == []
