"""``/v1/repositories/{id}/tags`` on both databases: listed, pointed, deleted."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import pytest

from registry.oci.digest import digest_of
from tests.databases import on_both_databases
from tests.integration.images_world import ABSENT, Reader, open_world
from tests.integration.pushing import World, refused

FIELDS: Final = {"name", "digest", "image_id", "mutable", "created_at", "updated_at"}


async def test_a_tag_has_dates_and_says_whether_it_may_move(database_url: str) -> None:
    async with open_world(
        database_url, tag_mutability="immutable", immutable_tag_exclusions=["s*"]
    ) as world:
        pushed = await world.push_image("one", "v1", "sig")
        (image,) = (await world.get("/images"))["images"]
        listed = (await world.get("/tags"))["tags"]
        assert [each["name"] for each in listed] == ["sig", "v1"]
        for each, mutable in zip(listed, (True, False), strict=True):
            assert each.keys() == FIELDS
            assert each["digest"] == pushed["digest"]
            assert each["image_id"] == image["id"]
            assert each["mutable"] is mutable
            assert each["created_at"] == each["updated_at"] == image["pushed_at"]
            assert await world.get(f"/tags/{each['name']}") == {"tag": each}


@on_both_databases
async def test_a_push_under_another_digest_moves_no_tag(world: World) -> None:
    document = await world.image_document("one")
    await world.push(document, "v1")
    before = await world.get("/tags/v1")
    await world.pass_seconds(60)
    sha512 = digest_of(json.dumps(document).encode(), "sha512")
    await world.push(document, "v1", reference=sha512)
    assert await world.get("/tags/v1") == before
    assert (await world.get("/tags/v1/history"))["meta"]["total"] == 1
    answer = await world.docker.head(f"/v2/{world.name}/manifests/v1")
    assert answer.headers["docker-content-digest"] == sha512


@on_both_databases
@pytest.mark.parametrize("limit", [2, 200])
async def test_tags_are_listed_in_byte_order_and_by_prefix(world: World, limit: int) -> None:
    names = ["v1", "v1.0", "V1", "_v", "v1-rc", "v1_x", "v10", "w", "9", "a-b", "v1.0.1"]
    for each in names:
        await world.push_image("same", each)
    for prefix, wanted in (
        ("", sorted(names)),
        ("v1", ["v1", "v1-rc", "v1.0", "v1.0.1", "v10", "v1_x"]),
        ("v1.", ["v1.0", "v1.0.1"]),
        ("_", ["_v"]),
        ("%", []),
        ("V", ["V1"]),
        ("é", []),
        ("v1.0.1", ["v1.0.1"]),
    ):
        listed = await world.all("/tags", prefix=prefix, limit=limit)
        assert [each["name"] for each in listed] == wanted, prefix


@on_both_databases
async def test_a_tag_is_pointed_without_a_pull(world: World) -> None:
    one, two = [(await world.push_image(each))["digest"] for each in ("one", "two")]
    path = f"{world.path}/tags/v1"
    refused(await world.control.put(path, json={"digest": ABSENT}), 404, "NOT_FOUND")
    refused(await world.control.get(path), 404, "NOT_FOUND")

    made = await world.control.put(path, json={"digest": one})
    assert made.status_code == 201
    assert made.json() == (await world.get("/tags/v1"))
    moved = await world.control.put(path, json={"digest": two})
    assert moved.status_code == 200
    tag = moved.json()["tag"]
    assert tag["digest"] == two
    assert tag["created_at"] == made.json()["tag"]["created_at"] < tag["updated_at"]
    again = await world.control.put(path, json={"digest": two})
    assert (again.status_code, again.json()) == (200, moved.json())
    refused(await world.control.put(path, json={"digest": ABSENT}), 404, "NOT_FOUND")
    assert (await world.get("/tags/v1"))["tag"] == tag

    pulled = await world.docker.get(f"/v2/{world.name}/manifests/v1")
    assert pulled.headers["docker-content-digest"] == two
    record = await world.record()
    assert (record["image_count"], record["tag_count"]) == (2, 1)
    tagged = await world.get("/images", tag_status="tagged")
    assert [each["digest"] for each in tagged["images"]] == [two]


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("If-Match", '"{old}"', 200),
        ("If-Match", '"{new}", "{old}"', 200),
        ("If-Match", "*", 200),
        ("If-Match", 'W/"{old}"', 412),  # RFC 9110 §13.1.1: compared strongly
        ("If-Match", '"{new}"', 412),
        ("If-Match", "{old}", 412),
        ("If-None-Match", "*", 412),
        ("If-None-Match", '"{old}"', 412),
        ("If-None-Match", '"{new}"', 200),
        ("If-None-Match", "{new}", 412),  # names nothing: no licence to overwrite
        ("If-None-Match", '"*"', 412),
    ],
)
async def test_a_tag_moves_on_conditions(
    world: World, header: str, value: str, status: int
) -> None:
    old, new = [(await world.push_image(each))["digest"] for each in ("old", "new")]
    path = f"{world.path}/tags/v1"
    assert (await world.control.put(path, json={"digest": old})).status_code == 201
    condition = {header: value.format(old=old, new=new)}
    answer = await world.control.put(path, json={"digest": new}, headers=condition)
    assert answer.status_code == status
    if status == 412:
        assert refused(answer, 412, "PRECONDITION_FAILED") == {"tag": "v1"}
    found = (await world.get("/tags/v1"))["tag"]["digest"]
    assert found == (new if status == 200 else old)


@on_both_databases
async def test_conditions_of_a_tag_that_is_not_there(world: World) -> None:
    digest = (await world.push_image("one"))["digest"]
    path, body = f"{world.path}/tags/v1", {"digest": digest}
    for value in ("*", f'"{digest}"'):
        answer = await world.control.put(path, json=body, headers={"If-Match": value})
        refused(answer, 412, "PRECONDITION_FAILED")
    refused(await world.control.get(path), 404, "NOT_FOUND")
    new = {"If-None-Match": "*"}
    assert (await world.control.put(path, json=body, headers=new)).status_code == 201
    refused(await world.control.put(path, json=body, headers=new), 412, "PRECONDITION_FAILED")
    lines = [("If-Match", f'"{ABSENT}"'), ("If-Match", f'"{digest}"')]
    assert (await world.control.put(path, json=body, headers=lines)).status_code == 200


@pytest.mark.parametrize("plane", ["/v1", "/v2"])
async def test_a_tag_is_deleted_on_conditions(world: World, plane: str) -> None:
    digest = (await world.push_image("one", "v1"))["digest"]
    client, path = (
        (world.control, f"{world.path}/tags/v1")
        if plane == "/v1"
        else (world.docker, f"/v2/{world.name}/manifests/v1")
    )
    for condition in ({"If-Match": f'"{ABSENT}"'}, {"If-None-Match": "*"}):
        assert (await client.delete(path, headers=condition)).status_code == 412
    assert await world.tags() == ["v1"]
    gone = await client.delete(path, headers={"If-Match": f'"{digest}"'})
    assert gone.status_code == (204 if plane == "/v1" else 202)
    assert (await client.delete(path, headers={"If-Match": "*"})).status_code == 404


@on_both_databases
async def test_of_many_who_move_a_tag_from_one_place_one_does(world: World) -> None:
    digests = [(await world.push_image(str(each)))["digest"] for each in range(6)]
    path = f"{world.path}/tags/v1"
    await world.control.put(path, json={"digest": digests[0]})
    seen = {"If-Match": f'"{digests[0]}"'}
    answers = await asyncio.gather(
        *(world.control.put(path, json={"digest": to}, headers=seen) for to in digests[1:])
    )
    statuses = [answer.status_code for answer in answers]
    assert sorted(statuses) == [200, 412, 412, 412, 412]
    moved_to = digests[1 + statuses.index(200)]
    assert (await world.get("/tags/v1"))["tag"]["digest"] == moved_to


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("marker=", "marker"),
        ("marker=abc", "marker"),
        ("marker=01890000-0000-7000-8000-000000000000", "marker"),
        ("prefix=%00", "prefix"),
    ],
)
def test_queries_that_are_none(reader: Reader, query: str, field: str) -> None:
    refused(reader.ask("GET", f"/tags?{query}"), 400, "INVALID_INPUT", field)


@pytest.mark.parametrize(
    "tag", ["absent", ".hidden", "-x", "a" * 129, "a:b", "%20", "v1%0A", "%FF", "é", ABSENT]
)
def test_names_of_no_tag(reader: Reader, tag: str) -> None:
    for method in ("GET", "DELETE"):
        refused(reader.ask(method, f"/tags/{tag}"), 404, "NOT_FOUND")
    body = json.dumps({"digest": ABSENT})
    answer = reader.ask("PUT", f"/tags/{tag}", body)
    if tag == "absent":
        refused(answer, 404, "NOT_FOUND")
    else:
        refused(answer, 400, "INVALID_INPUT", "tag")
    assert reader.ask("GET", "/tags").json()["meta"]["total"] == 1


@pytest.mark.parametrize("tag", ["", "%00", "a%2Fb", "v1/"])
def test_paths_that_are_none(reader: Reader, tag: str) -> None:
    for method in ("GET", "DELETE", "PUT"):
        assert reader.ask(method, f"/tags/{tag}").status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "digest"),
        ({"digest": None}, "digest"),
        ({"digest": 1}, "digest"),
        ({"digest": ""}, "digest"),
        ({"digest": "v1"}, "digest"),
        ({"digest": "sha256:0"}, "digest"),
        ({"digest": f"sha256:{'A' * 64}"}, "digest"),
        ({"digest": f"md5:{'0' * 32}"}, "digest"),
        ({"digest": f"{ABSENT}\n"}, "digest"),
        ({"digest": ABSENT, "tag": "v2"}, "tag"),
        ([], ""),
        (None, ""),
    ],
)
def test_bodies_that_point_nowhere(reader: Reader, body: Any, field: str) -> None:  # noqa: ANN401
    answer = reader.ask("PUT", "/tags/new", json.dumps(body))
    assert refused(answer, 400, "INVALID_INPUT")["field"].startswith(field)
    refused(reader.ask("GET", "/tags/new"), 404, "NOT_FOUND")
