"""The referrers of cached images: as the upstream tells them, by its API or by a tag."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_INDEX, OCI_MANIFEST
from registry.upstream.base import HiddenUpstream, UpstreamUnreachable
from tests.databases import on_both_databases
from tests.inprocess import Client
from tests.integration.mirror_world import APP, HANDLE, NAME, TTL, CachedWorld
from tests.manifest_upstream import described

pytestmark = on_both_databases
DOWN = UpstreamUnreachable("the connection was reset")


def signature(kind: str = "application/signature") -> dict[str, Any]:
    return described(kind.encode(), OCI_MANIFEST) | {
        "artifactType": kind,
        "annotations": {"made": "once"},
    }


def index(*descriptors: dict[str, Any]) -> bytes:
    listed = [{**each, "urls": ["https://evil.example"]} for each in descriptors]
    return json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": listed}).encode()


async def test_an_upstream_is_asked_once_while_its_answer_is_fresh(cached: CachedWorld) -> None:
    subject = await cached.pulled()
    cached.upstream.referrers[subject] = index(signature(), signature("application/sbom"))
    for _ in range(2):
        answer = await cached.ask("GET", f"referrers/{subject}")
        assert answer.status == 200
        assert answer.headers["content-type"] == OCI_INDEX
        assert answer.json()["manifests"] == [signature(), signature("application/sbom")]
    some = await cached.ask("GET", f"referrers/{subject}?artifactType=application/sbom")
    assert some.json()["manifests"] == [signature("application/sbom")]
    assert some.headers["oci-filters-applied"] == "artifactType"
    assert cached.upstream.count("REFERRERS") == 1
    cached.upstream.referrers[subject] = index()
    cached.clock.advance(TTL)
    assert await cached.referrers(subject) == []
    assert cached.upstream.count("REFERRERS") == 2


@pytest.mark.parametrize("failure", [DOWN, HiddenUpstream()], ids=["down", "hidden"])
async def test_stale_referrers_tell_their_age(cached: CachedWorld, failure: Exception) -> None:
    subject = cached.upstream.add_image(APP, "v1")
    cached.upstream.referrers[subject] = index(signature())
    await cached.pull("v1")
    await cached.ask("GET", f"referrers/{subject}")
    cached.clock.advance(TTL)
    cached.upstream.failure = failure
    answer = await cached.ask("GET", f"referrers/{subject}")
    assert answer.json()["manifests"] == [signature()]
    assert answer.headers["warning"] == '299 - "upstream unreachable"'
    assert int(answer.headers["age"]) >= TTL
    await cached.switch(on=False)
    assert "warning" not in (await cached.ask("GET", f"referrers/{subject}")).headers


async def test_without_an_answer_from_before_a_failure_is_a_503(cached: CachedWorld) -> None:
    subject = await cached.pulled()
    cached.upstream.failure = DOWN
    answer = await cached.ask("GET", f"referrers/{subject}")
    assert answer.status == 503
    assert "retry-after" in answer.headers
    cached.upstream.failure = None
    cached.upstream.referrers[subject] = b"<html>"
    assert (await cached.ask("GET", f"referrers/{subject}")).status == 503


async def test_where_the_api_is_missing_the_tag_of_the_digest_has_them(
    cached: CachedWorld,
) -> None:
    cached.upstream.has_referrers = False
    subject = await cached.pulled()
    assert await cached.referrers(subject) == []
    signed = cached.upstream.add_image(APP, layers=(b"signature",), artifactType="a/signature")
    cached.upstream.add_index(APP, subject.replace(":", "-"), of=(signed,))
    cached.clock.advance(TTL)
    listed = await cached.referrers(subject)
    assert [each["digest"] for each in listed] == [signed]
    assert (await cached.pull(signed)).status == 200
    await cached.check()


async def test_signatures_by_cosigns_tags_are_tags(cached: CachedWorld) -> None:
    subject = cached.upstream.add_image(APP, "v1")
    tag = f"{subject.replace(':', '-')}.sig"
    assert (await cached.pull(tag)).status == 404
    cached.upstream.add_image(APP, tag, layers=(b"signature",))
    cached.clock.advance(TTL)
    assert (await cached.pull(tag)).status == 200


async def test_what_is_asked_before_the_first_pull_makes_no_repository(cached: CachedWorld) -> None:
    subject = cached.upstream.add_image(APP, "v1")
    cached.upstream.referrers[subject] = index(signature())
    answer = await cached.ask("GET", f"referrers/{subject}")
    assert answer.json()["manifests"] == [signature()]
    assert cached.rows("SELECT name FROM repositories") == []


async def test_null_is_an_empty_list(cached: CachedWorld) -> None:
    subject = cached.upstream.add_image(APP, "v1")
    cached.upstream.referrers[subject] = b'{"schemaVersion": 2, "manifests": null}'
    assert await cached.referrers(subject) == []


async def test_nothing_is_kept_of_what_is_not_here(cached: CachedWorld) -> None:
    subject = await cached.pulled()
    for number in range(3):
        other = digest_of(b"%d" % number)
        assert await cached.referrers(other) == []
    assert cached.rows("SELECT subject FROM cached_referrers") == []
    await cached.ask("GET", f"referrers/{subject}")
    assert cached.rows("SELECT subject FROM cached_referrers") == [(subject,)]


async def test_without_an_upstream_those_that_are_cached_are_listed(cached: CachedWorld) -> None:
    subject = cached.upstream.add_image(APP, "v1")
    signed = cached.upstream.add_image(
        APP, layers=(b"s",), subject=described(cached.upstream.manifests[APP, "v1"], OCI_MANIFEST)
    )
    await cached.pull("v1")
    await cached.pull(signed)
    client = Client(DataPlane(replace(cached.ctx, upstream=None), OpenAccess(HANDLE)))
    answer = await client.request("GET", f"/v2/{NAME}/referrers/{subject}")
    assert [each["digest"] for each in answer.json()["manifests"]] == [signed]
