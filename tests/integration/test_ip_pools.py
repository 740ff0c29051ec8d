"""IP pools of email: what they have, how they may be called, and how many there may be."""

from __future__ import annotations

import httpx

from cloudcore.email.resources import IP_POOL
from tests.databases import on_both_databases
from tests.integration.served_world import Served

PATH = "/v1/ip-pools"


async def create(served: Served, **body: object) -> httpx.Response:
    return await served.ask("POST", PATH, body, token=served.acme.program_token)


@on_both_databases
async def test_a_pool_keeps_its_name_and_its_name_is_its_alone(served: Served) -> None:
    body = {"name": "news", "description": "Of letters.", "tags": {"team": "web"}}
    made = (await create(served, **body)).json()["ip_pool"]
    assert made["crn"].endswith(":ip-pool/news")
    assert made.keys() == {"id", "crn", "created_at", "updated_at", *body}
    assert (await create(served, name="news")).status_code == 409
    token = served.acme.program_token
    refused = await served.ask("PATCH", f"{PATH}/{made['id']}", {"name": "mail"}, token=token)
    assert refused.json()["error"]["params"]["reason"] == "unknown_field"
    shown = await served.ask("GET", f"{PATH}?name=news", token=token)
    assert shown.json()["ip_pools"] == [made]


async def test_what_is_no_name_is_refused(served: Served) -> None:
    for name in ("", "News", "a/b", "a" * 64):
        refused = await create(served, name=name)
        assert (refused.status_code, refused.json()["error"]["params"]["field"]) == (400, "name")


def test_an_account_has_at_most_fifty() -> None:
    assert IP_POOL.quota == 50
