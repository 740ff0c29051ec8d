"""A refusal names what is missing, and tells a stranger nothing of what there is."""

from __future__ import annotations

import pytest

from tests.tenants import ALLOW_ALL, Install, Statement, allow, bearer, deny, let, refuse

PULL = "registry:PullImage"
PATH = "/v2/acme/r/tags/list"
SCOPE = "repository:acme/r:pull"


async def message(install: Install, token: str, path: str = PATH) -> str:
    async with install.connect() as client:
        answer = await client.get(path, headers=bearer(token))
    assert answer.status_code == 403
    (error,) = answer.json()["errors"]
    assert error["code"] == "DENIED"
    said: str = error["message"]
    return said


@pytest.mark.parametrize(
    ("own", "resource", "words"),
    [
        (allow("storage:GetObject"), None, f"none of your policies allows {PULL} on acme/r"),
        (deny(PULL), None, f"one of your policies denies {PULL} on acme/r"),
        (ALLOW_ALL, refuse("acme"), f"the repository's own policy denies you {PULL} on acme/r"),
    ],
)
async def test_ones_own_account_is_told_what_is_missing(
    install: Install, own: Statement, resource: Statement | None, words: str
) -> None:
    acme = await install.add_account("acme")
    await install.add_repository(acme, "r", *([resource] if resource else []))
    password = await install.login(await install.add_program(acme, "ci", own))
    assert await message(install, await install.exchange(password, SCOPE)) == words


@pytest.mark.parametrize("own", [ALLOW_ALL, allow("storage:GetObject"), deny(PULL)])
async def test_a_stranger_is_told_the_rule(install: Install, own: Statement) -> None:
    """Private, shared with others, denied, absent, of nobody: the same words."""

    acme = await install.add_account("acme")
    stranger = await install.add_program(await install.add_account("partner"), "ci", own)
    await install.add_repository(acme, "private")
    await install.add_repository(acme, "shared", let("acme"))
    await install.add_repository(acme, "denied", let("partner"), refuse("*"))
    password = await install.login(stranger)
    told = set()
    for name in ("acme/private", "acme/shared", "acme/denied", "acme/absent", "nobody/absent"):
        token = await install.exchange(password, f"repository:{name}:pull")
        (entry,) = install.tokens.verify(token).access.values()
        assert (entry.denied, entry.reasons) == (("pull",), ())
        said = await message(install, token, f"/v2/{name}/tags/list")
        told.add(said.replace(name, "it"))
    (words,) = told
    assert "one of your policies" in words
    assert "repository's own policy too" in words


async def test_a_head_request_is_told_in_a_warning(install: Install) -> None:
    """Its answer has no body. An anonymous one is only told to sign in: clients repeat it then."""
    program = await install.add_program(await install.add_account("acme"), "ci")
    token = await install.exchange(await install.login(program), SCOPE)
    path = "/v2/acme/r/manifests/1"
    async with install.connect() as client:
        denied = await client.head(path, headers=bearer(token))
        told = await client.get(path, headers=bearer(token))
        anonymous = await client.head(path)
    words = f"none of your policies allows {PULL} on acme/r"
    assert (denied.status_code, denied.content) == (403, b"")
    assert denied.headers["warning"] == f'299 - "{words}"'
    assert words in told.text
    assert "warning" not in told.headers
    assert anonymous.status_code == 401
    assert "warning" not in anonymous.headers


async def test_the_catalog_says_which_action_it_takes(install: Install) -> None:
    program = await install.add_program(await install.add_account("acme"), "ci")
    token = await install.exchange(await install.login(program), "registry:catalog:*")
    words = "none of your policies allows registry:DescribeRepositories"
    assert await message(install, token, "/v2/_catalog") == words


async def test_a_refused_list_names_the_prefixes_that_are_allowed(install: Install) -> None:
    acme = await install.add_account("acme")
    action = "registry:DescribeRepositories"
    on = [f"crn:registry:*:*:repository/{name}" for name in ("web/*", "no/*", "w?b*", "exact")]
    refused = deny(action, on=on[1])
    said = [allow(action, on=each) for each in on]
    program = await install.add_program(acme, "ci", *said, refused)
    async with install.connect() as client:
        for query in ("", "?name_prefix=we"):
            path = f"/v1/repositories{query}"
            answer = await client.get(path, headers=bearer(program.access_token))
            assert answer.status_code == 403
            error = answer.json()["error"]
            assert "begin with web/ (name_prefix)" in error["message"]
            assert error["params"] == {"name_prefixes": ["web/"]}
        path = "/v1/repositories?name_prefix=web/"
        assert (await client.get(path, headers=bearer(program.access_token))).status_code == 200


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ([], "your policies allow it on no resource"),
        ([allow("registry:*", on="crn:x")], "none of your policies allows it"),
        ([ALLOW_ALL, deny("registry:*", on="crn:*:r")], "one of your policies denies it"),
    ],
)
async def test_the_control_plane_says_so_too(
    install: Install, said: list[Statement], words: str
) -> None:
    acme = await install.add_account("acme")
    ident = await install.add_repository(acme, "x")
    said_ = [{**each, "resources": ["crn:*repository/x"]} for each in said[1:]]
    program = await install.add_program(acme, "ci", *said[:1], *said_)
    async with install.connect() as client:
        for path in (f"/v1/repositories/{ident}", f"/v1/repositories/{ident}/images"):
            answer = await client.get(path, headers=bearer(program.access_token))
            assert answer.status_code == 403
            assert answer.json()["error"]["message"].endswith(f" here: {words}")
