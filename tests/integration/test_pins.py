"""``…/images/{digest}/pins``: named reasons to keep an image, each with an end or without."""

from __future__ import annotations

from dataclasses import dataclass

import httpx
import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.identity.rows.accounts import Account
from cloudcore.wire import rfc3339
from registry.composition.families import FAMILIES
from registry.composition.main import forget_ended
from tests.databases import on_both_databases
from tests.integration.pushing import PATH, Pusher, pusher, refused
from tests.recount import querying
from tests.tenants import ALLOW_ALL, Install, bearer


@dataclass
class World:
    """An image in ``acme/r``, and a client that may do everything."""

    install: Install
    account: Account
    client: httpx.AsyncClient
    docker: Pusher
    repository: str
    digest: str

    @property
    def pins(self) -> str:
        return f"{PATH}/{self.repository}/images/{self.digest}/pins"

    async def names(self) -> list[str]:
        answer = await self.client.get(self.pins)
        assert answer.status_code == 200, answer.text
        return [pin["name"] for pin in answer.json()["pins"]]


@pytest.fixture
async def world(install: Install) -> World:
    """Return an account with one image in one repository."""
    account = await install.add_account("acme")
    program = await install.add_program(account, "ci", ALLOW_ALL)
    repository = await install.add_repository(account, "r")
    docker = await pusher(install, program, "acme/r")
    client = install.connect()
    client.headers.update(bearer(program.access_token))
    digest = await docker.image(b"layer", tag="v1")
    return World(install, account, client, docker, repository, digest)


def after(world: World, seconds: int) -> str:
    """Return the moment so many seconds from now."""
    return rfc3339(world.install.clock() + seconds * MICROSECONDS)


@on_both_databases
async def test_a_pin_from_its_making_to_its_end(world: World) -> None:
    path = f"{world.pins}/prod.web"
    end, now = after(world, 3600), after(world, 0)
    made = await world.client.put(path, json={"expires_at": end})
    assert made.status_code == 201, made.text
    pin = made.json()["pin"]
    assert pin["name"] == "prod.web"
    assert pin["digest"] == world.digest
    assert pin["expires_at"] == end
    assert pin["created_by"].endswith(":service-account/ci")
    assert now <= pin["created_at"] < end

    world.install.clock.advance(60)
    later = after(world, 3600)
    again = await world.client.put(path, json={"expires_at": later})
    assert again.status_code == 200
    assert again.json()["pin"] == pin | {"expires_at": later}
    forever = await world.client.put(path, json={})
    assert forever.json()["pin"] == pin | {"expires_at": None}

    answer = await world.client.get(world.pins)
    assert answer.json()["pins"] == [forever.json()["pin"]]
    assert answer.json()["meta"]["total"] == 1
    by_id = await world.client.get(f"{PATH}/{world.repository}/images")
    image = by_id.json()["images"][0]["id"]
    same = await world.client.get(f"{PATH}/{world.repository}/images/{image}/pins")
    assert same.json() == answer.json()

    assert (await world.client.delete(path)).status_code == 204
    refused(await world.client.delete(path), 404, "NOT_FOUND")
    assert await world.names() == []


async def test_a_pin_that_is_over_is_gone_and_then_forgotten(
    world: World, database_url: str
) -> None:
    for name, seconds in (("short", 60), ("long", 7200)):
        body = {"expires_at": after(world, seconds)}
        assert (await world.client.put(f"{world.pins}/{name}", json=body)).status_code == 201
    assert (await world.client.put(f"{world.pins}/endless", json={})).status_code == 201
    first = (await world.client.get(world.pins)).json()["pins"][2]
    world.install.clock.advance(60)
    assert await world.names() == ["endless", "long"]
    refused(await world.client.delete(f"{world.pins}/short"), 404, "NOT_FOUND")
    # To pin again what is over is to pin anew.
    new = await world.client.put(f"{world.pins}/short", json={"expires_at": after(world, 60)})
    assert new.status_code == 201
    assert new.json()["pin"]["created_at"] > first["created_at"]
    world.install.clock.advance(60)

    await forget_ended(world.install.database, world.install.clock, FAMILIES)
    with querying(database_url) as query:
        found = query("SELECT name FROM image_pins ORDER BY name")
    assert [row[0] for row in found] == ["endless", "long"]


async def test_an_image_has_at_most_fifty_pins_that_hold(world: World) -> None:
    for number in range(50):
        body = {"expires_at": after(world, 3600) if number else after(world, 60)}
        path = f"{world.pins}/n{number:02}"
        assert (await world.client.put(path, json=body)).status_code == 201
    refused(await world.client.put(f"{world.pins}/more", json={}), 409, "CONFLICT")
    assert (await world.client.put(f"{world.pins}/n01", json={})).status_code == 200
    other = await world.docker.image(b"other")
    elsewhere = f"{PATH}/{world.repository}/images/{other}/pins/more"
    assert (await world.client.put(elsewhere, json={})).status_code == 201
    world.install.clock.advance(60)
    assert (await world.client.put(f"{world.pins}/more", json={})).status_code == 201

    page = (await world.client.get(f"{world.pins}?limit=30")).json()
    assert page["meta"]["total"] == 50
    assert page["meta"]["has_more"]
    marker = page["meta"]["marker"]
    rest = (await world.client.get(f"{world.pins}?limit=30&marker={marker}")).json()
    assert not rest["meta"]["has_more"]
    names = [pin["name"] for pin in page["pins"] + rest["pins"]]
    assert names == sorted(["more", *(f"n{number:02}" for number in range(1, 50))])


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
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
    ],
)
async def test_what_cannot_be_a_pin_is_refused(
    world: World, name: str, body: object, field: str
) -> None:
    answer = await world.client.put(f"{world.pins}/{name}", json=body)
    refused(answer, 400, "INVALID_INPUT", field)
    assert await world.names() == []


@pytest.mark.parametrize("name", ["prod/eu-1", "prod%2Feu-1", "prod%2feu-1", "%2F", "%252F"])
async def test_a_pin_has_no_slash_however_it_is_written(world: World, name: str) -> None:
    """Else a proxy that decodes paths, and one that does not, would see different things."""

    for answer in (
        await world.client.put(f"{world.pins}/{name}", json={}),
        await world.client.delete(f"{world.pins}/{name}"),
    ):
        is_name = name == "%252F"  # the three characters %2F
        status = 400 if is_name and answer.request.method == "PUT" else 404
        assert answer.status_code == status
    assert await world.names() == []


async def test_now_is_not_the_future(world: World) -> None:
    for seconds, status in ((0, 400), (-1, 400), (1, 201)):
        body = {"expires_at": after(world, seconds)}
        answer = await world.client.put(f"{world.pins}/prod", json=body)
        assert answer.status_code == status


async def test_a_pin_goes_with_its_image(world: World, database_url: str) -> None:
    assert (await world.client.put(f"{world.pins}/prod", json={})).status_code == 201
    image = f"{PATH}/{world.repository}/images/{world.digest}"
    answer = await world.client.delete(image)
    refused(answer, 409, "CONFLICT")
    assert answer.json()["error"]["params"]["pins"] == ["prod"]
    await world.docker.delete(world.digest)  # the data plane knows no force
    refused(await world.client.get(world.pins), 404, "NOT_FOUND")
    refused(await world.client.put(f"{world.pins}/prod", json={}), 404, "NOT_FOUND")
    with querying(database_url) as query:
        assert query("SELECT count(*) FROM image_pins")[0][0] == 0
