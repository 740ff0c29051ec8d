"""Live looks at policies on the data plane, and clients that follow one challenge and no more."""

from __future__ import annotations

import re
from typing import Final

import httpx

from cloudcore.identity.rows.accounts import OWN_ACCOUNT
from registry.metadata.repositories.repository import find_repository
from tests.integration.tokens_world import (
    DATA,
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
    basic,
    bearer,
    deny,
    let,
)


async def post(install: Install, token: str, target: str = MOUNT, port: int = 1) -> httpx.Response:
    async with install.connect(port) as client:
        return await client.post(target, headers=bearer(token))


async def test_a_token_silent_on_the_source_is_asked_for_more_once(install: Install) -> None:
    program, password = await prepare(install, ALLOW_ALL)
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
    # The policies of this moment are asked.
    source = "crn:registry:local:acme:repository/from"
    await install.say(program, ALLOW_ALL, deny("registry:PullImage", on=source))
    assert (await post(install, wider)).status_code == 202
    await install.say(program, ALLOW_ALL)
    assert (await post(install, wider)).status_code == 201


async def test_a_source_one_may_not_pull_is_as_good_as_none(install: Install) -> None:
    """Refused or unknown, the client uploads."""
    to = "crn:registry:local:acme:repository/to"
    _, password = await prepare(install, allow("registry:*", on=to))
    token = await install.exchange(password, PUSH, "repository:acme/from:pull")
    for digest in (DIGEST, f"sha256:{'0' * 64}"):
        answer = await post(install, token, f"{POST}?mount={digest}&from=acme/from")
        assert (answer.status_code, answer.content) == (202, b"")
        assert "docker-content-digest" not in answer.headers


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


async def test_a_first_push_needs_the_right_to_create(install: Install) -> None:
    """That of the moment; and an account may forbid that a push creates anything."""
    program, password = await prepare(install, ALLOW_ALL)
    token = await install.exchange(password, "repository:acme/new:push")
    push, create = allow("registry:PushImage"), "registry:CreateRepository"
    needed = f"that takes {create} on acme/new"
    uploads = "/v2/acme/new/blobs/uploads/"

    async def refusal() -> str:
        answer = await post(install, token, uploads)
        (error,) = answer.json()["errors"]
        assert (answer.status_code, error["code"]) == (404, "NAME_UNKNOWN")
        message: str = error["message"]
        return message

    for statements in (
        [push],
        [push, allow(create, on="crn:registry:local:acme:repository/other")],
    ):
        await install.say(program, *statements)
        assert needed in await refusal()
    await install.say(program, push, allow("registry:PushImage", create))
    closed = program.account._replace(auto_create_repositories=False)
    await install.database.write(OWN_ACCOUNT.save, closed)
    assert "create it first" in await refusal()
    await install.database.write(OWN_ACCOUNT.save, program.account)
    assert (await post(install, token, uploads)).status_code == 202


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


PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')


async def request(
    client: httpx.AsyncClient, password: str, method: str, target: str
) -> httpx.Response:
    """Send a request; upon 401 do what the challenge says, once."""
    answer = await client.request(method, target)
    if answer.status_code != 401:
        return answer
    asked = dict(PARAMETER.findall(answer.headers["www-authenticate"]))
    query = {"service": asked["service"], "scope": asked["scope"]}
    token = await client.get(asked["realm"], params=query, headers=basic(password))
    assert token.status_code == 200, token.text
    return await client.request(method, target, headers=bearer(token.json()["token"]))


async def test_one_challenge_is_enough_for_every_step_of_a_mount(install: Install) -> None:
    _, password = await prepare(install, ALLOW_ALL)
    async with install.connect() as client:
        mounted = await request(client, password, "POST", MOUNT)
        assert mounted.status_code == 201, mounted.text
        pulled = await request(client, password, "GET", mounted.headers["location"])
        assert (pulled.status_code, pulled.content) == (200, DATA)
        deleted = await request(client, password, "DELETE", f"/v2/acme/to/blobs/{DIGEST}")
        assert deleted.status_code == 202


async def test_one_challenge_is_enough_to_hear_that_there_is_no_mount(install: Install) -> None:
    """Refused the source, absent, or of another account: the upload begins."""
    to = "crn:registry:local:acme:repository/to"
    _, password = await prepare(install, allow("registry:*", on=to))
    async with install.connect() as client:
        for source in ("acme/from", "acme/none", "nobody/none", "UPPER", "acme/to", ""):
            target = f"{POST}?mount={DIGEST}&from={source}"
            assert (await request(client, password, "POST", target)).status_code == 202, source


SOURCES: Final = {
    f"mount={DIGEST}&from=acme/from": " repository:acme/from:pull",
    f"from=acme%2Ffrom&mount={DIGEST}": " repository:acme/from:pull",
    f"mount={DIGEST}&from=nobody/none": " repository:nobody/none:pull",
    f"mount={DIGEST}&from=acme/to": "",
    f"mount={DIGEST}&from=Upper/case": "",
    f"mount={DIGEST}&from=acme/{'r' * 400}": "",
    f"mount={DIGEST}&from=acme/a&from=acme/b": "",
    f'mount={DIGEST}&from=acme/a"b': "",
    f"mount={DIGEST}&from=%FF": "",
    f"mount={DIGEST}": "",
    "from=acme/from": "",
    f"mount={DIGEST}&from=acme/from" + "&x" * 300: "",
    "": "",
}
"""What the challenge of a POST with this query names beside the repository itself."""


async def test_a_challenge_names_the_source_of_a_mount(install: Install) -> None:
    """Whoever comes without a token, or with one for something else, hears of both at once."""
    _, password = await prepare(install, ALLOW_ALL)
    for number, (query, sources) in enumerate(SOURCES.items()):
        narrow = await install.exchange(password, "repository:acme/to:pull")
        target = f"{POST}?{query}"
        async with install.connect(2 * number) as client:
            answer = await client.post(target)
            refused(answer, 401, challenge(f"{PUSH}{sources}"), about=query)
            answer = await client.post(target, headers=bearer(narrow))
            expected = challenge(f"{PUSH}{sources}", "insufficient_scope")
            refused(answer, 401, expected, about=query)
        install.clock.advance(301)
        async with install.connect(2 * number + 1) as client:
            answer = await client.post(target, headers=bearer(narrow))
            expected = challenge(f"{PUSH}{sources}", "invalid_token")
            refused(answer, 401, expected, about=query)
    async with install.connect() as client:
        path = f"/v2/acme/to/blobs/{DIGEST}?mount={DIGEST}&from=acme/from"
        refused(await client.get(path), 401, challenge("repository:acme/to:pull"))
        # What is refused with 403 as the same again asks for the same blob.
        narrow = await install.exchange(password, "repository:acme/to:pull")
        for number, status in ((0, 401), (1, 401), (2, 401), (2, 403)):
            again = await client.post(f"{POST}?mount=sha256:{number:064}", headers=bearer(narrow))
            assert again.status_code == status


async def test_an_expired_token_is_told_apart(install: Install) -> None:
    _, password = await prepare(install, ALLOW_ALL)
    token = await install.exchange(password, "repository:acme/from:pull")

    async def told(name: str, sent: str, status: int = 401) -> str:
        answer = await client.get(f"/v2/acme/{name}/tags/list", headers=bearer(sent))
        assert answer.status_code == status
        message: str = answer.json()["errors"][0]["message"]
        return message

    async with install.connect() as client:
        assert (await client.get("/v2/acme/from/tags/list", headers=bearer(token))).is_success
        assert "expired" not in await told("to", token)
        assert await told("from", f"{token}x") == "the token is not valid; ask for another"
        install.clock.advance(300)
        assert await told("from", token) == "the token has expired; ask for another"
        assert "the token has expired" in await told("from", token, 403)
