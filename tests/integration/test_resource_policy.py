"""``/v1/repositories/{id}/policy``: what may be said, whom it lets in, whom it would lock out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import pytest

from cloudcore.errors import NotFound
from cloudcore.identity.services import service_accounts
from registry.services.lifecycle import rules as lifecycle_policies
from registry.services.lifecycle.rules import LifecycleRule
from registry.services.repositories import policies as resource_policies
from registry.services.repositories.details import delete_repository
from tests.databases import on_both_databases
from tests.integration.pushing import PATH, client_of, create, refused
from tests.tenants import (
    ALLOW_ALL,
    Install,
    Program,
    allow,
    bearer,
    document,
    let,
    open_install,
    refuse,
)

PARTNER = let("partner")


async def test_a_policy_from_its_making_to_its_end(install: Install) -> None:
    await install.add_account("partner")
    client = await client_of(install, "acme")
    made = await create(client, "r")
    path = f"{PATH}/{made['id']}/policy"
    refused(await client.get(path), 404, "NOT_FOUND")
    refused(await client.delete(path), 404, "NOT_FOUND")

    put = await client.put(path, json=document(PARTNER))
    assert put.status_code == 200, put.text
    policy = put.json()["policy"]
    assert policy["repository"] == {key: made[key] for key in ("id", "crn", "name")}
    assert policy["document"]["statements"][0]["principals"] == ["partner"]
    assert policy["revision"] == 1
    assert (await client.get(path)).json() == put.json()
    assert (await visibility(client, made["id"])) == "shared"

    wrapped = await client.put(path, json={"policy": document(let("*"), refuse("partner"))})
    assert wrapped.json()["policy"]["revision"] == 2
    assert (await visibility(client, made["id"])) == "public"
    await client.put(f"{path}?force=true", json=document(refuse("*")))
    assert (await visibility(client, made["id"])) == "private"

    # What was accepted is accepted as it is given back.
    kept = (await client.get(path)).json()["policy"]["document"]
    assert (await client.put(path, json=kept)).json()["policy"]["document"] == kept

    assert (await client.delete(path)).status_code == 204
    refused(await client.get(path), 404, "NOT_FOUND")
    assert (await client.delete(f"{PATH}/{made['id']}")).status_code == 204
    refused(await client.put(path, json=document(PARTNER)), 404, "NOT_FOUND")


async def visibility(client: Any, ident: str) -> str:  # noqa: ANN401
    return str((await client.get(f"{PATH}/{ident}")).json()["repository"]["visibility"])


async def pulls(install: Install, program: Program, name: str) -> int:
    """Return the status of a pull from a repository of ``acme`` by a bearer of the program."""
    token = await install.exchange(await install.login(program), f"repository:acme/{name}:pull")
    async with install.connect() as client:
        answer = await client.get(f"/v2/acme/{name}/tags/list", headers=bearer(token))
    return answer.status_code


async def test_a_partner_needs_both_policies(install: Install) -> None:
    """Rule 8, also where the repository is public."""
    acme = await install.add_account("acme")
    partner = await install.add_account("partner")
    allowed = await install.add_program(partner, "ci", ALLOW_ALL)
    silent = await install.add_program(partner, "silent", allow("storage:GetObject"))
    for number, (resource, lets) in enumerate(
        (
            ([], False),
            ([let("partner")], True),
            ([let("crn:iam::partner:service-account/ci")], True),
            ([let("crn:iam::partner:service-account/other")], False),
            ([let("*")], True),
            ([let("acme")], False),
            ([let("partner"), refuse("partner")], False),
            ([let("partner"), refuse("*")], False),
            ([let("partner", actions=["registry:PushImage"])], False),
        )
    ):
        await install.add_repository(acme, f"r{number}", *resource)
        assert await pulls(install, allowed, f"r{number}") == (200 if lets else 403), resource
        assert await pulls(install, silent, f"r{number}") == 403, resource


async def test_an_insider_may_be_let_in_by_name_but_not_as_the_public(install: Install) -> None:
    acme = await install.add_account("acme")
    program = await install.add_program(acme, "ci", allow("storage:GetObject"))
    for number, (resource, status) in enumerate(
        (
            ([let("acme")], 200),
            ([let("crn:iam::acme:service-account/ci")], 200),
            ([let("*")], 403),
            ([let("*"), refuse("acme")], 403),
        )
    ):
        await install.add_repository(acme, f"r{number}", *resource)
        assert await pulls(install, program, f"r{number}") == status, resource


async def test_who_takes_a_name_later_gains_nothing(install: Install) -> None:
    acme, partner = [await install.add_account(name) for name in ("acme", "partner")]
    for account, said in ((acme, allow("storage:GetObject")), (partner, ALLOW_ALL)):
        first, name = await install.add_program(account, "ci", said), f"of-{account.handle}"
        letting = let(f"crn:iam::{account.handle}:service-account/ci")
        await install.add_repository(acme, name, letting)
        assert await pulls(install, first, name) == 200
        await install.database.write(service_accounts.delete_service_account, account.id, first.id)
        second = await install.add_program(account, "ci", said, policy="ci2")
        assert await pulls(install, second, name) == 403


async def test_of_another_account_it_is_not_told_who_exists(install: Install) -> None:
    partner = await install.add_account("partner")
    await install.add_program(partner, "here", ALLOW_ALL)
    client = await client_of(install, "acme")
    path = f"{PATH}/{(await create(client, 'r'))['id']}/policy"
    for name in ("here", "gone"):
        crn = f"crn:iam::partner:service-account/{name}"
        answer = await client.put(path, json=document(let(crn)))
        assert answer.status_code == 200
    late = await install.add_program(partner, "gone", ALLOW_ALL)
    assert await pulls(install, late, "r") == 403


async def test_of_another_account_it_is_not_told_whether_it_exists(install: Install) -> None:
    """Answers differ by nothing but what was written, and later bearers gain nothing."""
    await install.add_account("partner")
    client = await client_of(install, "acme")
    ident = (await create(client, "r"))["id"]
    path = f"{PATH}/{ident}/policy"
    for form in ("{}", "crn:iam::{}:role/x", "crn:iam::{}:service-account/x"):
        told = []
        for handle in ("partner", "stranger"):
            said = document(let(form.format(handle)))
            put = await client.put(path, json=said)
            assert put.status_code == 200
            assert put.json()["policy"]["document"] == said
            assert (await client.get(path)).json() == put.json()
            told.append((put.status_code, await visibility(client, ident)))
        assert told[0] == told[1]
    await client.put(path, json=document(let("stranger")))
    stranger = await install.add_account("stranger")
    late = await install.add_program(stranger, "ci", ALLOW_ALL)
    assert await pulls(install, late, "r") == 403
    await client.put(path, json=document(let("stranger")))
    assert await pulls(install, late, "r") == 200


@on_both_databases
async def test_a_revision_never_comes_again(install: Install) -> None:
    client = await client_of(install, "acme")
    r, other = [f"{PATH}/{(await create(client, name))['id']}" for name in ("r", "other")]
    rule = {"priority": 1, "selector": "any", "keep_last": 1}
    for kind, said in (("policy", document(PARTNER)), ("lifecycle-policy", {"rules": [rule]})):
        path = f"{r}/{kind}"
        for expected in (1, 3, 5):
            for revision in (expected, expected + 1):
                (told,) = (await client.put(path, json=said)).json().values()
                assert told["revision"] == revision
            assert (await client.delete(path)).status_code == 204
            assert (await client.delete(path)).status_code == 404
        (told,) = (await client.put(f"{other}/{kind}", json=said)).json().values()
        assert told["revision"] == 1


RULE = LifecycleRule(priority=1, selector="any", keep_last=1)


@on_both_databases
async def test_a_repository_deleted_meanwhile_keeps_its_policies(install: Install) -> None:
    """A change that was authorized before the deletion, and comes to its lock after it."""
    write, now = install.database.write, install.clock()
    acme = await install.add_account("acme")
    repository = await install.add_repository(acme, "r", let("*"))
    await write(lifecycle_policies.put_policy, repository, [RULE], now)
    change = install.ctx.change_by("")
    await write(delete_repository, acme.id, repository, change, force=False)
    put = resource_policies.put_resource_policy
    for late in (
        lambda tx: put(tx, repository, acme.id, document(let("*")), now),
        lambda tx: resource_policies.delete_resource_policy(tx, repository),
        lambda tx: lifecycle_policies.put_policy(tx, repository, [RULE], now),
        lambda tx: lifecycle_policies.delete_policy(tx, repository),
    ):
        with pytest.raises(NotFound, match="no such repository"):
            await write(late)


async def test_conditions_are_judged_at_the_exchange(install: Install) -> None:
    acme = await install.add_account("acme")
    near = {**let("*"), "conditions": {"ip_address": ["192.0.2.0/24"]}}
    await install.add_repository(acme, "r", near)
    for address, status in (("192.0.2.7", 200), ("198.51.100.7", 401)):
        async with install.connect(address=address) as client:
            scope = "/v2/token?scope=repository:acme/r:pull"
            headers = {"x-forwarded-for": "192.0.2.7"}  # believed from proxies only
            token = (await client.get(scope, headers=headers)).json()["token"]
            answer = await client.get("/v2/acme/r/tags/list", headers=bearer(token))
            assert answer.status_code == status


PULL: Final = "registry:PullImage"
PUSH: Final = "registry:PushImage"
SEE: Final = "registry:DescribeImages"
SELF: Final = "crn:iam::acme:service-account/ci"
JSON: Final = {"content-type": "application/json"}


@asynccontextmanager
async def open_client(
    url: str, *statements: dict[str, Any]
) -> AsyncIterator[tuple[httpx.AsyncClient, str]]:
    """Open a client of ``ci`` in ``acme``, and return it with the path of a repository's policy."""
    async with open_install(url) as install:
        await install.add_account("partner")
        account = await install.add_account("acme")
        program = await install.add_program(account, "ci", *(statements or (ALLOW_ALL,)))
        await install.add_program(account, "other", ALLOW_ALL)
        repository = await install.add_repository(account, "r")
        async with install.connect() as client:
            client.headers.update(bearer(program.access_token))
            yield client, f"{PATH}/{repository}/policy"


def only(statement: dict[str, Any], **conditions: Any) -> dict[str, Any]:  # noqa: ANN401
    return statement | {"conditions": conditions}


DENIALS: Final[list[tuple[list[dict[str, Any]], list[str]]]] = [
    ([refuse("*")], [PULL]),
    ([refuse("acme")], [PULL]),
    ([refuse(SELF)], [PULL]),
    ([let("*"), refuse("*", actions=[PULL, PUSH, SEE])], [SEE, PULL, PUSH]),
    ([refuse(SELF, actions=[SEE])], [SEE]),
    ([only(refuse("*"), ip_address=["192.0.2.0/24"])], [PULL]),
    ([only(refuse("*"), not_ip_address=["198.51.100.0/24"])], [PULL]),
    ([refuse("partner")], []),
    ([refuse("crn:iam::acme:service-account/other")], []),
    ([let("*")], []),
    ([only(refuse("*"), ip_address=["198.51.100.0/24"])], []),
    ([only(refuse("*"), date_before="2020-01-01T00:00:00Z")], []),
]
"""Statements of a new policy, and the actions that it takes from who sets it."""


async def test_a_policy_that_denies_its_setter_is_forced_or_refused(sqlite_database: str) -> None:
    async with open_client(sqlite_database) as (client, path):
        for statements, lost in DENIALS:
            await client.delete(path)
            said = document(*statements)
            answer = await client.put(path, json=said)
            if not lost:
                assert answer.status_code == 200, (statements, answer.text)
                continue
            params = refused(answer, 409, "CONFLICT", about=statements)
            assert params == {"actions": lost}, statements
            refused(await client.get(path), 404, "NOT_FOUND", about=statements)
            answer = await client.put(f"{path}?force=false", json=said)
            refused(answer, 409, "CONFLICT", about=statements)
            answer = await client.put(f"{path}?force=1", json=said)
            refused(answer, 400, "INVALID_INPUT", "force", about=statements)
            answer = await client.put(f"{path}?force=true", json=said)
            assert answer.status_code == 200, (statements, answer.text)
            # It has nothing more to lose by what it lives with.
            answer = await client.put(path, json=said)
            assert answer.status_code == 200, (statements, answer.text)


async def test_what_one_may_not_do_anyway_cannot_be_lost(sqlite_database: str) -> None:
    """The way out stays open: no policy of a repository can deny its own replacement."""
    own = allow("registry:PutRepositoryPolicy", "registry:DeleteRepositoryPolicy")
    async with open_client(sqlite_database, own) as (client, path):
        assert (await client.put(path, json=document(refuse("*")))).status_code == 200
        assert (await client.delete(path)).status_code == 204
        assert (await client.put(path, json=document(let(SELF)))).status_code == 200
        # Now it may pull, by the repository's own policy, and would lose that to a denial...
        said = document(let(SELF), refuse("acme"))
        refused(await client.put(path, json=said), 409, "CONFLICT")
        # ... but what is merely not allowed any more is what it asked for.
        assert (await client.put(path, json=document(let("partner")))).status_code == 200


async def test_a_document_is_checked_before_the_lock_out(sqlite_database: str) -> None:
    async with open_client(sqlite_database) as (client, path):
        said = document(refuse("*"), let("crn:iam::acme:role/absent"))
        refused(await client.put(path, json=said), 400, "INVALID_INPUT")
        refused(await client.put(f"{path}?force=true", json=said), 400, "INVALID_INPUT")


def _encoded(**changes: object) -> bytes:
    return json.dumps(document(let("partner") | changes)).encode()


@pytest.mark.parametrize("force", ["", "?force=true"], ids=["", "forced"])
async def test_no_document_is_taken_by_half(sqlite_database: str, force: str) -> None:
    """Refused as a whole, and nothing of it ignored; force changes nothing.

    What a policy may say is told by `tests/unit/test_policy.py`.
    """
    bodies = {
        "no JSON": b"{version: 1}",
        "cut off": _encoded()[:-1],
        "twice": _encoded().replace(b'"effect"', b'"effect": "deny", "effect"'),
        "not UTF-8": _encoded().replace(b"partner", b"partner\xff"),
        "a byte order mark": b"\xef\xbb\xbf" + _encoded(),
        "NaN": _encoded().replace(b'"allow"', b"NaN"),
        "null": b"null",
        "a list": b"[]",
        "a string": json.dumps(_encoded().decode()).encode(),
        "nothing": b"",
        "deep": b'{"version": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        "a null character": _encoded(sid="a\0b"),
        "20 KiB": json.dumps(
            document(*[{"sid": "y" * 128} | let(*["partner"] * 30)] * 50)
        ).encode(),
        "an effect": _encoded(effect="Allow"),
        "NotAction": _encoded(NotAction=["registry:PullImage"]),
        "an object without fields": b"{}",
        "no statements": b'{"version": "1"}',
        "no text in its place": b'{"policy": "text"}',
        "fields beside it": json.dumps(
            {"policy": document(let("partner")), "version": "1"}
        ).encode(),
        "no such role": _encoded(principals=["crn:iam::acme:role/absent"]),
        "no such program": _encoded(principals=["crn:iam::acme:service-account/absent"]),
        "the public among others": _encoded(
            principals=["partner", "*"], actions=["registry:PullImage", "registry:PushImage"]
        ),
    }

    async with open_client(sqlite_database) as (client, path):
        before = await client.put(path, json=document(let("partner")))
        assert before.status_code == 200
        for name, body in bodies.items():
            answer = await client.put(f"{path}{force}", content=body, headers=JSON)
            assert answer.status_code == 400, (name, answer.text)
            error = answer.json()["error"]
            assert error["code"] == "INVALID_INPUT", name
            assert {"field", "reason"} <= error["params"].keys(), name
        kind = {"content-type": "text/plain"}
        answer = await client.put(f"{path}{force}", content=_encoded(), headers=kind)
        refused(answer, 415, "UNSUPPORTED_MEDIA_TYPE")
        large = b" " * (1 << 20) + _encoded()
        answer = await client.put(f"{path}{force}", content=large, headers=JSON)
        refused(answer, 413, "PAYLOAD_TOO_LARGE")
        assert (await client.get(path)).json() == before.json()
