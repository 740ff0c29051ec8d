"""``PUT …/policy`` keeps its caller from locking itself out, and takes no document by half."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import pytest

from tests.integration.pushing import PATH, refused
from tests.tenants import ALLOW_ALL, allow, bearer, document, let, open_install, refuse

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
    """Return a statement under conditions."""
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
            refused(answer, 409, "CONFLICT")
            assert answer.json()["error"]["params"] == {"actions": lost}
            refused(await client.get(path), 404, "NOT_FOUND")
            refused(await client.put(f"{path}?force=false", json=said), 409, "CONFLICT")
            refused(await client.put(f"{path}?force=1", json=said), 400, "INVALID_INPUT", "force")
            assert (await client.put(f"{path}?force=true", json=said)).status_code == 200
            # It has nothing more to lose by what it lives with.
            assert (await client.put(path, json=said)).status_code == 200


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
