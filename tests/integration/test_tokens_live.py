"""The only live looks at policies on the data plane: making a repository, mounting a blob."""

from __future__ import annotations

import httpx
import pytest

from cloudcore.identity.rows.accounts import save_account
from registry.metadata.repositories.repository import find_repository
from tests.integration.tokens_world import (
    DIGEST,
    MOUNT,
    POST,
    PUSH,
    challenge,
    prepare,
    refused,
)
from tests.tenants import (
    ALLOW_ALL,
    Install,
    allow,
    bearer,
    deny,
    let,
)


async def post(install: Install, token: str, target: str = MOUNT, port: int = 1) -> httpx.Response:
    async with install.connect(port) as client:
        return await client.post(target, headers=bearer(token))


async def test_a_token_for_both_mounts(install: Install) -> None:
    _, password = await prepare(install, ALLOW_ALL)
    token = await install.exchange(password, PUSH, "repository:acme/from:pull")
    assert (await post(install, token)).status_code == 201


async def test_a_token_silent_on_the_source_is_asked_for_more_once(install: Install) -> None:
    _, password = await prepare(install, ALLOW_ALL)
    token = await install.exchange(password, PUSH)
    both = challenge(f"{PUSH} repository:acme/from:pull", "insufficient_scope")
    refused(await post(install, token), 401, both)
    assert (await post(install, token, port=2)).status_code == 202
    wider = await install.exchange(password, *both.split('"')[5].split(" "))
    assert (await post(install, wider)).status_code == 201
    # Without a source, what the token grants a pull of is searched.
    new = await install.exchange(password, "repository:acme/new:pull,push")
    target = f"/v2/acme/new/blobs/uploads/?mount={DIGEST}"
    assert (await post(install, new, target)).status_code == 202
    new = await install.exchange(
        password, "repository:acme/new:pull,push", "repository:acme/from:pull"
    )
    assert (await post(install, new, target)).status_code == 201


@pytest.mark.parametrize("digest", [DIGEST, f"sha256:{'0' * 64}"])
async def test_a_source_one_may_not_pull_is_as_good_as_none(install: Install, digest: str) -> None:
    """Refused or unknown, the client uploads."""

    to = "crn:registry:local:acme:repository/to"
    _, password = await prepare(install, allow("registry:*", on=to))
    token = await install.exchange(password, PUSH, "repository:acme/from:pull")
    target = f"{POST}?mount={digest}&from=acme/from"
    answer = await post(install, token, target)
    assert (answer.status_code, answer.content) == (202, b"")
    assert "docker-content-digest" not in answer.headers


async def test_a_mount_asks_the_policies_of_this_moment(install: Install) -> None:
    program, password = await prepare(install, ALLOW_ALL)
    token = await install.exchange(password, PUSH, "repository:acme/from:pull")
    source = "crn:registry:local:acme:repository/from"
    await install.say(program, ALLOW_ALL, deny("registry:PullImage", on=source))
    assert (await post(install, token)).status_code == 202
    await install.say(program, ALLOW_ALL)
    assert (await post(install, token)).status_code == 201


async def test_nothing_is_mounted_across_accounts(install: Install) -> None:
    """Not even where both policies allow the pull."""

    owner, _ = await prepare(install, ALLOW_ALL)
    partner = await install.add_account("partner")
    found = await install.database.read(find_repository, "acme", "from")
    assert found is not None
    await install.share(found.id, owner.account, let("partner"))
    program = await install.add_program(partner, "ci", ALLOW_ALL)
    token = await install.exchange(
        await install.login(program),
        "repository:partner/to:pull,push",
        "repository:acme/from:pull",
    )
    target = f"/v2/partner/to/blobs/uploads/?mount={DIGEST}&from=acme/from"
    assert (await post(install, token, target)).status_code == 202
    path = f"/v2/partner/to/blobs/{DIGEST}"
    async with install.connect() as client:
        assert (await client.get(path, headers=bearer(token))).status_code == 404


@pytest.mark.parametrize(
    ("statement", "status"),
    [
        (allow("registry:PushImage", "registry:CreateRepository"), 202),
        (allow("registry:PushImage"), 404),
        (
            allow("registry:CreateRepository", on="crn:registry:local:acme:repository/other"),
            404,
        ),
    ],
)
async def test_a_first_push_needs_the_right_to_create(
    install: Install, statement: dict[str, object], status: int
) -> None:
    _, password = await prepare(install, allow("registry:PushImage"), statement)
    token = await install.exchange(password, "repository:acme/new:push")
    answer = await post(install, token, "/v2/acme/new/blobs/uploads/")
    assert answer.status_code == status
    if status == 404:
        (error,) = answer.json()["errors"]
        assert error["code"] == "NAME_UNKNOWN"
        assert "that takes registry:CreateRepository on acme/new" in error["message"]


async def test_an_account_may_create_nothing_by_a_push(install: Install) -> None:
    program, password = await prepare(install, ALLOW_ALL)
    closed = program.account._replace(auto_create_repositories=False)
    await install.database.write(save_account, closed)
    token = await install.exchange(password, "repository:acme/new:push")
    answer = await post(install, token, "/v2/acme/new/blobs/uploads/")
    (error,) = answer.json()["errors"]
    assert (answer.status_code, error["code"]) == (404, "NAME_UNKNOWN")
    assert "create it first" in error["message"]


async def test_the_right_to_create_is_that_of_the_moment(install: Install) -> None:
    program, password = await prepare(install, ALLOW_ALL)
    token = await install.exchange(password, "repository:acme/new:push")
    await install.say(program, allow("registry:PushImage"))
    assert (await post(install, token, "/v2/acme/new/blobs/uploads/")).status_code == 404


async def test_a_partner_may_push_where_it_is_let_and_nowhere_else(install: Install) -> None:
    acme = await install.add_account("acme")
    partner = await install.add_account("partner")
    pushing = let("partner", actions=["registry:PullImage", "registry:PushImage"])
    await install.add_repository(acme, "inbox", pushing)
    program = await install.add_program(partner, "ci", ALLOW_ALL)
    token = await install.exchange(
        await install.login(program),
        "repository:acme/inbox:pull,push,delete",
        "repository:acme/other:pull,push",
    )
    inbox, other = "/v2/acme/inbox/blobs/uploads/", "/v2/acme/other/blobs/uploads/"
    assert (await post(install, token, inbox)).status_code == 202
    assert (await post(install, token, other)).status_code == 403
    async with install.connect() as client:
        answer = await client.delete(f"/v2/acme/inbox/blobs/{DIGEST}", headers=bearer(token))
        assert answer.status_code == 403
