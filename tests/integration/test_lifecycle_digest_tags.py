"""Signatures that say by a tag, or by a sha512, what they are about: they go with their image."""

from __future__ import annotations

import hashlib
import json
from typing import Final

import pytest

from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.services.lifecycle import runs
from tests.databases import on_both_databases
from tests.integration.lifecycle_world import LifecycleWorld
from tests.integration.pushing import Descriptor
from tests.recount import check_counters, querying

OLD: Final = {"priority": 1, "selector": "any", "older_than_days": 7}
NEWEST: Final = {"priority": 2, "selector": "tagged", "keep_last": 1}
CI: Final = {"priority": 3, "selector": "tagged", "tag_prefixes": ["ci-"], "older_than_days": 7}


def digest_tag(image: Descriptor, ending: str) -> str:
    """Return the tag of what is about an image: ``sha256-….sig`` as cosign writes it."""
    return str(image["digest"]).replace(":", "-") + ending


async def sign(world: LifecycleWorld, image: Descriptor, ending: str = ".sig") -> Descriptor:
    """Push a signature that has no subject but a tag."""
    tag = digest_tag(image, ending)
    return await world.push_image(f"of {tag}", tag)


async def point(world: LifecycleWorld, image: Descriptor, tag: str) -> None:
    """Point a tag to an image."""
    answer = await world.control.put(f"{world.path}/tags/{tag}", json={"digest": image["digest"]})
    assert answer.status_code == 201, answer.text


@on_both_databases
async def test_a_signature_stays_with_its_image_and_goes_with_it(lifecycle: LifecycleWorld) -> None:
    first = await lifecycle.push_image("first", "v1")
    signatures = [await sign(lifecycle, first, ending) for ending in (".sig", ".att", "")]
    await lifecycle.pass_days(8)
    await point(lifecycle, first, "prod")
    assert await lifecycle.previewed(OLD) == {}  # the age of what it is about is what counts
    second = await lifecycle.push_image("second", "v2")
    kept = await sign(lifecycle, second)
    found = await lifecycle.preview(NEWEST)  # no signature is among the newest
    told = {image["digest"]: (image["rule"], image["expires_with"]) for image in found["images"]}
    assert told == {first["digest"]: (2, None)} | {
        each["digest"]: (2, first["digest"]) for each in signatures
    }
    assert found["summary"]["kept_by_rule"] == {"2": 1}
    assert (await lifecycle.run(NEWEST))["expired"] == 4
    assert await lifecycle.digests() == {second["digest"], kept["digest"]}


async def test_what_is_about_several_images_stays_while_one_of_them_does(
    lifecycle: LifecycleWorld,
) -> None:
    gone = await lifecycle.push_image("gone", "ci-1")
    left = await lifecycle.push_image("left", "v1")
    shared = await sign(lifecycle, gone, ".sbom")
    await point(lifecycle, shared, digest_tag(left, ".sbom"))
    named = await sign(lifecycle, gone)
    await point(lifecycle, named, "ci-named")
    itself = await lifecycle.push_image("itself", "ci-2")
    await point(lifecycle, itself, digest_tag(itself, ""))
    await lifecycle.pass_days(8)
    expected = {gone["digest"]: 3, itself["digest"]: 3}
    assert await lifecycle.previewed(CI) == expected
    assert (await lifecycle.run(CI))["expired"] == 2
    # What has a name of its own is an image as any other once it is about none.
    assert await lifecycle.previewed() == {named["digest"]: 3}
    assert await lifecycle.previewed(OLD) == {each["digest"]: 1 for each in (left, named)}


async def test_signatures_follow_in_many_portions(
    lifecycle: LifecycleWorld, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rule takes them: only the expiry of their image takes them along."""
    monkeypatch.setattr(runs, "PORTION", 10)
    image = await lifecycle.push_image("image", "ci-1")
    document = await lifecycle.image_document("signature")
    for number in range(12):
        about = document | {"annotations": {"number": str(number)}}
        await lifecycle.push(about, digest_tag(image, f".{number}"))
    await lifecycle.pass_days(8)
    assert (await lifecycle.run(CI))["expired"] == 13
    assert await lifecycle.digests() == set()
    with querying(sqlite_database) as query:
        check_counters(query, "acme")


async def test_an_image_that_comes_saves_its_signature(lifecycle: LifecycleWorld) -> None:
    document = await lifecycle.image_document("image")
    image = {"digest": digest_of(json.dumps(document).encode())}
    signature = await sign(lifecycle, image)
    await lifecycle.pass_days(8)
    assert await lifecycle.previewed(OLD) == {signature["digest"]: 1}

    async def push_image() -> None:
        await lifecycle.push(document)

    assert (await lifecycle.run(OLD, meddle=push_image))["expired"] == 0
    assert signature["digest"] in await lifecycle.digests()


@pytest.mark.parametrize("is_pushed_by_it", [True, False], ids=["by-sha512", "by-sha256"])
async def test_a_referrer_stays_and_goes_with_a_subject_it_names_by_sha512(
    lifecycle: LifecycleWorld, *, is_pushed_by_it: bool
) -> None:
    document = await lifecycle.image_document("subject")
    body = json.dumps(document).encode()
    name = f"sha512:{hashlib.sha512(body).hexdigest()}"
    subject = await lifecycle.push(document, "v1", reference=name if is_pushed_by_it else None)
    about = {"mediaType": OCI_MANIFEST, "digest": name, "size": len(body)}
    signature = await lifecycle.push_image("signature", subject=about)
    await lifecycle.pass_days(2)
    untagged = {"priority": 1, "selector": "untagged", "older_than_days": 1}
    assert await lifecycle.previewed(untagged) == {}
    every = {"priority": 1, "selector": "tagged", "older_than_days": 1}
    (one, other) = (await lifecycle.preview(every))["images"]
    assert {one["digest"], other["digest"]} == {subject["digest"], signature["digest"]}
    assert (await lifecycle.run(every))["expired"] == 2
    assert await lifecycle.digests() == set()
