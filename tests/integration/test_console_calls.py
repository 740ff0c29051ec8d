"""What each page of the console costs: how often it calls ``/v1``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from registry.console.addresses import ACCOUNT_ROLES, PEOPLE
from registry.oci.media_types import OCI_INDEX
from tests.integration.console_access import see, send, told
from tests.integration.console_shop import Shop, open_shop


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path / "data") as shop:
        yield shop


async def test_pages_call_as_often_whatever_they_list(shop: Shop) -> None:
    plain = await shop.image("plain", "plain")
    parts = [await shop.image(f"part-{number}") for number in range(5)]
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": parts}
    whole = await shop.manifest(index, "whole")

    # The repository by its name, what may be done on it, and its images.
    assert await shop.cost() == 3
    assert await shop.cost("?tag_status=any") == 3
    # These two, the image with its configuration, its manifest, its referrers, the tags that
    # spell its digest, its pins, its storage.
    assert await shop.cost(f"/images/{plain['digest']}") == 8
    # The preview of a deletion too, which tells the size of each part.
    assert await shop.cost(f"/images/{whole['digest']}") == 9
    assert await shop.cost("/tags") == 3
    assert await shop.cost("/tags/plain") == 4
    assert await shop.cost("/lifecycle") == 4
    assert await shop.cost("/deleted") == 4
    # The repository, what may be done on it, the deletion, and the counts of the repository then.
    named = " ".join(each["digest"] for each in (whole, *parts))
    path = f"/images/{whole['digest']}/delete-with-children"
    assert await shop.cost(path, digests=named) == 4
    assert await shop.cost("?tag_status=any") == 3


async def test_pages_of_keys_call_as_often_whatever_they_list(shop: Shop) -> None:
    made = [await shop.make("/v1/keys", {"name": f"k{n}"}) for n in range(4)]

    async def cost(path: str) -> int:
        shop.calls.clear()
        await see(shop, path)
        return len(shop.calls)

    # The keys, and what may be done with them.
    assert await cost("/console/settings/keys") == 2
    # The key, what it protects, and what may be done with it.
    assert await cost(f"/console/settings/keys/{made[0]['id']}") == 3
    # The same of each noun: its list, or one, and what may be done with it.
    queue = await shop.make("/v1/queues", {"name": "q"})
    for path in ("queues", f"queues/{queue['id']}", "buckets", "suppressions", "topics"):
        assert await cost(f"/console/services/{path}") == 2
    # The repository, what may be done on it; its binding, those before, the keys that can be bound,
    # and the last run that moved its blobs.
    assert await shop.cost("/settings") == 6


async def test_pages_of_an_organization_call_as_often_whatever_they_list(shop: Shop) -> None:
    acme = shop.served.acme
    role, people = f"{ACCOUNT_ROLES}/{acme.ids['/v1/roles/{}']}", f"{PEOPLE}/{acme.organization_id}"
    providers = f"{people}/identity-providers"

    async def costs() -> list[int]:
        found = []
        for path in (providers, role, f"{people}/audit"):
            shop.calls.clear()
            await see(shop, path)
            found.append(len(shop.calls))
        return found

    before = await costs()
    for name in "abc":
        provider = {"name": name, "issuer": "https://login.acme.example", "client_id": "entrepot"}
        claims = {"groups_claim": "groups", "email_verified_claim": "email_verified"}
        made = await send(shop, providers, session_hours="168", **provider, **claims)
        given = {"identity_provider": made.headers["location"].rpartition("/")[2], "group": "x"}
        await told(shop, f"{role}/groups", **given)
    # What the role may do, on each page. The providers. The role, its people, its groups, the
    # account and its organization's providers, the policies it has and the others. The events,
    # and the organizations.
    assert (await costs(), before) == ([2, 8, 3], [2, 8, 3])
