"""``/v1/quotas``: what an account has and may have, and what an operator has set."""

from __future__ import annotations

from typing import Any, Final

import httpx
import pytest
from sqlalchemy import select

from cloudcore.db.base import Connection
from cloudcore.db.rows import given
from cloudcore.db.statement import Statement
from cloudcore.quotas.limits import ALL_OF_IT, EVERY_ACCOUNT, put_limit, quota_levels, remove_limit
from registry.composition.families import FAMILIES
from tests.integration.served_world import Served

_LEVELS: Final = Statement(
    select(quota_levels.c.name, quota_levels.c.percent).where(given(quota_levels.c.account_id))
)


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


async def test_an_operator_sets_what_another_account_may_have(served: Served) -> None:
    globex = served.globex.account_id
    body = {"limit": 3, "account": "globex"}
    done = await ask(served, "PUT", "/v1/quotas/topics", body)
    assert (done.status_code, done.json()) == (
        200,
        {"quota": {"name": "topics", "account": "globex", "limit": 3}},
    )
    shown = await ask(served, "GET", "/v1/quotas/topics?account=globex")
    assert shown.json()["quota"]["crn"] == f"crn:quotas:local:{globex}:quota/topics"
    listed = await ask(served, "GET", f"/v1/quotas?limit=200&account={globex}")
    found = {each["name"]: each["limit"] for each in listed.json()["quotas"]}
    assert (shown.json()["quota"]["limit"], found["topics"]) == (3, 3)
    assert (await quota_of(served, "topics"))["limit"] == 1000  # the operator's own
    token = served.globex.program_token
    own = await served.ask("GET", "/v1/quotas/topics", token=token)
    assert own.json()["quota"]["limit"] == 3
    events = await served.ask("GET", "/v1/audit-events?action=quotas:SetQuota", token=token)
    (event,) = events.json()["events"]
    assert event["details"] == {"name": "topics", "account": globex, "limit": 3}

    gone = await ask(served, "DELETE", "/v1/quotas/topics?account=globex")
    assert (gone.status_code, gone.content) == (204, b"")
    again = await ask(served, "DELETE", "/v1/quotas/topics?account=globex")
    assert (again.status_code, again.json()["error"]["params"]) == (404, {"reason": "not_set"})


async def test_an_operator_sets_what_all_accounts_may_have(served: Served) -> None:
    assert (await ask(served, "PUT", "/v1/quotas/organizations", {"limit": 9})).status_code == 200
    assert (await ask(served, "PUT", "/v1/quotas/queues", {"limit": 8})).status_code == 200
    token = served.globex.program_token
    own = await served.ask("GET", "/v1/quotas/queues", token=token)
    assert (own.json()["quota"]["limit"], own.json()["quota"]["default"]) == (8, 8)
    assert (await ask(served, "DELETE", "/v1/quotas/queues")).status_code == 204


async def test_an_account_that_is_near_its_new_limit_is_told(served: Served) -> None:
    used = (await quota_of(served, "keys"))["used"]
    body = {"limit": used, "account": served.acme.account_id}
    assert (await ask(served, "PUT", "/v1/quotas/keys", body)).status_code == 200
    levels = await served.database.read(_levels, served.acme.account_id)
    assert levels == [("keys", ALL_OF_IT)]


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("queues", {"limit": -1}, 400, None),
        ("queues", {"limit": 2**62 + 1}, 400, None),
        ("queues", {"limit": 1.5}, 400, None),
        ("queues", {}, 400, None),
        ("queues", {"limit": 1, "account": ""}, 400, None),
        ("organizations", {"limit": 1, "account": "globex"}, 400, "not_of_account"),
        ("queues", {"limit": 1, "account": "nobody"}, 404, None),
        ("nothing", {"limit": 1}, 404, None),
    ],
)
async def test_what_is_no_limit_is_refused(
    served: Served, path: str, body: object, status: int, reason: str | None
) -> None:
    answer = await ask(served, "PUT", f"/v1/quotas/{path}", body)
    assert answer.status_code == status, answer.text
    if reason:
        assert answer.json()["error"]["params"]["reason"] == reason


@pytest.mark.parametrize("account", ["acme", "globex", "nobody", None])
async def test_an_account_that_is_no_operator_sets_and_sees_nothing_else(
    served: Served, account: str | None
) -> None:
    token, query = served.globex.program_token, f"?account={account}" if account else ""
    body = {"limit": 10**9, **({"account": account} if account else {})}
    asked = [
        ("PUT", "/v1/quotas/queues", body),
        ("PUT", "/v1/quotas/nothing", body),
        ("DELETE", f"/v1/quotas/queues{query}", None),
    ]
    if account:
        asked += [("GET", f"/v1/quotas{query}", None), ("GET", f"/v1/quotas/queues{query}", None)]
    for method, path, each in asked:
        answer = await served.ask(method, path, each, token=token)
        assert answer.status_code == 403, (method, path, answer.text)
        assert answer.json()["error"]["code"] == "ACCESS_DENIED"


async def test_the_right_is_needed_also_in_the_account_of_an_operator(served: Served) -> None:
    owner = served.acme.program_token
    program = await served.make("/v1/service-accounts", {"name": "plain"}, token=owner)
    path = f"/v1/service-accounts/{program['id']}/access-keys"
    key = await served.make(path, {}, token=owner)
    token = await served.program_token(key["access_key_id"], key["secret_access_key"])
    answer = await served.ask("PUT", "/v1/quotas/queues", {"limit": 1}, token=token)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "ACCESS_DENIED")


def _levels(tx: Connection, account_id: str) -> list[tuple[str, int]]:
    return [(name, level) for name, level in tx.rows(_LEVELS, account_id=account_id)]
