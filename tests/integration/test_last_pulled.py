"""``last_pulled_at``: to the minute, of GET alone, by principals that count."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.errors import Unavailable
from cloudcore.wire import rfc3339
from registry.composition.dev import DEV
from registry.composition.main import Registry, prepare
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.services.registry_settings import counts_pulls_of
from registry.settings.settings import Settings
from tests.databases import on_both_databases, planted
from tests.integration.counting import open_counting
from tests.integration.pushing import PATH, Pusher, World, pusher, signed_in
from tests.integration.tokens_world import access_of
from tests.recount import querying
from tests.tenants import ALLOW_ALL, bearer, let

MINUTE: Final = 60 * MICROSECONDS


@dataclass(frozen=True)
class PulledWorld(World):
    """A repository whose images are pulled."""

    async def times(self) -> dict[str, str | None]:
        """Return when each image, and the repository (an empty key), was last pulled."""
        await self.install.ctx.pulls.flush()
        one = await self.record()
        listed = (await self.control.get(f"{PATH}?name=app")).json()["repositories"]
        assert listed == [one]
        images = (await self.get("/images"))["images"]
        found = {image["digest"]: image["last_pulled_at"] for image in images}
        return found | {"": one["last_pulled_at"]}

    def minute(self) -> str:
        now = self.install.clock()
        return rfc3339(now - now % MINUTE)

    async def ignore(self, *patterns: str) -> None:
        """Let the pulls of these principals not count."""
        changed = {"uncounted_pullers": list(patterns)}
        answer = await self.control.patch("/v1/registry-settings", json=changed)
        assert answer.status_code == 200, answer.text


@pytest.fixture
async def pulled(world: World) -> PulledWorld:
    return PulledWorld(**vars(world))


@on_both_databases
async def test_images_and_their_repository_tell_when_they_were_pulled(pulled: PulledWorld) -> None:
    first = await pulled.image(b"1", tag="v1")
    second = await pulled.image(b"2", tag="v2")
    assert await pulled.times() == {first: None, second: None, "": None}
    await pulled.pull("v1", "HEAD")
    assert (await pulled.times())[""] is None
    await pulled.pull("v1")
    then = pulled.minute()
    assert await pulled.times() == {first: then, second: None, "": then}
    pulled.install.clock.advance(120)
    await pulled.pull(second)
    now = pulled.minute()
    assert await pulled.times() == {first: then, second: now, "": now}
    # The repository's is that of the images it holds.
    await pulled.delete(second)
    assert await pulled.times() == {first: then, "": then}


async def test_a_client_that_has_the_image_and_asks_again_by_get_uses_it(
    pulled: PulledWorld,
) -> None:
    image = await pulled.image(b"1", tag="v1")
    path, has_it = "/v2/acme/app/manifests/v1", {"if-none-match": f'"{image}"'}
    head = await pulled.docker.head(path, headers=has_it)
    assert (head.status_code, (await pulled.times())[image]) == (304, None)
    get = await pulled.docker.get(path, headers=has_it)
    assert (get.status_code, (await pulled.times())[image]) == (304, pulled.minute())


async def test_an_index_and_its_children_count_each_for_itself(pulled: PulledWorld) -> None:
    child = await pulled.image(b"1")
    index = await pulled.index(child, tag="v1")
    await pulled.pull("v1")
    found = await pulled.times()
    assert (found[index], found[child]) == (pulled.minute(), None)
    await pulled.pull(child)
    assert (await pulled.times())[child] is not None


async def test_some_principals_do_not_count(pulled: PulledWorld) -> None:
    other = await pulled.install.add_account("other")
    digest = await pulled.image(b"1", tag="v1")
    seen: str | None = None
    for pattern, counts in (
        ("*", False),
        ("crn:iam::acme:service-account/ci", False),
        ("crn:iam::acme:*", False),
        ("crn:iam::*:service-account/c?", False),
        ("crn:iam::acme:service-account/c", True),
        ("crn:iam::acme:role/*", True),
        (f"crn:iam::{other.id}:*", True),
    ):
        pulled.install.clock.advance(60)
        await pulled.ignore("crn:iam::acme:role/none", pattern)
        docker = await pulled.pusher()
        await docker.pull("v1")
        await docker.pull(digest)
        seen = pulled.minute() if counts else seen
        assert await pulled.times() == {digest: seen, "": seen}, pattern


async def test_whose_pulls_count_is_the_account_s_they_pull_from(pulled: PulledWorld) -> None:
    """Nobody makes another account's images look unused, nor its own pulls there count for more."""
    digest = await pulled.image(b"1", tag="v1")
    partner = await pulled.install.add_account("partner")
    program = await pulled.install.add_program(partner, "scanner", ALLOW_ALL)
    await pulled.install.share(pulled.repository_id, pulled.account, let("partner"))
    own = signed_in(pulled.install, program)
    await own.patch("/v1/registry-settings", json={"uncounted_pullers": ["*"]})
    await (await pusher(pulled.install, program, "acme/app")).pull("v1")
    then = (await pulled.times())[digest]
    assert then is not None
    await pulled.ignore(f"crn:iam::{partner.id}:service-account/scanner")
    pulled.install.clock.advance(120)
    await (await pusher(pulled.install, program, "acme/app")).pull("v1")
    assert (await pulled.times())[digest] == then


async def test_it_is_decided_at_the_exchange_and_ends_with_the_bearer(pulled: PulledWorld) -> None:
    digest = await pulled.image(b"1", tag="v1")
    await pulled.ignore("*")
    await pulled.pull("v1")  # its bearer is from before
    then = (await pulled.times())[digest]
    assert then is not None
    pulled.install.clock.advance(120)
    docker = await pulled.pusher()
    await docker.pull("v1")
    assert (await pulled.times())[digest] == then
    await pulled.ignore()
    await docker.pull("v1")
    assert (await pulled.times())[digest] == then
    await (await pulled.pusher()).pull("v1")
    assert (await pulled.times())[digest] == pulled.minute() > then


async def test_the_public_counts_unless_all_do_not(pulled: PulledWorld) -> None:
    digest = await pulled.image(b"1", tag="v1")
    await pulled.install.share(pulled.repository_id, pulled.account, let("*"))

    async def pull() -> None:
        token = await pulled.install.exchange(None, "repository:acme/app:pull")
        async with pulled.install.connect() as client:
            client.headers.update(bearer(token))
            await Pusher(client, "acme/app").pull("v1")

    await pulled.ignore("crn:iam::*:*")
    await pull()
    then = (await pulled.times())[digest]
    assert then is not None
    pulled.install.clock.advance(120)
    await pulled.ignore("*")
    await pull()
    assert (await pulled.times())[digest] == then


async def test_a_bearer_says_so_only_where_pulls_do_not_count(pulled: PulledWorld) -> None:
    partner = await pulled.install.add_account("partner")
    await pulled.install.add_repository(partner, "app", let("acme"))
    await pulled.ignore("*")
    names = ("acme/app", "partner/app", "acme/absent", "nobody/app")
    password = (await pulled.control.post("/v1/authorization-token")).json()["password"]
    token = await pulled.install.exchange(
        password, *(f"repository:{name}:pull" for name in names), "registry:catalog:*"
    )
    said = {each["name"]: each.get("uncounted") for each in access_of(token)}
    assert said == {
        "acme/app": True,
        "partner/app": None,
        "acme/absent": True,
        "nobody/app": None,
        "catalog": None,
    }
    payload = pulled.install.tokens.verify(token).access
    assert sum(not entry.counts_pulls for entry in payload.values()) == 2


def test_patterns_are_of_the_whole_name() -> None:
    for principal, patterns, counts in (
        ("crn:iam::a:role/x", (), True),
        ("", (), True),
        ("", ("*",), False),
        ("", ("crn:iam::*:*",), True),
        ("crn:iam::a:role/x", ("crn:iam::b:*", "crn:iam::a:role/?"), False),
        ("crn:iam::a:role/xy", ("crn:iam::a:role/?",), True),
        ("crn:iam::a:role/x.y", ("crn:iam::a:role/x-y",), True),
    ):
        assert counts_pulls_of(principal, patterns) is counts, (principal, patterns)


async def test_an_image_takes_one_write_a_minute_and_a_pull_no_read_for_it(
    sqlite_database: str,
) -> None:
    """In dev mode, where every pull counts."""
    async with open_counting(sqlite_database) as (registry, counted):
        ask = registry.client.request
        push = f"/v2/dev/r/blobs/uploads/?digest={digest_of(b'x')}"
        assert (await ask("POST", push, b"x")).status == 201
        descriptor = {"mediaType": "application/x", "digest": digest_of(b"x"), "size": 1}
        body = {"schemaVersion": 2, "config": descriptor, "layers": []}
        kind = {"content-type": OCI_MANIFEST}
        put = await ask("PUT", "/v2/dev/r/manifests/v1", json.dumps(body).encode(), kind)
        assert put.status == 201
        counted.start()
        for _ in range(5):
            assert (await ask("GET", "/v2/dev/r/manifests/v1")).status == 200
        assert len(counted.seen) == 5
        await registry.ctx.pulls.flush()
        # The image's last pull, the pulls of the day (the repository's and the account's) and of
        # the hour, and a look which rule of the pull-through cache counts them.
        assert len(counted.seen) == 5 + 6
        assert counted.changes == 1
        await registry.ctx.pulls.flush()
        assert counted.changes == 1
    with querying(sqlite_database) as query:
        ((at,),) = query("SELECT last_pulled_at FROM manifests")
        assert at % MINUTE == 0


async def test_a_stop_that_cannot_record_the_last_pulls_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse() -> None:
        raise Unavailable("the database or disk is full")

    settings = Settings(data=planted(tmp_path))
    prepare(settings)
    async with Registry(settings, DEV).open() as process:
        monkeypatch.setattr(process.ctx.pulls, "flush", refuse)
    assert "stops without recording the last pulls: the database or disk is full" in caplog.text


async def test_the_bearer_of_one_who_may_not_pull_tells_nothing_of_it(pulled: PulledWorld) -> None:
    """Else a bearer, which anyone can read, would tell that there is such an account."""
    partner = await pulled.install.add_account("partner")
    program = await pulled.install.add_program(partner, "scanner", ALLOW_ALL)
    await pulled.ignore("*")
    password = await pulled.install.login(program)
    scopes = [f"repository:{name}:pull" for name in ("acme/app", "acme/absent", "nobody/app")]
    for token in (
        await pulled.install.exchange(password, *scopes),
        await pulled.install.exchange(None, *scopes),
    ):
        assert [each.get("uncounted") for each in access_of(token)] == [None] * 3
