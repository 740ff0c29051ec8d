"""A repository's own policy decides on `/v1` as well, wherever it may speak of the action.

Driven by the table of operations: one that is added is asked here by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest

from registry.services.resource_kinds import REPOSITORY_RULES
from tests.integration.pushing import World, signed_in
from tests.spec.operations import OPERATIONS, Operation
from tests.tenants import ALLOW_ALL, allow, let, refuse

_REPOSITORY: Final = "/v1/repositories/{id}"
_NEITHER: Final = allow("registry:GetAuthorizationToken")
OWN: Final = {
    f"{_REPOSITORY}/images/deleted",
    f"{_REPOSITORY}/deleted-tags",
    f"{_REPOSITORY}/tags/{{tag}}/history",
    f"{_REPOSITORY}/images/{{digest}}/storage",
    f"{_REPOSITORY}/images/{{digest}}/deletion-preview",
}
"""What no partner is told: what was deleted and by whom, what an image shares with others."""


def operations() -> Iterator[Operation]:
    """Yield the operations of which a repository's policy may speak."""
    for operation in OPERATIONS:
        if operation.is_built and operation.action in REPOSITORY_RULES.actions:
            assert operation.path.startswith(_REPOSITORY)
            yield operation


async def ask(client: httpx.AsyncClient, world: World, operation: Operation, digest: str) -> int:
    """Return the status of the operation on the world's image, which has the tag ``v1``."""
    known = {"id": world.repository_id, "digest": digest, "tag": "v1"}
    path = re.sub(r"\{(\w+)\}", lambda found: known[found[1]], operation.path)
    body = {"digest": digest} if operation.method == "PUT" else None
    return (await client.request(operation.method, path, json=body)).status_code


async def test_whom_a_repository_denies_is_denied_everywhere(world: World) -> None:
    digest = (await world.push_image("one", "v1"))["digest"]
    program = await world.install.add_program(world.account, "denied", ALLOW_ALL)
    denied = refuse(program.crn, actions=sorted(REPOSITORY_RULES.actions))
    client = signed_in(world.install, program)
    for operation in operations():
        assert await ask(client, world, operation, digest) in operation.success, operation
    await world.install.share(world.repository_id, world.account, denied)
    for operation in operations():
        assert await ask(client, world, operation, digest) == 403, operation


@pytest.mark.parametrize("whom", ["program", "account"])
async def test_whom_of_its_account_a_repository_lets_in_needs_nothing_else(
    world: World, whom: str
) -> None:
    digest = (await world.push_image("one", "v1"))["digest"]
    program = await world.install.add_program(world.account, "let", _NEITHER)
    principal = program.crn if whom == "program" else world.account.id
    client = signed_in(world.install, program)
    for operation in operations():
        assert await ask(client, world, operation, digest) == 403, operation
    policy = let(principal, actions=sorted(REPOSITORY_RULES.actions))
    await world.install.share(world.repository_id, world.account, policy)
    for operation in operations():
        assert await ask(client, world, operation, digest) in operation.success, operation


@pytest.mark.parametrize("identity", [ALLOW_ALL, _NEITHER], ids=["both", "the repository's alone"])
async def test_a_partner_needs_both_and_is_not_told_what_is_the_accounts_own(
    world: World, identity: dict[str, Any]
) -> None:
    digest = (await world.push_image("one", "v1"))["digest"]
    partner = await world.install.add_account("partner")
    program = await world.install.add_program(partner, "ci", identity)
    policy = let("partner", actions=sorted(REPOSITORY_RULES.actions))
    await world.install.share(world.repository_id, world.account, policy)
    client = signed_in(world.install, program)
    for operation in operations():
        status = await ask(client, world, operation, digest)
        if identity is _NEITHER:
            assert status == 403, operation
        elif operation.path in OWN:
            assert status == 404, operation
        else:
            assert status in operation.success, operation
