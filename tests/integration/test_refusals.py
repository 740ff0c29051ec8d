"""A refusal names what is missing, and tells a stranger nothing of what there is."""

from __future__ import annotations

from tests.tenants import ALLOW_ALL, Install, allow, bearer, deny, let, refuse

PULL = "registry:PullImage"
SCOPE = "repository:acme/r:pull"


async def message(install: Install, token: str, path: str) -> str:
    async with install.connect() as client:
        answer = await client.get(path, headers=bearer(token))
    assert answer.status_code == 403
    (error,) = answer.json()["errors"]
    assert error["code"] == "DENIED"
    return str(error["message"])


async def test_ones_own_account_is_told_what_is_missing(install: Install) -> None:
    acme = await install.add_account("acme")
    await install.add_repository(acme, "r")
    await install.add_repository(acme, "closed", refuse("acme"))
    for number, (own, name, words) in enumerate(
        (
            (allow("storage:GetObject"), "r", "none of your policies allows"),
            (deny(PULL), "r", "one of your policies denies"),
            (ALLOW_ALL, "closed", "the repository's own policy denies you"),
        )
    ):
        password = await install.login(await install.add_program(acme, f"ci-{number}", own))
        token = await install.exchange(password, f"repository:acme/{name}:pull")
        said = await message(install, token, f"/v2/acme/{name}/tags/list")
        assert said == f"{words} {PULL} on acme/{name}"


async def test_a_stranger_is_told_the_rule(install: Install) -> None:
    """Private, shared with others, denied, absent, of nobody: the same words."""
    acme, partner = await install.add_account("acme"), await install.add_account("partner")
    await install.add_repository(acme, "private")
    await install.add_repository(acme, "shared", let("acme"))
    await install.add_repository(acme, "denied", let("partner"), refuse("*"))
    told = set()
    for number, own in enumerate((ALLOW_ALL, allow("storage:GetObject"), deny(PULL))):
        password = await install.login(await install.add_program(partner, f"ci-{number}", own))
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


async def test_the_control_plane_says_so(install: Install) -> None:
    acme = await install.add_account("acme")
    path = f"/v1/repositories/{await install.add_repository(acme, 'x')}"
    denied = deny("registry:*", on="crn:*repository/x")
    for name, said, words in (
        ("none", [], "your policies allow it on no resource"),
        ("other", [allow("registry:*", on="crn:x")], "none of your policies allows it"),
        ("denied", [ALLOW_ALL, denied], "one of your policies denies it"),
    ):
        program = await install.add_program(acme, name, *said)
        async with install.connect() as client:
            for each in (path, f"{path}/images"):
                answer = await client.get(each, headers=bearer(program.access_token))
                assert answer.status_code == 403
                assert answer.json()["error"]["message"].endswith(f" here: {words}")
