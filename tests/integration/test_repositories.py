"""``/v1/repositories`` on both databases: made, described, changed, deleted, purged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import httpx

from registry.gc.purge import discard_expired_uploads, purge_deleted_repositories
from registry.oci.digest import digest_of
from tests.databases import on_both_databases
from tests.integration.pushing import PATH, client_of, create, push_index, read_all, refused
from tests.memory_store import MemoryStore
from tests.recount import querying
from tests.tenants import HOST, Install, allow, bearer


@on_both_databases
async def test_a_repository_from_its_making_to_its_end(client: httpx.AsyncClient) -> None:
    made = await create(
        client,
        "web/app",
        description="The shop",
        tags={"team": "web"},
        tag_mutability="immutable",
        immutable_tag_exclusions=["sha256-*.sig"],
    )
    assert made["crn"].startswith("crn:registry:local:")
    assert made["crn"].endswith(":repository/web/app")
    assert made["uri"] == f"{HOST}/acme/web/app"
    encryption = made["encryption"]
    assert (encryption["source"], encryption["has_plain_blobs"]) == ("platform", False)
    assert encryption["kms_key"]["name"] == "platform"
    assert made["visibility"] == "private"
    assert made["source"] == "user"
    assert (made["image_count"], made["tag_count"], made["size_bytes"]) == (0, 0, 0)
    assert made["last_pushed_at"] is None
    one = f"{PATH}/{made['id']}"
    assert (await client.get(one)).json() == {"repository": made}
    refused(await client.post(PATH, json={"name": "web/app"}), 409, "CONFLICT")

    changed = (await client.patch(one, json={"tags": {}, "description": None})).json()
    assert changed["repository"]["tags"] == {}
    assert changed["repository"]["description"] is None
    assert changed["repository"]["tag_mutability"] == "immutable"
    refused(await client.patch(one, json={"name": "x"}), 400, "INVALID_INPUT", "name")

    assert (await client.delete(one)).status_code == 204
    refused(await client.get(one), 404, "NOT_FOUND")
    refused(await client.delete(one), 404, "NOT_FOUND")
    again = await create(client, "web/app")
    assert again["id"] != made["id"]


WRONG: Final[tuple[tuple[dict[str, Any], str], ...]] = (
    ({}, "name"),
    ({"name": "Upper"}, "name"),
    ({"name": "a//b"}, "name"),
    ({"name": "a/../b"}, "name"),
    ({"name": ""}, "name"),
    ({"name": "a" * 209}, "name"),
    ({"name": "a b"}, "name"),
    ({"name": "é"}, "name"),
    ({"name": "a\n"}, "name"),
    ({"name": "a", "kms_key": "K"}, "kms_key"),
    ({"name": "a", "kms_key": 1}, "kms_key"),
    ({"name": "a", "tag_mutability": "frozen"}, "tag_mutability"),
    ({"name": "a", "tags": {"k": 1}}, "tags"),
    ({"name": "a", "tags": {"": "v"}}, "tags"),
    ({"name": "a", "tags": {str(number): "" for number in range(51)}}, "tags"),
    ({"name": "a", "immutable_tag_exclusions": ["*"] * 6}, "immutable_tag_exclusions"),
    ({"name": "a", "immutable_tag_exclusions": ["[a]"]}, "immutable_tag_exclusions"),
)


async def test_what_cannot_be_a_repository(client: httpx.AsyncClient) -> None:
    for body, field in WRONG:
        answer = await client.post(PATH, json=body)
        assert answer.status_code == 400, (body, answer.text)
        assert answer.json()["error"]["params"]["field"].startswith(field), body
    assert (await client.get(PATH)).json()["meta"]["total"] == 0


@on_both_databases
async def test_the_list_is_filtered_by_name_and_paged(
    install: Install, client: httpx.AsyncClient
) -> None:
    other = await client_of(install, "other")
    await create(other, "web/z")
    for name in ("web/c", "db", "web/a", "web", "web/b", "webb"):
        await create(client, name)

    async def names(**query: str | int) -> list[str]:
        return [each["name"] for each in await read_all(client, PATH, **query)]

    everything = ["db", "web", "web/a", "web/b", "web/c", "webb"]
    assert await names() == everything
    assert await names(limit=2) == everything
    assert await names(name_prefix="web/", limit=1) == ["web/a", "web/b", "web/c"]
    assert await names(name="web") == ["web"]
    assert await names(name="web", name_prefix="db") == []
    assert await names(name_prefix="%") == []
    marker = (await client.get(PATH, params={"limit": 1})).json()["meta"]["marker"]
    query = {"marker": marker, "name_prefix": "web"}
    refused(await client.get(PATH, params=query), 400, "INVALID_INPUT", "marker")


async def test_what_no_name_holds_is_not_looked_for(client: httpx.AsyncClient) -> None:
    for text in ("é", "a b", "a\n", "a" * 211, "\0"):
        for field in ("name", "name_prefix"):
            answer = await client.get(PATH, params={field: text})
            refused(answer, 400, "INVALID_INPUT", field, about=text)


async def test_rights_over_a_prefix_reach_no_further(install: Install) -> None:
    crn = "crn:registry:local:acme:repository/web/*"
    client = await client_of(install, "acme", allow("registry:*", on=crn))
    await create(client, "web/a")
    refused(await client.post(PATH, json={"name": "db/a"}), 403, "ACCESS_DENIED")
    refused(await client.get(PATH), 403, "ACCESS_DENIED")
    listed = await client.get(PATH, params={"name_prefix": "web/"})
    assert listed.json()["meta"]["total"] == 1
    refused(await client.get(PATH, params={"name_prefix": "we"}), 403, "ACCESS_DENIED")


async def test_rights_over_names_of_one_length_are_none_over_a_list(install: Install) -> None:
    """A ``?`` stands for one character of a name, never for the ``*`` that a list is asked by."""
    crns = [f"crn:registry:local:acme:repository/{name}" for name in ("web-?", "?")]
    client = await client_of(install, "acme", *(allow("registry:*", on=crn) for crn in crns))
    await create(client, "web-1")
    assert (await client.get(PATH, params={"name": "web-1"})).json()["meta"]["total"] == 1
    refused(await client.get(PATH, params={"name_prefix": "web-"}), 403, "ACCESS_DENIED")
    for path in (PATH, f"{PATH}/deleted", "/v1/storage-usage"):
        refused(await client.get(path), 403, "ACCESS_DENIED")


async def test_a_repository_with_images_goes_only_by_force_and_takes_them_along(
    install: Install, client: httpx.AsyncClient, database_url: str
) -> None:
    made = await create(client, "r")
    one = f"{PATH}/{made['id']}"
    password = (await client.post("/v1/authorization-token")).json()["password"]
    token = await install.exchange(password, "repository:acme/r:pull,push")
    async with install.connect() as docker:
        docker.headers.update(bearer(token))
        await push_index(docker)
        opened = await docker.post("/v2/acme/r/blobs/uploads/")
        upload = opened.headers["location"]
        assert (await docker.patch(upload, content=b"x")).status_code == 202
        found = (await client.get(one)).json()["repository"]
        assert (found["image_count"], found["tag_count"]) == (3, 1)
        assert found["last_pushed_at"] is not None

        refused(await client.delete(one), 409, "CONFLICT")
        refused(await client.delete(f"{one}?force=yes"), 400, "INVALID_INPUT", "force")
        assert (await docker.get("/v2/acme/r/manifests/v1")).status_code == 200
        assert (await client.delete(f"{one}?force=true")).status_code == 204

        answer = await docker.get("/v2/acme/r/manifests/v1")
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (404, "NAME_UNKNOWN")
        assert (await docker.patch(upload, content=b"x")).status_code == 404
        assert (await docker.get("/v2/acme/r/tags/list")).status_code == 404
        new = await create(client, "r")
        assert new["image_count"] == 0
        install.clock.advance(7 * 24 * 3600 - 1)
        assert await purge_deleted_repositories(install.ctx) == 0  # it may be restored
        assert await discard_expired_uploads(install.ctx) == 1
        install.clock.advance(1)
        assert await purge_deleted_repositories(install.ctx) == 1
    with querying(database_url) as query:
        for table in ("manifests", "tags", "repository_blobs", "manifest_bodies", "uploads"):
            assert query(f"SELECT count(*) FROM {table}")[0][0] == 0
        assert [row[0] for row in query("SELECT id FROM repositories")] == [new["id"]]


async def test_a_repository_that_cannot_be_restored_stays_as_long_as_requests_that_found_it(
    install: Install, client: httpx.AsyncClient
) -> None:
    days = {"undelete_days": 0}
    assert (await client.patch("/v1/registry-settings", json=days)).status_code == 200
    made = await create(client, "r")
    assert (await client.delete(f"{PATH}/{made['id']}")).status_code == 204
    install.clock.advance(3600 - 1)
    assert await purge_deleted_repositories(install.ctx) == 0
    install.clock.advance(1)
    assert await purge_deleted_repositories(install.ctx) == 1


async def test_a_blob_that_ends_after_its_repository_is_not_kept(
    install: Install, client: httpx.AsyncClient
) -> None:
    made = await create(client, "r")
    password = (await client.post("/v1/authorization-token")).json()["password"]
    token = await install.exchange(password, "repository:acme/r:pull,push")

    async def body() -> AsyncIterator[bytes]:
        yield b"first "
        assert (await client.delete(f"{PATH}/{made['id']}")).status_code == 204
        yield b"second"

    async with install.connect() as docker:
        answer = await docker.post(
            f"/v2/acme/r/blobs/uploads/?digest={digest_of(b'first second')}",
            content=body(),
            headers=bearer(token),
        )
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (404, "NAME_UNKNOWN")
    store = install.ctx.reader
    assert isinstance(store, MemoryStore)
    assert not store.files.objects
    assert not store.files.staged
