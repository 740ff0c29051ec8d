"""An account with a rule of the pull-through cache and images that it has cached."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import httpx
from sqlalchemy import bindparam, text

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from tests.integration.pushing import Pusher, create, pusher, signed_in
from tests.tenants import ALLOW_ALL, Install, Program, bearer

PATH: Final = "/v1/pull-through-cache-rules"
QUAY: Final = "https://quay.io"
_SET_SOURCE: Final = Statement(
    text("UPDATE repositories SET source = :source WHERE name LIKE 'quay/%'").bindparams(
        bindparam("source")
    )
)
# A tag that was pushed has no time at which the upstream is to be asked.
_SET_FRESH: Final = Statement(
    text(
        "UPDATE tags SET fresh_until = 4611686018427387904 WHERE repository_id IN"
        " (SELECT id FROM repositories WHERE name LIKE 'quay/%')"
    )
)


@dataclass
class CachedWorld:
    """The account ``acme``, whose rule ``quay`` caches ``quay/…``."""

    install: Install
    program: Program
    client: httpx.AsyncClient
    rule_id: str

    async def pushes(self, name: str) -> Pusher:
        """Return a pusher to a repository; of a cached one it can only pull."""
        return await pusher(self.install, self.program, f"acme/{name}")

    async def fill(self, name: str, *images: tuple[str, bytes]) -> dict[str, str]:
        """Put images of one layer each into a cached repository, by tag; return their digests."""
        pushing = await self.pushes(name)
        await self.install.database.write(_set_source, "push")
        made = await self.client.get("/v1/repositories", params={"name": name})
        if not made.json()["repositories"]:
            self.rule_id = await self._without_rule(name)
        digests = {tag: await pushing.image(layer, tag=tag) for tag, layer in images}
        await self.install.database.write(_set_source, "pull_through_cache")
        return digests

    async def fill_index(self, name: str, tag: str, children: Iterable[str]) -> None:
        """Put an index of images that are there into a cached repository."""
        await self.install.database.write(_set_source, "push")
        await (await self.pushes(name)).index(*children, tag=tag)
        await self.install.database.write(_set_source, "pull_through_cache")

    async def advance(self, seconds: float) -> None:
        """Let time pass, after which another program goes on: tokens expire."""
        self.install.clock.advance(seconds)
        account, name = self.program.account, f"at-{self.install.clock()}"
        self.program = await self.install.add_program(account, name, ALLOW_ALL)
        self.client.headers.update(bearer(self.program.access_token))

    async def rule(self) -> dict[str, Any]:
        """Return the rule."""
        answer = await self.client.get(f"{PATH}/{self.rule_id}")
        found: dict[str, Any] = answer.json()["pull_through_cache_rule"]
        return found

    async def change(self, **fields: Any) -> None:  # noqa: ANN401
        """Change the rule."""
        answer = await self.client.patch(f"{PATH}/{self.rule_id}", json=fields)
        assert answer.status_code == 200, answer.text

    async def tags(self, name: str) -> list[str]:
        """Return the tags of a repository."""
        pulling = await self.pushes(name)
        answer = await pulling.docker.get(f"/v2/acme/{name}/tags/list")
        found: list[str] = answer.json()["tags"]
        return found

    async def _without_rule(self, name: str) -> str:
        """Create a repository while there is no rule; return the id of the new rule."""
        assert (await self.client.delete(f"{PATH}/{self.rule_id}")).status_code == 204
        await create(self.client, name)
        await self.install.database.write(_set_source, "pull_through_cache")
        rule_id = await make_rule(self.client)
        await self.install.database.write(_set_source, "push")
        return rule_id


def _set_source(tx: Connection, source: str) -> None:
    tx.execute(_SET_SOURCE, source=source)
    if source == "pull_through_cache":
        tx.execute(_SET_FRESH)


async def make_rule(client: httpx.AsyncClient) -> str:
    """Create the rule, and return its id."""
    answer = await client.post(PATH, json={"prefix": "quay", "upstream_url": QUAY})
    assert answer.status_code == 201, answer.text
    made: str = answer.json()["pull_through_cache_rule"]["id"]
    return made


async def cached_world(install: Install) -> CachedWorld:
    """Return an account with a rule that has cached nothing."""
    account = await install.add_account("acme")
    program = await install.add_program(account, "ci", ALLOW_ALL)
    client = signed_in(install, program)
    return CachedWorld(install, program, client, await make_rule(client))
