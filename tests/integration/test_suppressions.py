"""Suppressions of email: one address however it is written, expiry, and what stays."""

from __future__ import annotations

import httpx

from cloudcore.clock import MICROSECONDS
from cloudcore.wire import rfc3339
from tests.databases import on_both_databases
from tests.integration.served_world import Served

PATH = "/v1/suppressions"


async def create(served: Served, **body: object) -> httpx.Response:
    return await served.ask("POST", PATH, body, token=served.acme.program_token)


def later(served: Served, seconds: int) -> str:
    return rfc3339(served.clock() + seconds * MICROSECONDS)


async def test_the_same_address_again_is_refused(served: Served) -> None:
    for address in ("ADA@example.com", "ada@xn--exmple-cua.de"):
        body = {"address": address, "description": "Asked.", "expires_at": later(served, 60)}
        made = (await create(served, **body)).json()["suppression"]
        assert made.items() >= {**body, "reason": "manual"}.items()
        assert made["crn"].endswith(f":suppression/{address.lower()}")
    for again in ("ada@example.com", "ADA@exämple.de", "ada@xn--exmple-cua.de"):
        refused = await create(served, address=again)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "CONFLICT")
        path = f"{PATH}?address={again.upper()}"
        found = await served.ask("GET", path, token=served.acme.program_token)
        assert found.json()["meta"]["total"] == 1
    for address in ("ada", "ada@", "a b@example.com", "ä@example.com", "a@[1.2.3.4]"):
        error = (await create(served, address=address)).json()["error"]
        assert (error["params"]["field"], error["params"]["reason"]) == ("address", "malformed")


@on_both_databases
async def test_an_expired_one_makes_room_for_another(served: Served) -> None:
    first = (await create(served, address="a@example.com", expires_at=later(served, 60))).json()
    served.clock.advance(61)
    second = await create(served, address="A@example.com")
    assert second.status_code == 201
    path = f"{PATH}/{first['suppression']['id']}"
    gone = await served.ask("GET", path, token=served.acme.program_token)
    assert gone.status_code == 404


async def test_an_expiry_lies_ahead_and_goes_with_null(served: Served) -> None:
    made = (await create(served, address="a@example.com", expires_at=later(served, 60))).json()
    path, token = f"{PATH}/{made['suppression']['id']}", served.acme.program_token
    for past in (later(served, -1), "2040-01-01T00:00:00"):
        refused = await served.ask("PATCH", path, {"expires_at": past}, token=token)
        field = refused.json()["error"]["params"]["field"]
        assert (refused.status_code, field) == (400, "expires_at")
    served.clock.advance(61)
    words = await served.ask("PATCH", path, {"description": "New."}, token=token)
    assert words.json()["suppression"]["description"] == "New."
    cleared = await served.ask("PATCH", path, {"expires_at": None}, token=token)
    assert "expires_at" not in cleared.json()["suppression"]
