"""``/v1/repositories/{id}/images`` on both databases: listed, read, deleted."""

from __future__ import annotations

import itertools
import json
from typing import Final

import pytest

from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_INDEX, OCI_MANIFEST
from tests.databases import on_both_databases
from tests.integration.images_world import ABSENT, NOBODY, Reader
from tests.integration.pushing import CONFIG_TYPE, World, refused


async def walk(world: World, path: str = "/images", **query: str | int) -> list[str]:
    """Return the digests of all pages of a list."""
    return [each["digest"] for each in await world.all(path, **query)]


@on_both_databases
async def test_an_image_has_the_fields_of_the_specification(world: World) -> None:
    image = await world.push_image("layer", "b", "B", "a_1")
    about = {"subject": image, "artifactType": "application/vnd.example.signature"}
    signature = await world.push_image("sig", **about)
    index = await world.push_index([image, signature], "latest")
    listed = (await world.get("/images"))["images"]
    assert [each["digest"] for each in listed] == [
        each["digest"] for each in (index, signature, image)
    ]
    top, signed, plain = listed
    assert plain == {
        "id": plain["id"],
        "digest": image["digest"],
        "media_type": OCI_MANIFEST,
        "tags": ["B", "a_1", "b"],
        "artifact_type": CONFIG_TYPE,
        "config_digest": digest_of(b"{}"),
        "manifest_size_bytes": image["size"],
        "size_bytes": len("{}") + len("layer"),
        "is_index": False,
        "last_pulled_at": None,
        "pushed_at": plain["pushed_at"],
    }
    assert plain["pushed_at"].endswith("Z")
    assert signed.keys() == {*plain, "subject"}
    assert (signed["subject"], signed["tags"]) == (image["digest"], [])
    assert signed["artifact_type"] == "application/vnd.example.signature"
    assert top.keys() == plain.keys() - {"config_digest", "artifact_type"}
    assert (top["media_type"], top["is_index"]) == (OCI_INDEX, True)
    for each in listed:
        assert await world.get(f"/images/{each['digest']}") == {"image": each}
        assert await world.get(f"/images/{each['id']}") == {"image": each}


@pytest.mark.parametrize("algorithm", ["sha512", "blake3"])
async def test_any_verified_digest_finds_the_image_and_the_answer_says_sha256(
    world: World, algorithm: str
) -> None:
    image = await world.image_document("one")
    body = json.dumps(image).encode()
    alias = digest_of(body, algorithm)
    pushed = await world.push(image, reference=alias)
    found = (await world.get(f"/images/{alias}"))["image"]
    assert found["digest"] == pushed["digest"]
    raw = await world.control.get(f"{world.images}/{alias}/manifest")
    assert raw.content == body
    tag = f"{world.path}/tags/v1"
    answer = await world.control.put(tag, json={"digest": alias})
    assert answer.json()["tag"]["digest"] == pushed["digest"]
    never_verified = digest_of(b"", algorithm)
    path = f"{world.images}/{never_verified}"
    refused(await world.control.get(path), 404, "NOT_FOUND")
    signature = await world.push_image("sig", subject={**image["config"], "digest": alias})
    assert await walk(world, f"/images/{pushed['digest']}/referrers") == [signature["digest"]]
    assert (await world.control.delete(f"{world.images}/{alias}")).status_code == 204


@on_both_databases
async def test_a_short_digest_finds_the_one_image_that_has_it(world: World) -> None:
    image = await world.push_image("one")
    (found,) = (await world.get("/images"))["images"]
    digits = image["digest"].removeprefix("sha256:")
    for short in (digits[:6], digits[:12], digits[:63], image["digest"][:13]):
        assert await world.get(f"/images/{short}") == {"image": found}
    other = f"{digits[:11]}{'0' if digits[11] != '0' else '1'}"
    for none in (other, digits[:5], f"{digits[:12]}A", digits, f"sha512:{digits[:12]}"):
        refused(await world.control.get(f"{world.images}/{none}"), 404, "NOT_FOUND")


async def test_a_short_digest_of_several_images_is_refused(world: World) -> None:
    document = await world.image_document("one")
    seen: dict[str, dict[str, object]] = {}
    for number in itertools.count():  # some five thousand, until two begin with the same digits
        other = document | {"annotations": {"n": str(number)}}
        short = digest_of(json.dumps(other).encode())[: len("sha256:") + 6]
        if short in seen:
            break
        seen[short] = other
    first, _ = await world.push(seen[short]), await world.push(other)
    params = refused(await world.control.get(f"{world.images}/{short}"), 400, "INVALID_INPUT")
    assert (params["field"], params["reason"]) == ("digest", "ambiguous")
    found = (await world.get(f"/images/{first['digest'][: len(short) + 12]}"))["image"]
    assert found["digest"] == first["digest"]


async def test_referrers_are_those_of_both_names_of_an_image(world: World) -> None:
    image = await world.image_document("one")
    pushed = await world.push(image)
    names = [pushed["digest"], digest_of(json.dumps(image).encode(), "sha512")]
    about = [
        await world.push_image(f"{each}", subject={**image["config"], "digest": name})
        for each, name in enumerate(names * 2)
    ]
    newest = [each["digest"] for each in reversed(about)]
    for name in (*names, (await world.get(f"/images/{names[1]}"))["image"]["id"]):
        assert await walk(world, f"/images/{name}/referrers") == newest


async def test_the_manifest_comes_as_it_was_pushed(world: World) -> None:
    image = await world.image_document("one")
    pushed = await world.push(image)
    answer = await world.control.get(f"{world.images}/{pushed['digest']}/manifest")
    assert answer.content == json.dumps(image).encode()
    assert answer.headers["content-type"] == OCI_MANIFEST
    index = await world.push_index([pushed])
    path = f"{world.images}/{index['digest']}/manifest"
    answer = await world.control.get(path)
    assert answer.headers["content-type"] == OCI_INDEX
    assert digest_of(answer.content) == index["digest"]
    head = await world.control.head(path)
    assert (head.status_code, head.content) == (200, b"")


@on_both_databases
async def test_the_list_is_filtered_and_paged_newest_first(world: World) -> None:
    tags = [("v1", "v1.0"), (), ("v10",), ("w_1",), ("w1", "x%"[:1]), (), ("V1",)]
    made = [await world.push_image(str(each), *names) for each, names in enumerate(tags)]
    newest = [each["digest"] for each in reversed(made)]

    def of(*numbers: int) -> list[str]:
        return [made[each]["digest"] for each in numbers]

    for query, wanted in (
        ({}, newest),
        ({"tag_status": "any"}, newest),
        ({"tag_status": "tagged"}, of(6, 4, 3, 2, 0)),
        ({"tag_status": "untagged"}, of(5, 1)),
        ({"tag_prefix": "v1"}, of(2, 0)),
        ({"tag_prefix": "v1", "tag_status": "tagged"}, of(2, 0)),
        ({"tag_prefix": "v1", "tag_status": "untagged"}, []),
        ({"tag_prefix": ""}, of(6, 4, 3, 2, 0)),
        ({"tag_prefix": "w_"}, of(3)),
        ({"tag_prefix": "_"}, []),
        ({"tag_prefix": "%"}, []),
        ({"tag_prefix": "v%"}, []),
        ({"tag_prefix": "V"}, of(6)),
        ({"tag_prefix": "é"}, []),
        ({"tag_prefix": "\x7f"}, []),
    ):
        for limit in (2, 200):
            assert await walk(world, limit=limit, **query) == wanted, (query, limit)


@on_both_databases
@pytest.mark.parametrize("query", [{}, {"tag_status": "tagged"}, {"tag_prefix": "t"}])
async def test_pages_survive_deletes_between_them(world: World, query: dict[str, str]) -> None:
    """No survivor twice, none left out; the marker's own image may be gone."""
    made = [await world.push_image(str(each), f"t{each}") for each in range(12)]
    digests = [each["digest"] for each in made]

    async def page(**query: str | None) -> tuple[list[int], str | None, int]:
        given = {name: value for name, value in query.items() if value is not None}
        found = await world.get("/images", limit=3, **given)
        numbers = [digests.index(each["digest"]) for each in found["images"]]
        return numbers, found["meta"].get("marker"), found["meta"]["total"]

    numbers, marker, total = await page(**query)
    assert (numbers, total) == ([11, 10, 9], 12)
    for number in (11, 9, 8):  # seen, the marker's own, and the next
        await world.delete(digests[number])
    numbers, marker, total = await page(marker=marker, **query)
    assert (numbers, total) == ([7, 6, 5], 9)
    await world.push_image("new", "t-new")
    digests.append("")
    for number in (5, 4, 3, 0):
        await world.delete(digests[number])
    numbers, marker, total = await page(marker=marker, **query)
    assert (numbers, marker, total) == ([2, 1], None, 6)


@on_both_databases
async def test_a_tag_that_moves_between_pages(world: World) -> None:
    made = [await world.push_image(str(each), f"t{each}") for each in range(4)]
    oldest, _, third, newest = (each["digest"] for each in made)
    first = await world.get("/images", tag_status="tagged", limit=2)
    assert [each["digest"] for each in first["images"]] == [newest, third]
    for tag, digest in (("t0", newest), ("t3", oldest)):
        put = await world.control.put(f"{world.path}/tags/{tag}", json={"digest": digest})
        assert put.status_code == 200
    marker = first["meta"]["marker"]
    assert marker == first["images"][-1]["id"]
    rest = await world.get("/images", tag_status="tagged", limit=2, marker=marker)
    assert [each["tags"] for each in rest["images"]] == [["t1"], ["t3"]]
    assert rest["meta"]["total"] == 4
    assert not rest["meta"]["has_more"]


def test_queries_that_are_none_and_some_that_are_fine(reader: Reader) -> None:
    markers = ("", "abc", f"{NOBODY.upper()[:-1]}G", f"%7B{NOBODY}%7D", "%00")
    for query in (
        *("limit=0", "limit=201", *(f"marker={each}" for each in markers)),
        *(f"marker={NOBODY}&marker={NOBODY}", "tag_status=x", "tag_status=TAGGED"),
        "tag_prefix=%00",
    ):
        answer = reader.ask("GET", f"/images?{query}")
        refused(answer, 400, "INVALID_INPUT", query.partition("=")[0], about=query)
    last = f"{'f' * 8}-ffff-ffff-ffff-{'f' * 12}"
    for query in (f"marker={NOBODY}", f"marker={last}", "unknown=1", "limit=200"):
        answer = reader.ask("GET", f"/images?{query}")
        assert answer.status_code == 200, answer.text
        assert answer.json()["meta"]["total"] == 1


NAMES: Final = (
    *(ABSENT, NOBODY, "sha256:0", f"sha256:{'A' * 64}", f"sha256:{'0' * 63}"),
    *(f"sha256:{'0' * 65}", f"md5:{'0' * 32}", f"sha512:{'0' * 64}", f"sha256%3A{'0' * 64}"),
    *("v1", "%20", "%FF", "{}", "x" * 4000, f"urn:uuid:{NOBODY}", NOBODY.replace("-", "")),
    *("..%5C", "%EF%BC%91"),
)


def test_names_of_no_image(reader: Reader) -> None:
    for name in NAMES:
        path = f"/images/{name}"
        for method, ending in (("GET", ""), ("GET", "/manifest"), ("DELETE", "")):
            refused(reader.ask(method, f"{path}{ending}"), 404, "NOT_FOUND", about=name)
        refused(reader.ask("DELETE", f"{path}?force=true"), 404, "NOT_FOUND", about=name)
        answer = reader.ask("GET", f"{path}/referrers")
        if name == ABSENT or name.startswith("sha256%3A"):  # it may come yet
            assert answer.json()["meta"]["total"] == 0
        else:
            refused(answer, 404, "NOT_FOUND", about=name)
    for name in ("%00", "", "a%2Fb", "/"):
        for method in ("GET", "DELETE"):
            refused(reader.ask(method, f"/images/{name}"), 404, "NOT_FOUND", about=name)
    answer = reader.ask("DELETE", f"/images/{ABSENT}?force=yes")
    refused(answer, 400, "INVALID_INPUT", "force")
    assert reader.ask("GET", "/images").json()["meta"]["total"] == 1


def test_batches_that_are_none(reader: Reader) -> None:
    for body, field in (
        ({"digests": None}, "digests"),
        ({"digests": "x"}, "digests"),
        ({"tags": [None]}, "tags"),
        ({"digests": [ABSENT] * 101}, "digests"),
        ({"tags": ["v1"] * 101}, "tags"),
        ([], ""),
        (None, ""),
    ):
        answer = reader.ask("POST", "/images/batch-delete", json.dumps(body))
        params = refused(answer, 400, "INVALID_INPUT", about=body)
        assert params["field"].startswith(field)
    assert reader.ask("GET", "/images").json()["meta"]["total"] == 1


@on_both_databases
async def test_referrers_are_listed_newest_first_and_filtered(world: World) -> None:
    image = await world.push_image("one", "v1")
    made = [
        await world.push_image(
            f"r{each}", subject=image, artifactType=f"application/vnd.example.{each % 2}"
        )
        for each in range(5)
    ]
    digests = [each["digest"] for each in reversed(made)]
    path = f"/images/{image['digest']}/referrers"
    assert await walk(world, path, limit=2) == digests
    kind = "application/vnd.example.1"
    assert await walk(world, path, artifact_type=kind, limit=1) == digests[1::2]
    assert await walk(world, path, artifact_type="'--") == []
    typed = await world.push_image("t", subject=image, artifactType="application/vnd.x+json")
    for plus in ("+", "%2B"):
        query = f"artifact_type=application/vnd.x{plus}json"
        answer = await world.control.get(f"{world.path}{path}?{query}")
        (found,) = answer.json()["images"]
        assert found["digest"] == typed["digest"]
    await world.delete(typed["digest"])
    ident = (await world.get(f"/images/{image['digest']}"))["image"]["id"]
    assert await walk(world, f"/images/{ident}/referrers") == digests
    page = await world.get(path, limit=2)
    await world.delete(digests[1])
    rest = await world.get(path, limit=200, marker=page["meta"]["marker"])
    assert [each["digest"] for each in rest["images"]] == digests[2:]
    # They outlive what they are about, as on the data plane.
    await world.delete(image["digest"])
    assert len(await walk(world, path)) == 4
    answer = await world.control.get(f"{world.path}{path}", params={"artifact_type": "\0"})
    refused(answer, 400, "INVALID_INPUT", "artifact_type")
