"""The question to the policies in the console: may they?"""

from __future__ import annotations

import httpx

from registry.console.addresses import SIMULATOR
from registry.console.pages.access.policies import principal_of, resource_of
from tests.integration.console_access import see
from tests.integration.console_shop import Shop


def question(**fields: str) -> str:
    return f"{SIMULATOR}?{httpx.QueryParams(fields)}"


def test_names_stand_for_what_is_meant() -> None:
    assert principal_of("ci", "acme") == "crn:iam::acme:service-account/ci"
    assert principal_of("role/admin", "acme") == "crn:iam::acme:role/admin"
    for written in ("*", "crn:iam::acme:role/admin", "person/x"):
        assert principal_of(written, "acme") == written
    assert resource_of("web/app", "acme", "eu") == "crn:registry:eu:acme:repository/web/app"
    assert resource_of("crn:iam::acme:role/x", "acme", "eu") == "crn:iam::acme:role/x"


async def test_decisions_name_the_statements_that_decide(shop: Shop) -> None:
    token = shop.served.acme.program_token
    body = {"name": "asked", "grants": [{"template": "reader", "names": ["web/*"]}]}
    made = await shop.served.ask("POST", "/v1/service-accounts", body, token=token)
    assert made.status_code == 201
    (policy,) = made.json()["policies"]
    actions = "registry:PullImage, registry:PushImage"
    page = await see(shop, question(principal="asked", actions=actions, resource="web/app"))
    assert ">Yes<" in page
    assert ">No, nothing allows it<" in page
    assert f'allow: <a href="/console/policies/{policy["id"]}">asked-reader</a>' in page
    other = await see(shop, question(principal="asked", actions=actions, resource="api"))
    assert ">Yes<" not in other
    everyone = await see(shop, question(principal="*", actions=actions, resource="shop"))
    assert ">No, nothing allows it<" in everyone


async def test_questions_that_cannot_be_keep_what_was_asked(shop: Shop) -> None:
    blank = await see(shop, SIMULATOR)
    assert "registry:PullImage registry:PushImage" in blank
    wrong = {"principal": "asked", "actions": "registry:PulImage", "resource": "web/app"}
    page = await see(shop, question(**wrong), 400)
    assert "registry:PullImage" in page
    assert 'value="registry:PulImage"' in page
    await see(shop, question(principal="x y", actions="registry:PullImage", resource="a"), 400)
    linked = await see(shop, f"{shop.base}/-/policy")
    assert f'href="{SIMULATOR}?resource=crn' in linked
    async with shop.browser_that_may("registry:DescribeRepositories") as other:
        sent = await other.get(
            question(principal="program", actions="registry:PullImage", resource="shop")
        )
        assert (sent.status_code, "iam:SimulatePolicy" in sent.text) == (403, True)
