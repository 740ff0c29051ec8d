"""A repository's own policy decides on `/v1` as well; and what is told of images and their tags.

Driven by the table of operations: one that is added is asked here by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest

from registry.services.resource_kinds import REPOSITORY_RULES
from tests.integration.pushing import World, make_world, refused, signed_in
from tests.spec.operations import OPERATIONS, Operation
from tests.tenants import ALLOW_ALL, allow, bearer, let, refuse

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
async def test_a_policy_alone_lets_its_own_account_in(world: World, whom: str) -> None:
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


async def test_an_image_of_another_repository_is_not_here(world: World) -> None:
    image = await world.push_image("one", "v1")
    other = await world.another("other")
    ident = (await world.get(f"/images/{image['digest']}"))["image"]["id"]
    for name in (image["digest"], ident):
        for method, path in (
            ("GET", f"/images/{name}"),
            ("GET", f"/images/{name}/manifest"),
            ("DELETE", f"/images/{name}"),
        ):
            answer = await world.control.request(method, f"{other.path}{path}")
            refused(answer, 404, "NOT_FOUND")
    put = await world.control.put(f"{other.path}/tags/v1", json={"digest": image["digest"]})
    refused(put, 404, "NOT_FOUND")
    assert await world.pulls("v1")


async def test_what_is_wrong_with_a_tags_body_is_told_to_who_may_push(world: World) -> None:
    """All others get the answer that a right body gets, whatever else they may do."""
    image = await world.push_image("one", "v1")
    other = await make_world(world.install, "other")
    elsewhere = allow("registry:PushImage", on="crn:registry:local:acme:repository/elsewhere")
    programs = [
        await world.install.add_program(world.account, f"program-{number}", *statements)
        for number, statements in enumerate(
            [(), (allow("registry:DescribeImages"),), (elsewhere,), (allow("registry:PushImage"),)]
        )
    ]
    callers = [
        *((bearer(program.access_token), 403) for program in programs[:3]),
        (dict(other.control.headers), 404),
        (bearer(programs[3].access_token), 400),
    ]
    json, text = "application/json", "text/plain"
    bodies = [(b"{}", json), (b'{"digest": 1}', json), (b"{", json), (b"", json), (b"x", text)]
    path = f"{world.path}/tags/v1"
    for headers, status in callers:
        right = await world.control.put(path, json={"digest": image["digest"]}, headers=headers)
        assert right.status_code == (200 if status == 400 else status)
        for body, kind in bodies:
            sent = headers | {"content-type": kind}
            answer = await world.control.put(path, content=body, headers=sent)
            expected = 415 if (status, kind) == (400, text) else status
            assert answer.status_code == expected, (headers, body)
            if status != 400:
                assert answer.json()["error"]["message"] == right.json()["error"]["message"]
