"""Names as those of another registry: mapped to an account's prefix from a closed list."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx
import pytest

from cloudcore.identity.rows.accounts import Account
from registry.distribution.app import DataPlane
from registry.distribution.auth import Challenges, OpenAccess
from registry.distribution.routing import Mirrors
from registry.distribution.token import TokenEndpoint
from registry.distribution.token_access import TokenAccess
from registry.settings.reading import from_environment
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError
from tests.inprocess import Client
from tests.integration.mirror_world import HANDLE, CachedWorld, add_rule, open_cached
from tests.manifest_upstream import ManifestUpstream
from tests.tenants import URL, Install, allow, basic, bearer, deny, open_install

PREFIXES: Final = {"docker.io": f"{HANDLE}/hub", "mirror.example:5000": f"{HANDLE}/hub"}
ALPINE: Final = "/v2/library/alpine/manifests/3"
HERE: Final = "/v2/dev/hub/library/alpine/manifests/3"


@pytest.fixture
async def cached(sqlite_database: str) -> AsyncIterator[CachedWorld]:
    async with open_cached(sqlite_database, upstream_url="https://docker.io") as world:
        world.upstream.add_image("library/alpine", "3", layers=(b"layer",))
        yield world


async def ask(cached: CachedWorld, target: str, **headers: str) -> int:
    plane = DataPlane(cached.ctx, OpenAccess(HANDLE), mirrors=Mirrors(PREFIXES))
    return (await Client(plane).request("GET", target, headers=headers)).status


async def test_a_listed_registry_is_known_by_ns_or_host(cached: CachedWorld) -> None:
    assert await ask(cached, f"{ALPINE}?ns=docker.io") == 200
    assert await ask(cached, ALPINE, host="MIRROR.example:5000") == 200
    assert await ask(cached, "/v2/alpine/manifests/3?ns=docker.io") == 200
    assert await ask(cached, f"{HERE}?ns=docker.io") == 200, "a name as it is here stays"
    assert await ask(cached, HERE) == 200
    assert {each.repository for each in cached.upstream.asked} == {"library/alpine"}


async def test_no_other_name_is_mapped_and_what_is_mapped_is_checked(cached: CachedWorld) -> None:
    for query in ("", "?ns=evil.example", "?ns=", "?ns=docker.io&ns=docker.io"):
        assert await ask(cached, f"{ALPINE}{query}", host="registry.example") == 404, query
    assert await ask(cached, f"{ALPINE}?ns=https://docker.io", host="registry.example") == 404
    assert cached.upstream.asked == []
    assert await ask(cached, "/v2/UPPER/manifests/3?ns=docker.io") == 400
    assert await ask(cached, "/v2/?ns=docker.io") == 200
    assert await ask(cached, f"/v2/{'a/' * 120}b/manifests/3?ns=docker.io") == 400


@dataclass
class Doors:
    """An install with a rule of the account ``acme``, behind tokens."""

    install: Install
    acme: Account
    upstream: ManifestUpstream
    client: httpx.AsyncClient

    async def token(self, *statements: dict[str, object], scope: str, ns: str = "") -> str:
        """Return a bearer that a new program of the account gets for a scope."""
        program = await self.install.add_program(
            self.acme, f"ci-{self.install.clock()}", *statements
        )
        password = await self.install.login(program)
        asked = {"scope": scope} | ({"ns": ns} if ns else {})
        answer = await self.client.get("/v2/token", params=asked, headers=basic(password))
        return str(answer.json()["token"])


@pytest.fixture
async def doors(sqlite_database: str) -> AsyncIterator[Doors]:
    async with open_install(sqlite_database) as install:
        acme = await install.add_account("acme")
        await install.database.write(add_rule, "acme", "https://docker.io")
        upstream = ManifestUpstream()
        upstream.add_image("library/alpine", "3", layers=(b"layer",))
        ctx = replace(install.ctx, upstream=upstream)
        access = TokenAccess(install.tokens, Challenges(URL), install.clock)
        mirrors = Mirrors({"docker.io": "acme/hub"})
        plane = DataPlane(ctx, access, TokenEndpoint(access, mirrors), mirrors)
        transport = httpx.ASGITransport(plane)
        async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
            yield Doors(install, acme, upstream, client)


async def test_a_challenge_leads_to_a_token_for_the_name_here(doors: Doors) -> None:
    refused = await doors.client.get(f"{ALPINE}?ns=docker.io")
    assert refused.status_code == 401
    challenge = refused.headers["www-authenticate"]
    assert f'realm="{URL}/v2/token?ns={quote("docker.io")}"' in challenge
    scope = re.findall('scope="([^"]+)"', challenge)[0]
    assert scope == "repository:acme/hub/library/alpine:pull"
    may_pull = allow("registry:PullImage")
    by_challenge = await doors.token(may_pull, scope=scope)
    by_own_name = await doors.token(
        may_pull, scope="repository:library/alpine:pull", ns="docker.io"
    )
    for token in (by_challenge, by_own_name):
        answer = await doors.client.get(f"{ALPINE}?ns=docker.io", headers=bearer(token))
        assert answer.status_code == 200
    assert doors.upstream.count("GET") == 1


async def test_the_right_to_pull_a_name_fills_it_and_a_deny_holds(doors: Doors) -> None:
    scope = "repository:acme/hub/alpine:pull,push"
    path = "/v2/acme/hub/alpine/manifests/3"
    denied = await doors.token(
        allow("*"), deny("registry:PullImage", on="crn:registry:*:repository/hub/*"), scope=scope
    )
    assert (await doors.client.get(path, headers=bearer(denied))).status_code == 403
    nobody = (await doors.client.get("/v2/token", params={"scope": scope})).json()["token"]
    assert (await doors.client.get(path, headers=bearer(nobody))).status_code == 401
    assert doors.upstream.asked == []
    token = await doors.token(allow("registry:PullImage", "registry:PushImage"), scope=scope)
    assert (await doors.client.get(path, headers=bearer(token))).status_code == 200
    push = await doors.client.post("/v2/acme/hub/other/blobs/uploads/", headers=bearer(token))
    assert push.status_code in (401, 405)


@pytest.mark.parametrize(
    "listed",
    ["docker.io", "docker.io=", "docker.io=acme", "docker.io=acme/", "=acme/hub", "a b=acme/hub",
     "docker.io=acme/hub,docker.io=acme/other", "docker.io=acme/a/b/c/d", "docker.io=Acme/hub"],
)  # fmt: skip
def test_a_list_of_mirrors_that_says_nothing_clear_is_refused(listed: str) -> None:
    with pytest.raises(SettingsError, match="mirrors"):
        from_environment({"ENTREPOT_MIRRORS": listed}, Settings(Path()))


def test_mirrors_are_listed_by_registry_or_host() -> None:
    found = from_environment(
        {"ENTREPOT_MIRRORS": "docker.io=acme/hub, Mirror.example:5000=acme/a/b/c"}, Settings(Path())
    )
    assert found.mirrored == {"docker.io": "acme/hub", "mirror.example:5000": "acme/a/b/c"}
