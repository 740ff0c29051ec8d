"""``/v1/repositories/{id}/tags`` on both databases: listed, pointed, deleted."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from registry.oci.digest import digest_of
from tests.databases import on_both_databases
from tests.integration.images_world import ABSENT, Reader, open_world
from tests.integration.pushing import World, refused

FIELDS: Final = {"name", "digest", "image_id", "mutable", "created_at", "updated_at"}


async def test_a_tag_has_dates_and_says_whether_it_may_move(metadata_url: str) -> None:
    async with open_world(
        metadata_url, tag_mutability="immutable", immutable_tag_exclusions=["s*"]
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
async def test_tags_are_listed_in_byte_order_and_by_prefix(world: World) -> None:
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
        for limit in (2, 200):
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


async def test_a_tag_moves_on_conditions(world: World) -> None:
    """`tests/unit/test_conditions.py` has all forms that a condition may have."""
    old, new = [(await world.push_image(each))["digest"] for each in ("old", "new")]
    path = f"{world.path}/tags/v1"
    assert (await world.control.put(path, json={"digest": old})).status_code == 201
    for header, value, status in (
        ("If-Match", f'W/"{old}"', 412),  # RFC 9110 §13.1.1: compared strongly
        ("If-Match", f'"{new}"', 412),
        ("If-Match", old, 412),
        ("If-None-Match", "*", 412),
        ("If-None-Match", new, 412),  # names nothing: no licence to overwrite
        ("If-Match", f'"{new}", "{old}"', 200),
    ):
        answer = await world.control.put(path, json={"digest": new}, headers={header: value})
        assert answer.status_code == status, value
        if status == 412:
            assert refused(answer, 412, "PRECONDITION_FAILED") == {"tag": "v1"}
        found = (await world.get("/tags/v1"))["tag"]["digest"]
        assert found == (new if status == 200 else old)


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


async def test_a_tag_is_deleted_on_conditions(world: World) -> None:
    digest = (await world.push_image("one", "v1", "v2"))["digest"]
    for client, path, status in (
        (world.control, f"{world.path}/tags/v1", 204),
        (world.docker, f"/v2/{world.name}/manifests/v2", 202),
    ):
        before = await world.tags()
        for condition in ({"If-Match": f'"{ABSENT}"'}, {"If-None-Match": "*"}):
            assert (await client.delete(path, headers=condition)).status_code == 412
        assert await world.tags() == before
        gone = await client.delete(path, headers={"If-Match": f'"{digest}"'})
        assert gone.status_code == status
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


def test_queries_that_are_none(reader: Reader) -> None:
    markers = ("", "abc", "01890000-0000-7000-8000-000000000000")
    for query in ("limit=0", *(f"marker={each}" for each in markers), "prefix=%00"):
        field = query.partition("=")[0]
        refused(reader.ask("GET", f"/tags?{query}"), 400, "INVALID_INPUT", field)


def test_names_of_no_tag(reader: Reader) -> None:
    body = json.dumps({"digest": ABSENT})
    wrong = (".hidden", "-x", "a" * 129, "a:b", "%20", "v1%0A", "%FF", "é", ABSENT)
    for tag in ("absent", *wrong):
        for method in ("GET", "DELETE"):
            refused(reader.ask(method, f"/tags/{tag}"), 404, "NOT_FOUND")
        answer = reader.ask("PUT", f"/tags/{tag}", body)
        if tag == "absent":
            refused(answer, 404, "NOT_FOUND")
        else:
            refused(answer, 400, "INVALID_INPUT", "tag")
    assert reader.ask("GET", "/tags").json()["meta"]["total"] == 1


def test_paths_that_are_none(reader: Reader) -> None:
    for tag in ("", "%00", "a%2Fb", "v1/"):
        for method in ("GET", "DELETE", "PUT"):
            assert reader.ask(method, f"/tags/{tag}").status_code == 404, tag


def test_bodies_that_point_nowhere(reader: Reader) -> None:
    digests = (
        None,
        1,
        "",
        "v1",
        "sha256:0",
        f"sha256:{'A' * 64}",
        f"md5:{'0' * 32}",
        f"{ABSENT}\n",
    )
    bodies: list[tuple[Any, str]] = [
        ({}, "digest"),
        *(({"digest": each}, "digest") for each in digests),
        ({"digest": ABSENT, "tag": "v2"}, "tag"),
        ([], ""),
        (None, ""),
    ]
    for body, field in bodies:
        answer = reader.ask("PUT", "/tags/new", json.dumps(body))
        assert refused(answer, 400, "INVALID_INPUT")["field"].startswith(field), body
    refused(reader.ask("GET", "/tags/new"), 404, "NOT_FOUND")
