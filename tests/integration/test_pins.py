"""``…/images/{digest}/pins``: named reasons to keep an image, each with an end or without."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import httpx
import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.wire import rfc3339
from registry.composition.families import FAMILIES
from registry.composition.main import forget_ended
from tests.databases import on_both_databases
from tests.integration.pushing import World, refused
from tests.recount import querying


@dataclass(frozen=True)
class PinWorld(World):
    """A repository with an image."""

    digest: str

    @property
    def pins(self) -> str:
        return f"{self.images}/{self.digest}/pins"

    async def pin(self, name: str, **fields: object) -> httpx.Response:
        return await self.control.put(f"{self.pins}/{name}", json=fields)

    async def names(self) -> list[str]:
        found = await self.get(f"/images/{self.digest}/pins")
        return [pin["name"] for pin in found["pins"]]

    def after(self, seconds: int) -> str:
        return rfc3339(self.install.clock() + seconds * MICROSECONDS)


@pytest.fixture
async def pinned(world: World) -> PinWorld:
    image = await world.push_image("layer", "v1")
    return PinWorld(**vars(world), digest=image["digest"])


@on_both_databases
async def test_a_pin_from_its_making_to_its_end(pinned: PinWorld) -> None:
    end, now = pinned.after(3600), pinned.after(0)
    made = await pinned.pin("prod.web", expires_at=end)
    assert made.status_code == 201, made.text
    pin = made.json()["pin"]
    assert pin["name"] == "prod.web"
    assert pin["digest"] == pinned.digest
    assert pin["expires_at"] == end
    assert pin["created_by"].endswith(":service-account/ci")
    assert now <= pin["created_at"] < end

    pinned.install.clock.advance(60)
    later = pinned.after(3600)
    again = await pinned.pin("prod.web", expires_at=later)
    assert again.status_code == 200
    assert again.json()["pin"] == pin | {"expires_at": later}
    forever = await pinned.pin("prod.web")
    assert forever.json()["pin"] == pin | {"expires_at": None}

    answer = await pinned.control.get(pinned.pins)
    assert answer.json()["pins"] == [forever.json()["pin"]]
    assert answer.json()["meta"]["total"] == 1
    (image,) = (await pinned.get("/images"))["images"]
    assert await pinned.get(f"/images/{image['id']}/pins") == answer.json()

    path = f"{pinned.pins}/prod.web"
    assert (await pinned.control.delete(path)).status_code == 204
    refused(await pinned.control.delete(path), 404, "NOT_FOUND")
    assert await pinned.names() == []


async def test_a_pin_that_is_over_is_gone_then_forgotten(
    pinned: PinWorld, database_url: str
) -> None:
    for name, seconds in (("short", 60), ("long", 7200)):
        assert (await pinned.pin(name, expires_at=pinned.after(seconds))).status_code == 201
    assert (await pinned.pin("endless")).status_code == 201
    first = (await pinned.control.get(pinned.pins)).json()["pins"][2]
    pinned.install.clock.advance(60)
    assert await pinned.names() == ["endless", "long"]
    refused(await pinned.control.delete(f"{pinned.pins}/short"), 404, "NOT_FOUND")
    # To pin again what is over is to pin anew.
    new = await pinned.pin("short", expires_at=pinned.after(60))
    assert new.status_code == 201
    assert new.json()["pin"]["created_at"] > first["created_at"]
    pinned.install.clock.advance(60)

    await forget_ended(pinned.install.database, pinned.install.clock, FAMILIES)
    with querying(database_url) as query:
        found = query("SELECT name FROM image_pins ORDER BY name")
    assert [row[0] for row in found] == ["endless", "long"]


async def test_an_image_has_at_most_fifty_pins_that_hold(pinned: PinWorld) -> None:
    for number in range(50):
        end = pinned.after(3600 if number else 60)
        assert (await pinned.pin(f"n{number:02}", expires_at=end)).status_code == 201
    refused(await pinned.pin("more"), 409, "CONFLICT")
    assert (await pinned.pin("n01")).status_code == 200
    other = replace(pinned, digest=(await pinned.push_image("other"))["digest"])
    assert (await other.pin("more")).status_code == 201
    pinned.install.clock.advance(60)
    assert (await pinned.pin("more")).status_code == 201

    path = f"/images/{pinned.digest}/pins"
    page = await pinned.get(path, limit=30)
    assert page["meta"]["total"] == 50
    assert page["meta"]["has_more"]
    rest = await pinned.get(path, limit=30, marker=page["meta"]["marker"])
    assert not rest["meta"]["has_more"]
    names = [pin["name"] for pin in page["pins"] + rest["pins"]]
    assert names == sorted(["more", *(f"n{number:02}" for number in range(1, 50))])


WRONG: Final[tuple[tuple[str, object, str], ...]] = (
    ("Prod", {}, "name"),
    ("-prod", {}, "name"),
    ("%2e", {}, "name"),
    ("a b", {}, "name"),
    ("a:b", {}, "name"),
    ("n" * 129, {}, "name"),
    ("é", {}, "name"),
    ("prod", {"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
    ("prod", {"expires_at": "2026-02-30T00:00:00Z"}, "expires_at"),
    ("prod", {"expires_at": "2099-01-01T00:00:00"}, "expires_at"),
    ("prod", {"expires_at": "10000-01-01T00:00:00Z"}, "expires_at"),
    ("prod", {"expires_at": "9999-12-31T23:59:59-00:01"}, "expires_at"),
    ("prod", {"expires_at": "0001-01-01T00:00:00+14:00"}, "expires_at"),
    ("prod", {"expires_at": 4_000_000_000}, "expires_at"),
    ("prod", {"expires_at": ""}, "expires_at"),
    ("prod", {"expires": None}, "expires"),
    ("prod", [], "body"),
    ("prod", None, "body"),
)


async def test_what_cannot_be_a_pin_is_refused(pinned: PinWorld) -> None:
    for name, body, field in WRONG:
        answer = await pinned.control.put(f"{pinned.pins}/{name}", json=body)
        refused(answer, 400, "INVALID_INPUT", field, about=(name, body))
    assert await pinned.names() == []


async def test_a_pin_has_no_slash_however_it_is_written(pinned: PinWorld) -> None:
    """Else a proxy that decodes paths, and one that does not, would see different things."""
    for name in ("prod/eu-1", "prod%2Feu-1", "prod%2feu-1", "%2F", "%252F"):
        is_name = name == "%252F"  # the three characters %2F
        assert (await pinned.pin(name)).status_code == (400 if is_name else 404), name
        deleted = await pinned.control.delete(f"{pinned.pins}/{name}")
        assert deleted.status_code == 404, name
    assert await pinned.names() == []


async def test_now_is_not_the_future(pinned: PinWorld) -> None:
    for seconds, status in ((0, 400), (-1, 400), (1, 201)):
        answer = await pinned.pin("prod", expires_at=pinned.after(seconds))
        assert answer.status_code == status


async def test_a_pin_goes_with_its_image(pinned: PinWorld, database_url: str) -> None:
    assert (await pinned.pin("prod")).status_code == 201
    answer = await pinned.control.delete(f"{pinned.images}/{pinned.digest}")
    refused(answer, 409, "CONFLICT")
    assert answer.json()["error"]["params"]["pins"] == ["prod"]
    await pinned.delete(pinned.digest)  # the data plane knows no force
    refused(await pinned.control.get(pinned.pins), 404, "NOT_FOUND")
    refused(await pinned.pin("prod"), 404, "NOT_FOUND")
    with querying(database_url) as query:
        assert query("SELECT count(*) FROM image_pins")[0][0] == 0
