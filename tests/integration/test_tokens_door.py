"""401, 403 or in: what a bearer of ``/v2`` opens, what it does not, and the challenges."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from itertools import product
from typing import Final

import pytest

from cloudcore.identity.tokens.access_tokens import API
from cloudcore.identity.tokens.jws import sign
from registry.distribution.auth import Challenges
from registry.services.access.bearers import BEARERS
from tests.integration.tokens_world import challenge, refused
from tests.tenants import ALLOW_ALL, Install, allow, basic, bearer, claims_of, let, open_install
from tests.unit.identity_forgeries import forgeries

DIGEST: Final = "sha256:" + "0" * 64


SCOPES: Final = [
    ("GET", "manifests/v1", "pull"),
    ("HEAD", "manifests/v1", "pull"),
    ("PUT", "manifests/v1", "pull,push"),
    ("DELETE", "manifests/v1", "delete"),
    ("GET", f"blobs/{DIGEST}", "pull"),
    ("HEAD", f"blobs/{DIGEST}", "pull,push"),
    ("DELETE", f"blobs/{DIGEST}", "delete"),
    ("POST", "blobs/uploads/", "pull,push"),
    ("PATCH", "blobs/uploads/00000000-0000-7000-8000-000000000000", "pull,push"),
    ("PUT", "blobs/uploads/00000000-0000-7000-8000-000000000000", "pull,push"),
    ("GET", "blobs/uploads/00000000-0000-7000-8000-000000000000", "pull,push"),
    ("DELETE", "blobs/uploads/00000000-0000-7000-8000-000000000000", "pull,push"),
    ("GET", "tags/list", "pull"),
    ("GET", f"referrers/{DIGEST}", "pull"),
]


async def test_each_request_asks_for_what_it_needs(install: Install) -> None:
    """The challenge names the scope; a repository that is there looks like an absent one."""
    account = await install.add_account("acme")
    await install.add_repository(account, "there")
    await install.add_repository(account, "open", let("*"))
    async with install.connect() as client:
        for path in ("/v2", "/v2/"):
            refused(await client.get(path), 401, challenge())
        refused(await client.get("/v2/_catalog"), 401, challenge("registry:catalog:*"))
        refused(await client.get("/v2/", headers=basic("rlc_anything")), 401, challenge())
        for method, path, status in (  # before any sign-in: syntax tells nothing of what is there
            ("GET", "/v2/acme/Upper/tags/list", 400),
            ("GET", "/v2/acme/r/blobs/sha256:zz", 400),
            ("GET", "/v2/alone/tags/list", 400),
            ("GET", "/v2/_other", 404),
            ("PUT", "/v2/acme/r/tags/list", 405),
        ):
            assert (await client.request(method, path)).status_code == status, path
        for (method, path, asked), name in product(SCOPES, ("acme/there", "acme/no", "nobody/no")):
            answer = await client.request(method, f"/v2/{name}/{path}")
            refused(answer, 401, challenge(f"repository:{name}:{asked}"))


async def test_no_forged_token_is_believed(install: Install) -> None:
    """Each gets its 401, and nobody asks another server for a key."""
    account = await install.add_account("acme")
    await install.add_repository(account, "r")
    program = await install.add_program(account, "ci", ALLOW_ALL)
    good = await install.exchange(await install.login(program), "repository:acme/r:pull")
    keys = {each: install.keys.current(each) for each in (API, BEARERS)}
    claims = claims_of(good)
    claims |= {"iat": claims["iat"] - 10, "nbf": claims["nbf"] - 10, "exp": claims["exp"] - 10}
    forged = {
        reason: token
        for reason, token in forgeries(BEARERS, keys, claims)
        if re.fullmatch("[!-~]{0,60000}", token)  # what a header can carry
    }
    forged["exp is huge"] = sign(claims | {"exp": 10**40}, keys[BEARERS])
    forged["control-plane token"] = program.access_token
    forged["login password"] = await install.login(program)
    assert len(forged) >= 80
    async with install.connect() as client:
        path = "/v2/acme/r/tags/list"
        for token in (good, sign(claims, keys[BEARERS])):
            assert (await client.get(path, headers=bearer(token))).status_code == 200
        for reason, token in forged.items():
            answer = await client.get(path, headers=bearer(token))
            assert answer.status_code == 401, reason
            refused(answer, 401, challenge("repository:acme/r:pull", "invalid_token"))
        for value in (f"Bearer {good} ", f"Bearer  {good}", f"bearer {good}"):
            answer = await client.get(path, headers={"Authorization": value})
            assert answer.status_code in (200, 401)
        doubled = [*bearer(good).items(), *bearer(good).items()]
        answer = await client.get(path, headers=doubled)
        refused(answer, 401, challenge("repository:acme/r:pull", "invalid_token"))


async def test_bearers_do_not_open_the_control_plane(install: Install) -> None:
    """Audiences do not mix."""
    account = await install.add_account("acme")
    password = await install.login(await install.add_program(account, "ci", ALLOW_ALL))
    token = await install.exchange(password, "registry:catalog:*")
    async with install.connect() as client:
        for headers in (bearer(token), bearer(password), basic(password)):
            answer = await client.get("/v1/repositories", headers=headers)
            assert answer.status_code == 401
            assert answer.json()["error"]["code"] == "UNAUTHORIZED"


async def test_the_twins_of_a_token_all_end_with_it(sqlite_database: str) -> None:
    """The unused bits of the last character make four spellings of one token."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

    async with open_install(sqlite_database) as install:
        account = await install.add_account("acme")
        await install.add_repository(account, "r")
        password = await install.login(await install.add_program(account, "ci", ALLOW_ALL))
        token = await install.exchange(password, "repository:acme/r:pull")
        async with install.connect() as client:

            async def opening() -> list[str]:
                answers = {
                    twin: await client.get("/v2/acme/r/tags/list", headers=bearer(twin))
                    for twin in (token[:-1] + letter for letter in letters)
                }
                return [twin for twin, answer in answers.items() if answer.status_code == 200]

            twins = await opening()
            assert token in twins
            assert len(twins) == 4
            install.clock.advance(301)
            assert await opening() == []
    with closing(sqlite3.connect(sqlite_database.removeprefix("sqlite:///"))) as raw:
        kept = "\n".join(raw.iterdump())
    assert "eyJ" not in kept
    assert "rlc_" not in kept


async def test_a_token_for_less_asks_for_more_and_a_refused_one_does_not(install: Install) -> None:
    """401 lets a client ask for another token; 403 tells that none would help."""
    account = await install.add_account("acme")
    for name in ("a", "b"):
        await install.add_repository(account, name)
    program = await install.add_program(account, "ci", allow("registry:PullImage"))
    password = await install.login(program)
    pull_a = await install.exchange(password, "repository:acme/a:pull")
    push_a = await install.exchange(password, "repository:acme/a:pull,push")
    absent = await install.exchange(password, "repository:acme/none:pull")
    post = "/v2/acme/a/blobs/uploads/"
    async with install.connect() as client:
        more = challenge("repository:acme/a:pull,push", "insufficient_scope")
        refused(await client.post(post, headers=bearer(pull_a)), 401, more)
        other = challenge("repository:acme/b:pull", "insufficient_scope")
        refused(await client.get("/v2/acme/b/tags/list", headers=bearer(pull_a)), 401, other)
        # It was asked for and refused: another token cannot help.
        for _ in range(3):
            refused(await client.post(post, headers=bearer(push_a)), 403, more)
        head = await client.head(f"/v2/acme/a/blobs/{DIGEST}", headers=bearer(push_a))
        assert head.status_code == 404  # asks for push, needs pull
        missing = await client.get("/v2/acme/none/tags/list", headers=bearer(absent))
        assert missing.json()["errors"][0]["code"] == "NAME_UNKNOWN"
        path = f"/v2/acme/none/referrers/{DIGEST}"
        found = await client.get(path, headers=bearer(absent))
        assert (found.status_code, found.json()["manifests"]) == (200, [])


async def test_the_identical_repeat_gets_403(install: Install) -> None:
    """The Python oras client asks for another token upon nothing else."""
    account = await install.add_account("acme")
    for name in ("a", "b"):
        await install.add_repository(account, name)
    password = await install.login(await install.add_program(account, "ci", ALLOW_ALL))
    token = await install.exchange(password, "repository:acme/a:pull")
    other = await install.exchange(password, "repository:acme/a:pull")
    b = "/v2/acme/b/tags/list"
    more = challenge("repository:acme/b:pull", "insufficient_scope")
    async with install.connect(1) as first, install.connect(2) as second:
        refused(await first.get(b, headers=bearer(token)), 401, more)
        refused(await second.get(b, headers=bearer(token)), 401, more)  # in parallel
        refused(await first.get(b, headers=bearer(token)), 403, more)
        refused(await first.get(b, headers=bearer(token)), 401, more)  # begun anew
        refused(await first.get(b, headers=bearer(other)), 401, more)
        refused(await first.head(b, headers=bearer(other)), 401, more)
        refused(await first.get(b), 401, challenge("repository:acme/b:pull"))
        refused(await first.get(b), 401, challenge("repository:acme/b:pull"))
        install.clock.advance(301)
        stale = challenge("repository:acme/a:pull", "invalid_token")
        a = "/v2/acme/a/tags/list"
        refused(await first.get(a, headers=bearer(token)), 401, stale)
        refused(await first.get(a, headers=bearer(token)), 403, stale)


async def test_missing_and_private_look_alike_to_strangers(install: Install) -> None:
    """Byte for byte, but for what the caller wrote itself."""
    acme = await install.add_account("acme")
    await install.add_repository(acme, "shut", let("*", actions=["registry:PullImage"]))
    await install.add_repository(acme, "priv")
    stranger = await install.add_program(await install.add_account("other"), "ci", ALLOW_ALL)
    password = await install.login(stranger)
    names = ["acme/priv", "acme/none", "nope/none"]
    for who in (password, None):
        for granting in (True, False):
            answers = set()
            for name in names:
                scope = f"repository:{name}:pull" if granting else "repository:acme/x:pull"
                token = await install.exchange(who, scope)
                for method, path, _ in SCOPES:
                    async with install.connect() as client:
                        answer = await client.request(
                            method, f"/v2/{name}/{path}", headers=bearer(token)
                        )
                    shown = f"{method} {path} {answer.status_code} {answer.headers}"
                    del answer.headers["x-request-id"]
                    answers.add(
                        f"{method} {path} {answer.status_code} "
                        f"{sorted(answer.headers.items())} {answer.text}".replace(name, "N")
                    )
                    assert answer.status_code in (401, 403), shown
            assert len(answers) == len(SCOPES)


async def test_two_accounts_cannot_see_each_other(install: Install) -> None:
    tokens = {}
    for handle in ("acme", "other"):
        account = await install.add_account(handle)
        await install.add_repository(account, "r")
        password = await install.login(await install.add_program(account, "ci", ALLOW_ALL))
        scope = "repository:acme/r:* repository:other/r:* registry:catalog:*"
        tokens[handle] = await install.exchange(password, scope)
    async with install.connect() as client:
        for own, foreign in (("acme", "other"), ("other", "acme")):
            headers = bearer(tokens[own])
            answer = await client.get(f"/v2/{own}/r/tags/list", headers=headers)
            assert answer.status_code == 200
            for method, path, asked in SCOPES:
                answer = await client.request(method, f"/v2/{foreign}/r/{path}", headers=headers)
                scope = f"repository:{foreign}/r:{asked}"
                refused(answer, 403, challenge(scope, "insufficient_scope"))
            catalog = await client.get("/v2/_catalog", headers=headers)
            assert catalog.json() == {"repositories": [f"{own}/r"]}


async def test_the_catalog_lists_what_the_caller_may_describe(install: Install) -> None:
    account = await install.add_account("acme")
    for number in range(6):
        await install.add_repository(account, f"{'web' if number % 2 else 'db'}/{number}")
    crn = f"crn:registry:local:{account.id}:repository/web/*"
    program = await install.add_program(
        account, "ci", allow("registry:DescribeRepositories", on=crn)
    )
    token = await install.exchange(await install.login(program), "registry:catalog:*")
    async with install.connect() as client:
        page = await client.get("/v2/_catalog?n=2", headers=bearer(token))
        assert page.json()["repositories"] == ["acme/web/1", "acme/web/3"]
        rest = await client.get(page.links["next"]["url"], headers=bearer(token))
        assert rest.json()["repositories"] == ["acme/web/5"]
        assert "next" not in rest.links
        await install.say(program, allow("storage:GetObject"))  # asked as things are now
        none = await client.get("/v2/_catalog", headers=bearer(token))
        assert none.json()["repositories"] == []


@pytest.mark.parametrize(
    ("challenges", "host", "origin"),
    [
        (Challenges(), "r.example", "http://192.0.2.1:443"),
        (Challenges(), 'x"y', "http://192.0.2.1:443"),
        (Challenges(), "", "http://192.0.2.1:443"),
        (Challenges(hosts=["one", "two"]), "TWO", "http://two"),
        (Challenges(hosts=["r:5000", "[::1]:5000"]), "[::1]:5000", "http://[::1]:5000"),
        (Challenges(hosts=["r:5000"]), "r", "http://r:5000"),
        (Challenges("https://r.example", ["one"]), "one", "https://r.example"),
        (Challenges(hosts=["one", "two"]), "evil", "http://one"),
        (Challenges("https://r.example/"), "evil", "https://r.example"),
    ],
)
def test_the_realm_is_where_we_are(challenges: Challenges, host: str, origin: str) -> None:
    headers = [(b"host", host.encode())]
    scope = {"scheme": "http", "headers": headers, "server": ("192.0.2.1", 443)}
    service = origin.partition("://")[2]
    assert challenges.bearer(scope) == f'Bearer realm="{origin}/v2/token",service="{service}"'
    assert challenges.basic(scope) == f'Basic realm="{service}"'
