"""A client that follows one challenge and no more, as the conformance program of 1.1.1 does."""

from __future__ import annotations

import re
from typing import Final

import httpx

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
from tests.tenants import ALLOW_ALL, Install, allow, basic, bearer

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
            refused(await client.post(target), 401, challenge(f"{PUSH}{sources}"))
            answer = await client.post(target, headers=bearer(narrow))
            refused(answer, 401, challenge(f"{PUSH}{sources}", "insufficient_scope"))
        install.clock.advance(301)
        async with install.connect(2 * number + 1) as client:
            answer = await client.post(target, headers=bearer(narrow))
            refused(answer, 401, challenge(f"{PUSH}{sources}", "invalid_token"))


async def test_other_requests_are_not_about_a_mount(install: Install) -> None:
    await prepare(install, ALLOW_ALL)
    async with install.connect() as client:
        path = f"/v2/acme/to/blobs/{DIGEST}?mount={DIGEST}&from=acme/from"
        refused(await client.get(path), 401, challenge("repository:acme/to:pull"))


async def test_another_mount_is_no_repeat(install: Install) -> None:
    """What is refused with 403 as the same again asks for the same blob."""

    _, password = await prepare(install, ALLOW_ALL)
    narrow = bearer(await install.exchange(password, "repository:acme/to:pull"))
    async with install.connect() as client:
        for number in range(3):
            target = f"{POST}?mount=sha256:{number:064}"
            assert (await client.post(target, headers=narrow)).status_code == 401
        assert (await client.post(target, headers=narrow)).status_code == 403


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
