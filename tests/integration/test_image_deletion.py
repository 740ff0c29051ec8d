"""Images deleted on the control plane: alone, in batches, held by pins and indexes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sqlalchemy import bindparam, text

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from registry.metadata.control_tables import image_pins
from registry.metadata.repositories.repository import find_visible_repository
from registry.oci.digest import digest_of
from registry.services.changes import Change, RegistryHost
from registry.services.images.details import delete_batch, delete_image
from registry.services.images.restoration import restore_image
from tests.databases import on_both_databases
from tests.integration.counting import CountingConnection
from tests.integration.images_world import ABSENT, open_world
from tests.integration.pushing import World, refused

_PIN: Final = Statement(
    image_pins.insert().values(
        manifest_id=bindparam("manifest_id"),
        name=bindparam("name"),
        repository_id=bindparam("repository_id"),
        expires_at=bindparam("expires_at"),
        created_by=text("''"),
        created_at=text("0"),
    )
)


async def pin(world: World, image: dict[str, Any], name: str, expires_at: int | None) -> None:
    """Pin an image; also as a request cannot, with an end that is over."""
    of = {"manifest_id": image["id"], "name": name, "repository_id": world.repository_id}
    await world.install.database.write(lambda tx: tx.execute(_PIN, **of, expires_at=expires_at))


@on_both_databases
async def test_pins_hold_an_image_unless_it_is_forced(world: World) -> None:
    image = (await world.push_image("one", "v1"))["digest"]
    record = (await world.get(f"/images/{image}"))["image"]
    now = world.install.clock()
    await pin(world, record, "prod", None)
    await pin(world, record, "canary", now + 3600 * MICROSECONDS)
    await pin(world, record, "over", now - 1)
    path = f"{world.images}/{image}"
    params = refused(await world.control.delete(path), 409, "CONFLICT")
    assert params["pins"] == ["canary", "prod"]
    refused(await world.control.delete(f"{path}?force=false"), 409, "CONFLICT")
    batch = {"digests": [image]}
    answer = await world.control.post(f"{world.images}/batch-delete", json=batch)
    (failure,) = answer.json()["failures"]
    assert (failure["digest"], failure["code"]) == (image, "CONFLICT")
    assert failure["params"] == params
    assert await world.pulls("v1")
    assert (await world.control.delete(f"{path}?force=true")).status_code == 204
    assert not await world.pulls("v1")

    again = await world.push_image("one", "v1")
    record = (await world.get(f"/images/{again['digest']}"))["image"]
    await pin(world, record, "over", now - 1)
    assert (await world.control.delete(path)).status_code == 204


async def test_a_batch_tells_what_became_of_each_item(world: World) -> None:
    gone = await world.push_image("gone", "g1", "g2")
    kept = await world.push_image("kept", "k1", "k2")
    child = await world.push_image("child")
    await world.push_index([child])
    alias = digest_of(json.dumps(await world.image_document("gone")).encode(), "blake3")
    digests = [gone["digest"], gone["digest"], ABSENT, "sha256:no", alias, child["digest"]]
    tags = ["g1", "k1", "k1", "absent", "-malformed"]
    answer = await world.control.post(
        f"{world.images}/batch-delete", json={"digests": digests, "tags": tags}
    )
    assert answer.status_code == 200, answer.text
    outcome = answer.json()
    assert outcome["deleted"] == [
        {"digest": gone["digest"], "tags": ["g1", "g2"]},
        {"digest": kept["digest"], "tags": ["k1"]},
    ]
    failures = [(each["digest"], each["tag"], each["code"]) for each in outcome["failures"]]
    assert sorted(failures, key=str) == sorted(
        [
            (ABSENT, None, "NOT_FOUND"),
            ("sha256:no", None, "NOT_FOUND"),
            (alias, None, "NOT_FOUND"),
            (child["digest"], None, "CONFLICT"),
            (None, "absent", "NOT_FOUND"),
            (None, "-malformed", "NOT_FOUND"),
        ],
        key=str,
    )
    assert all(each["message"] for each in outcome["failures"])
    assert await world.tags() == ["k2"]
    again = await world.control.post(f"{world.images}/batch-delete", json={})
    assert again.json() == {"deleted": [], "failures": []}


async def test_a_batch_of_a_hundred_and_immutable_tags(sqlite_database: str) -> None:
    async with open_world(sqlite_database, tag_mutability="immutable") as world:
        made = [(await world.push_image(str(each), f"v{each}"))["digest"] for each in range(3)]
        fill = [f"sha256:{each:064}" for each in range(97)]
        batch = {"digests": made + fill, "tags": [f"v{each}" for each in range(100)]}
        answer = await world.control.post(f"{world.images}/batch-delete", json=batch)
        outcome = answer.json()
        assert [each["tags"] for each in outcome["deleted"]] == [["v2"], ["v1"], ["v0"]]
        assert len(outcome["failures"]) == 97 + 97
        await world.push_image("one", "v1")
        answer = await world.control.post(f"{world.images}/batch-delete", json={"tags": ["v1"]})
        (failure,) = answer.json()["failures"]
        assert (failure["tag"], failure["code"]) == ("v1", "CONFLICT")
        assert await world.tags() == ["v1"]


async def test_a_batch_takes_one_more_statement_for_each_image(world: World) -> None:
    images = [(await world.push_image(f"{n}", f"v{n}"))["digest"] for n in range(9)]
    found = await world.install.database.read(find_visible_repository, world.repository_id)
    assert found is not None
    change = Change("", world.install.clock(), RegistryHost("local", "localhost"))

    async def count(work: Callable[[Connection], object]) -> int:
        seen: list[Statement] = []
        await world.install.database.write(lambda tx: work(CountingConnection(tx, seen)))
        return len(seen)

    def delete(*digests: str) -> Callable[[Connection], object]:
        return lambda tx: delete_batch(tx, found, digests, [], change, force=False)

    few, many = await count(delete(*images[:2])), await count(delete(*images[2:8]))
    assert few <= 24
    assert many - few == 4
    assert await count(lambda tx: delete_image(tx, found, images[8], change, force=False)) <= 21
    for digest in (images[0], images[8]):
        back = partial(restore_image, repository=found.repository, digest=digest, change=change)
        assert await count(back) <= 24
