"""``/v1/quotas``: what an account has and may have, and what an operator has set."""

from __future__ import annotations

from typing import Any

import httpx

from cloudcore.quotas.limits import EVERY_ACCOUNT, put_limit, remove_limit
from registry.families import FAMILIES
from tests.integration.served_world import Served


async def ask(served: Served, method: str, path: str, body: object = None) -> httpx.Response:
    return await served.ask(method, path, body, token=served.acme.program_token)


async def quota_of(served: Served, name: str) -> dict[str, Any]:
    answer = await ask(served, "GET", f"/v1/quotas/{name}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["quota"])


async def test_an_account_sees_its_own_limits_and_what_it_uses(served: Served) -> None:
    account_id = served.acme.account_id
    before = await quota_of(served, "queues")
    assert (before["limit"], before["default"]) == (1000, 1000)
    assert before["crn"] == f"crn:quotas:local:{account_id}:quota/queues"
    await served.database.write(put_limit, EVERY_ACCOUNT, "queues", 7, 1)
    await served.database.write(put_limit, account_id, "queues", before["used"] + 1, 1)
    assert (await ask(served, "POST", "/v1/queues", {"name": "one"})).status_code == 201
    refused = await ask(served, "POST", "/v1/queues", {"name": "two"})
    most = before["used"] + 1
    assert refused.status_code == 403
    assert refused.json()["error"]["params"] == {"quota": "queues", "limit": most, "used": most}
    found = await quota_of(served, "queues")
    assert (found["limit"], found["default"], found["used"]) == (most, 7, most)
    assert await served.database.write(remove_limit, account_id, "queues")
    assert not await served.database.write(remove_limit, account_id, "queues")
    assert (await ask(served, "POST", "/v1/queues", {"name": "two"})).status_code == 201
    assert (await quota_of(served, "queues"))["limit"] == 7


async def test_the_limit_of_one_account_is_not_that_of_another(served: Served) -> None:
    await served.database.write(put_limit, served.globex.account_id, "queues", 0, 1)
    assert (await quota_of(served, "queues"))["limit"] == 1000
    assert (await ask(served, "POST", "/v1/queues", {"name": "own"})).status_code == 201


async def test_all_quotas_of_accounts_are_listed_in_pages(served: Served) -> None:
    every = (await ask(served, "GET", "/v1/quotas?limit=200")).json()
    names = [each["name"] for each in every["quotas"]]
    wanted = {each.name for family in FAMILIES for each in family.quotas if each.is_of_account}
    assert names == sorted(wanted)
    first = (await ask(served, "GET", "/v1/quotas?limit=4")).json()
    rest = (await ask(served, "GET", f"/v1/quotas?marker={first['meta']['marker']}")).json()
    assert [*first["quotas"], *rest["quotas"]] == every["quotas"]
    assert first["meta"]["total"] == len(wanted)
    counted = {each["name"] for each in every["quotas"] if each["used"] is not None}
    many = {each.many for family in FAMILIES for each in family.resources}
    assert counted >= many & wanted


async def test_an_unknown_quota_is_missing(served: Served) -> None:
    for name in ("nothing", "accounts", "organizations"):
        assert (await ask(served, "GET", f"/v1/quotas/{name}")).status_code == 404
