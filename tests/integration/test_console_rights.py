"""No page shows a form or a link that is refused, and what a role may do is shown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from cloudcore.certificate.family import CERTIFICATE
from registry.composition.families import FAMILIES
from registry.console.addresses import HOME
from registry.console.app import routes_of
from tests.certificates import uploaded
from tests.integration.console_databases import furnish_cluster, furnish_registered, set_status
from tests.integration.console_shop import Shop, open_shop
from tests.integration.console_walk import Walk, kind_of
from tests.jobs import run_due

READ: Final = ("registry:DescribeImages", "registry:DescribeRepositories", "registry:PullImage")
PUSH: Final = (*READ, "registry:CreateRepository", "registry:PushImage")
LOOK: Final = ("iam:Get*", "iam:List*", "registry:Describe*", "registry:Get*", "audit:*")
ABSENT: Final = "01a1fe0c-d624-783e-a91d-7a6ce23df8b5"
ONE: Final = f"{HOME}/{{}}"
BY_ROUTES: Final = {"/console/services/route-tables/{}/routes/remove"}
"""No table here has a route that can be taken away; `pages/services.txt`."""
BY_RUNS: Final = {f"{ONE}/lifecycle/restore", "/console/storage/collection"}
"""Forms that are shown only once a run has ended, and no worker runs here."""
ALWAYS: Final = {
    *("/console/sign-out", "/console/roles", "/console/my-account"),
    "/console/accounts",  # anyone may found accounts here
}
"""Forms of everyone who has signed in."""


@pytest.fixture(scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    """Return a furnished console, which tests share that take nothing away."""
    async with open_shop(tmp_path_factory.mktemp("rights") / "data") as shop:
        await furnish(shop)
        yield shop


@pytest.fixture
async def fresh(tmp_path: Path) -> AsyncIterator[Shop]:
    """Return a furnished console of the test's own, whose forms it may all send."""
    async with open_shop(tmp_path / "data") as shop:
        await furnish(shop)
        yield shop


async def furnish(shop: Shop) -> None:
    """Have something for each form of the console to be about."""
    for tag in ("old", "kept", "gone"):
        await shop.image(tag, tag)
    parts = [await shop.image(f"part-{number}") for number in range(2)]
    media_type = "application/vnd.oci.image.index.v1+json"
    index = {"schemaVersion": 2, "mediaType": media_type, "manifests": parts}
    await shop.manifest(index, "whole")
    (gone,) = (await shop.call("GET", "/images?tag_prefix=gone"))["images"]
    await shop.call("DELETE", f"/images/{gone['digest']}")
    (kept,) = (await shop.call("GET", "/images?tag_prefix=kept"))["images"]
    await shop.call("PUT", "/tags/moved", {"digest": kept["digest"]})
    await shop.call("PUT", "/tags/moved", {"digest": parts[0]["digest"]})
    await shop.call("PUT", "/tags/lost", {"digest": kept["digest"]})
    await shop.call("DELETE", "/tags/lost")
    await shop.call("PUT", f"/images/{kept['digest']}/pins/held", {})
    rules = [{"priority": 1, "selector": "tagged", "keep_last": 1}]
    await shop.call("PUT", "/lifecycle-policy", {"rules": rules})
    statement = {"effect": "allow", "principals": ["globex"], "actions": ["registry:PullImage"]}
    policy = {"version": "1", "statements": [statement]}
    await shop.call("PUT", "/policy", policy)
    await shop.age(1)
    acme = shop.served.acme
    second = {"handle": "second", "organization": acme.organization_id}
    made = await shop.served.make("/v1/accounts", second, token=acme.person_token)
    asleep = {"status": "suspended"}
    await shop.served.ask("PATCH", f"/v1/accounts/{made['id']}", asleep, token=acme.person_token)
    certificate = {"name": "up", **uploaded("up.example.com", shop.served.clock())}
    await shop.make("/v1/certificates/upload", certificate)
    await furnish_cluster(shop)
    await furnish_registered(shop)
    await set_status(shop, acme.ids["/v1/clusters/{}"], "stopped")
    certificates = shop.served.certificates
    kinds = list(CERTIFICATE.runtime.job_kinds(certificates))
    await run_due(certificates.database, kinds, certificates.clock)  # one has a key to export
    old = await shop.make("/v1/repositories", {"name": "old"})
    await shop.served.ask("DELETE", f"/v1/repositories/{old['id']}", token=acme.program_token)


async def walk(shop: Shop, browser: Any) -> Walk:  # noqa: ANN401
    """Follow all links, and send the forms that change nothing."""
    filled = {
        "principal": "role/role",
        "resource": "shop",
        "text": "a",
        "prefix": "sh",
        "name": "made",
        "tag": "made",
        "target": "kept",
        "topic": "images",
        "email": "made@example.org",
        "user": "member-of-acme@example.org",
        "policy": "policy",
        "names": "web/*",
        "seconds": "3600",
        "handle": "third",
    }
    listed = await shop.served.ask(
        "GET", "/v1/service-accounts", token=shop.served.acme.program_token
    )
    programs = [each["id"] for each in listed.json()["service_accounts"]]
    own = [each for each in programs if each != shop.served.acme.ids["/v1/service-accounts/{}"]]
    acme = shop.served.acme
    walked = Walk(browser, filled, (acme.person.id, acme.account_id, *own))
    await walked.follow(HOME)
    await walked.ask()
    return walked


@pytest.mark.parametrize(
    ("actions", "shown"),
    [
        (READ, set[str]()),
        (PUSH, {HOME, f"{ONE}/tags", f"{ONE}/tags/{{}}"}),
        (LOOK, {f"{ONE}/lifecycle/preview"}),
        (
            (*LOOK, "iam:UpdateAccessKey", "iam:DetachPolicy", "registry:RestoreImage"),
            {
                "/console/service-accounts/{}/keys/{}/status",
                "/console/service-accounts/{}/keys/{}/end",
                "/console/service-accounts/{}/policies/{}/detach",
                "/console/account-roles/{}/policies/{}/detach",
                f"{ONE}/lifecycle/preview",
                f"{ONE}/images/{{}}/restore",
                f"{ONE}/tags/{{}}/restore",
            },
        ),
    ],
    ids=["reader", "pusher", "onlooker", "keeper"],
)
async def test_a_role_is_shown_what_it_may_do(
    fresh: Shop, actions: Sequence[str], shown: set[str]
) -> None:
    person, token = await fresh.served.add_person("plain")
    acme = fresh.served.acme
    await fresh.served.join(acme.organization_id, person.email, token, by=acme.person_token)
    async with fresh.browser_that_may(*actions, person_token=token) as browser:
        walked = await walk(fresh, browser)
        assert walked.kinds - ALWAYS == shown
        assert ("/console/audit" in walked.pages) == ("audit:*" in actions)
        await walked.send()
        assert walked.refused == []


@pytest.mark.timeout(240)  # it walks all pages, and sends all forms
async def test_who_may_do_everything_is_shown_everything(fresh: Shop) -> None:
    walked = await walk(fresh, fresh.browser)
    await walked.send()
    assert walked.refused == []
    assert _posted() - walked.kinds == BY_RUNS | BY_ROUTES


def _posted() -> set[str]:
    """Return the paths of the console that take forms, without ids and names."""
    return {
        kind_of(path)
        for handler in routes_of(FAMILIES)
        if "POST" in handler.http_methods
        for path in handler.paths
    }


async def test_no_form_is_taken_that_the_session_has_not_drawn(shop: Shop) -> None:
    taken = {}
    for path in sorted(_posted()):
        target = path.replace("/images/{}", f"/images/sha256:{'0' * 64}").format(*[ABSENT] * 3)
        sent = await shop.browser.post(target, data={"csrf": "x"})
        if sent.status_code != 403:
            taken[path] = sent.status_code
    assert taken == {}


@pytest.mark.parametrize(
    ("actions", "status", "path"),
    [
        (READ, 200, HOME),
        (("queue:ListQueues", "storage:ListBuckets"), 303, "/console/services/queues"),
        (("registry:PullImage",), 403, HOME),
    ],
    ids=["reader", "no-repositories", "nothing"],
)
async def test_a_role_begins_on_a_page_that_it_may_see(
    shop: Shop, actions: Sequence[str], status: int, path: str
) -> None:
    async with shop.browser_that_may(*actions) as browser:
        first = await browser.get(HOME)
        assert (first.status_code, first.headers.get("location", HOME)) == (status, path)
        shown = (await browser.get(path)).text
        assert (">Repositories</a>" in shown) is (status == 200)


async def test_a_topic_is_shown_to_who_may_not_list_its_subscriptions(shop: Shop) -> None:
    path = f"/console/services/topics/{shop.served.acme.ids['/v1/topics/{}']}"
    async with shop.browser_that_may("notifications:GetTopic") as browser:
        shown = await browser.get(path)
        assert (shown.status_code, "<h1>images</h1>" in shown.text) == (200, True)
        assert "Your role may not see who is subscribed" in shown.text
    assert "Your role may not" not in (await shop.browser.get(path)).text


async def test_what_is_forbidden_is_refused_when_it_is_asked_for(shop: Shop) -> None:
    acme = shop.served.acme
    role, program, policy = (
        acme.ids[f"/v1/{kind}/{{}}"] for kind in ("roles", "service-accounts", "policies")
    )
    (kept,) = (await shop.call("GET", "/images?tag_prefix=kept"))["images"]
    picked = {f"pick.{kept['digest']}": "on"}
    async with shop.browser_that_may(*READ, *LOOK) as browser:
        for path, fields in (
            (f"/console/account-roles/{role}/delete", {}),
            (f"/console/service-accounts/{program}/delete", {}),
            (f"/console/policies/{policy}/delete", {}),
            (f"{shop.base}/-/settings/public", {}),
            (f"{shop.base}/-/images/delete", picked),
            (f"{shop.base}:moved", {"target": "kept"}),
            ("/console/storage/collection", {}),
        ):
            answer = await browser.post(path, data={"csrf": "csrf", **fields})
            assert answer.status_code == 403, path
            assert "You may not do that" in answer.text, path
            assert "Another role may be allowed to" in answer.text, path
        assert (await browser.get("/console/policies/new")).status_code == 403


async def test_rights_cost_one_request_a_page(shop: Shop) -> None:
    program = shop.served.acme.ids["/v1/service-accounts/{}"]
    for path in (
        HOME,
        f"{HOME}/deleted",
        "/console/settings/events",
        f"/console/service-accounts/{program}",
        f"{shop.base}/-/settings",
        "/console/no-such-page",
    ):
        shop.calls.clear()
        await shop.browser.get(path)
        assert [each for each in shop.calls if "allowed" in each] == ["/v1/allowed-actions"], path
    shop.calls.clear()
    moved = await shop.send("/settings", description="New.")
    assert moved.status_code == 303
    assert not [each for each in shop.calls if "allowed" in each]  # of a redirect, nothing is shown


async def test_a_role_of_some_repositories_finds_them(shop: Shop) -> None:
    async with shop.browser_that_may(*PUSH, on="crn:registry:*:*:repository/shop*") as browser:
        page = await browser.get(HOME)
        assert (page.status_code, "New repository" in page.text) == (200, True)
        assert "Your role may not list all repositories" in page.text
        assert '<a href="?prefix=shop"><code>shop</code></a>.' in page.text
        listed = await browser.get(HOME, params={"prefix": "sho"})
        assert "Your role may not list all" in listed.text
        listed = await browser.get(HOME, params={"prefix": "shop"})
        assert f'href="{shop.base}"' in listed.text
        assert (await browser.get(shop.base)).status_code == 200
