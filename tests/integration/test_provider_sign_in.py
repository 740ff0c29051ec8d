"""Signing in at an identity provider: who is signed in, with which roles and for how long."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from cloudcore.identity.oidc.sign_in import BEGIN_BUDGET
from cloudcore.identity.rows import organizations
from cloudcore.identity.rows import sessions as rows
from tests.databases import on_both_databases
from tests.integration.provider_world import (
    AUTHORIZE,
    ProviderWorld,
    complaint,
    open_provider_world,
    query_of,
    trust_provider,
)
from tests.integration.served_world import HOUR, URL


@pytest.fixture
async def world(tmp_path: Path, metadata_url: str) -> AsyncIterator[ProviderWorld]:
    async with open_provider_world(tmp_path / "data", metadata_url) as world:
        yield world


async def test_a_person_is_created_and_found_again(world: ProviderWorld) -> None:
    await world.assign_group("devs")
    await trust_provider(world, world.served.acme.ids["/v1/roles/{}"])
    first = await world.person("subject-1", "Zoe@Example.org", groups=["devs", "other"])
    assert (first["email"], first["roles"]) == ("zoe@example.org", ["role"])
    assert not first["must_change_password"]
    # Later by the subject alone, whatever the address is.
    again = await world.person("subject-1", "else@example.org", groups=["devs"])
    assert (again["id"], again["email"]) == (first["id"], "zoe@example.org")
    other = await world.person("subject-2", "zed@example.org")
    assert (other["id"] != first["id"], other["roles"]) == (True, [])


async def test_what_the_provider_is_asked(world: ProviderWorld) -> None:
    page = await world.open_page()
    host = world.provider.url.removeprefix("http://")
    assert f'<b>Sign in with Acme Login</b> <span class="quiet">{host}</span>' in page.text
    url = await world.leave()
    asked = query_of(url)
    assert url.startswith(f"{world.provider.url}/authorize?")
    assert asked["redirect_uri"] == world.row["redirect_uri"]
    assert asked["redirect_uri"] == f"http://registry.test{AUTHORIZE}/callback/{world.row['id']}"
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    assert asked["scope"] == "openid email profile"
    assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
    other = query_of(await world.leave())
    assert not {other["state"], other["nonce"]} & {asked["state"], asked["nonce"]}
    # Metadata and keys were read once.
    assert set(world.provider.asked.values()) == {1}


async def test_the_console_goes_on_as_after_a_password(world: ProviderWorld) -> None:
    back = f"{URL}/console/signed-in"
    sent = await world.leave(client_id="console", redirect_uri=back, state="of-the-console")
    world.says("subject-1", "zoe@example.org")
    answer = await world.come_back(world.provider.authorize(sent))
    assert answer.status_code == 303
    to = answer.headers["location"]
    assert to.startswith(f"{back}?code=eac_")
    assert query_of(to)["state"] == "of-the-console"


async def test_groups_give_roles_and_take_them(world: ProviderWorld) -> None:
    served, acme = world.served, world.served.acme
    role_id = acme.ids["/v1/roles/{}"]
    assigned = await world.assign_group("devs")
    await world.assign_group("operators")
    world.says("subject-1", "zoe@example.org", groups="devs")  # one group needs no list
    person = await world.redeem(await world.sign_in())
    assert person["roles"] == []
    await world.assume(role_id, person["token"], status=403)  # an assignment changes no trust
    await trust_provider(world, role_id)
    assert (await world.redeem(await world.sign_in()))["roles"] == ["role"]
    session = (await world.assume(role_id, person["token"]))["access_token"]
    path = f"/v1/roles/{role_id}/assignments"

    async def made_by() -> list[Any]:
        rows = await served.ask("GET", path, token=acme.program_token)
        return [
            row["identity_provider"]
            for row in rows.json()["assignments"]
            if row["user"]["id"] == person["id"]
        ]

    assert await made_by() == [world.row["id"]]
    assert (await world.person("subject-1", groups=["operators"]))["roles"] == ["role"]
    assert (await served.ask("GET", f"/v1/roles/{role_id}", token=session)).status_code != 401
    assert (await world.person("subject-1"))["roles"] == []
    # The sessions of the role ended with it.
    assert (await served.ask("GET", f"/v1/roles/{role_id}", token=session)).status_code == 401
    # What was assigned by hand stays, also if it was a group's before.
    world.says("subject-1", groups=["devs"])
    await world.sign_in()
    by_hand = await served.ask("POST", path, {"user": person["id"]}, token=acme.program_token)
    assert by_hand.status_code == 201
    assert await made_by() == [None]
    again = await served.ask("POST", path, {"user": person["id"]}, token=acme.program_token)
    assert again.status_code == 409
    assert (await world.person("subject-1"))["roles"] == ["role"]
    gone = f"/v1/roles/{role_id}/group-assignments/{assigned['id']}"
    assert (await served.ask("DELETE", gone, token=acme.program_token)).status_code == 204
    assert (await served.ask("DELETE", gone, token=acme.program_token)).status_code == 404


async def test_trust_in_a_provider_is_trust_in_its_persons(world: ProviderWorld) -> None:
    served, acme = world.served, world.served.acme
    role_id = acme.ids["/v1/roles/{}"]
    await world.assign_group("devs")
    person = await world.person("subject-1", "zoe@example.org", groups=["devs"])

    await trust_provider(world, role_id)
    await world.assume(role_id, person["token"])
    await trust_provider(world, role_id, {"effect": "deny", "principals": [person["crn"]]})
    await world.assume(role_id, person["token"], status=403)
    # A member who has the role, but never signed in there.
    path = f"/v1/roles/{role_id}/assignments"
    by_hand = {"user": acme.person.id}
    made = await served.ask("POST", path, by_hand, token=acme.program_token)
    assert made.status_code == 201
    await trust_provider(world, role_id)
    await world.assume(role_id, acme.person_token, status=403)
    # Of a resource's policy, a provider is no principal.
    statement = {"effect": "allow", "principals": [world.row["crn"]]}
    policy = {"version": "1", "statements": [{**statement, "actions": ["registry:PullImage"]}]}
    place = f"/v1/repositories/{acme.ids['/v1/repositories/{}']}/policy"
    refused = await served.ask("PUT", place, policy, token=acme.program_token)
    assert refused.status_code == 400
    assert "trust policy may name an identity provider" in refused.text


async def test_the_last_group_takes_its_role_along(world: ProviderWorld) -> None:
    served, acme = world.served, world.served.acme
    assigned = await world.assign_group("devs")
    person = await world.person("subject-1", "zoe@example.org", groups=["devs"])
    path = f"/v1/roles/{acme.ids['/v1/roles/{}']}/group-assignments/{assigned['id']}"
    assert (await served.ask("DELETE", path, token=acme.program_token)).status_code == 204
    roles = await served.ask("GET", "/v1/users/me/roles", token=person["token"])
    assert roles.json()["roles"] == []


async def test_deleting_a_provider_ends_what_it_gave(world: ProviderWorld) -> None:
    served = world.served
    await world.assign_group("devs")
    person = await world.person("subject-1", "zoe@example.org", groups=["devs"])
    answer = world.provider.authorize(await world.leave())
    deleted = await served.ask("DELETE", world.path, token=served.acme.person_token)
    assert deleted.status_code == 204
    token = await world.by_password(person)
    roles = await served.ask("GET", "/v1/users/me/roles", token=token)
    assert roles.json()["roles"] == []
    assert "no such identity provider" in complaint(await world.come_back(answer))
    assert world.row["id"] not in (await world.open_page()).text


async def test_a_member_is_found_by_an_address_of_the_providers_domain(
    world: ProviderWorld,
) -> None:
    ann = await world.add_person("ann@example.org")
    assert (await world.person("subject-ann", "Ann@example.org"))["id"] == ann["id"]
    # Another subject with her address is somebody else.
    assert "as another user of the provider" in await world.complaint(
        "subject-other", "ann@example.org"
    )


NOT_VERIFIED: Final = "names no verified e-mail address"
PROVES_NOTHING: Final[list[tuple[str | None, dict[str, object], str]]] = [
    (None, {}, NOT_VERIFIED),
    ("zoe@example.com", {}, NOT_VERIFIED),
    ("zoe@sub.example.org", {}, NOT_VERIFIED),
    ("zoe@example.org", {"email_verified": False}, NOT_VERIFIED),
    ("zoe@example.org", {"email_verified": None}, NOT_VERIFIED),
    ("zoe@example.org", {"email_verified": "yes"}, NOT_VERIFIED),
    ("zoe@example.org@example.org", {}, NOT_VERIFIED),
    # Members of acme whom no organization added, and who may have joined others.
    ("member-of-acme@example.org", {}, "not this organization's alone"),
    ("owner-of-acme@example.org", {}, "not this organization's alone"),
]


async def test_an_address_that_proves_nothing_signs_nobody_in(world: ProviderWorld) -> None:
    for email, claims, words in PROVES_NOTHING:
        assert words in await world.complaint("subject-1", email, **claims), (email, claims)


async def test_who_may_not_sign_in(world: ProviderWorld) -> None:
    served, acme = world.served, world.served.acme
    await world.change(creates_people=False)
    assert "ask an owner to add the person" in await world.complaint("subject-1", "zoe@example.org")
    await world.change(creates_people=True)
    person = await world.redeem(await world.sign_in())
    user = f"/v1/users/{person['id']}"
    suspended = await served.ask("PATCH", user, {"status": "suspended"}, token=acme.person_token)
    assert suspended.status_code == 200
    assert "this person is suspended" in complaint(await world.sign_in())
    await served.ask("PATCH", user, {"status": "active"}, token=acme.person_token)
    member = f"/v1/organizations/{acme.organization_id}/members/{person['id']}"
    assert (await served.ask("DELETE", member, token=acme.person_token)).status_code == 204
    for subject in ("subject-1", "subject-2"):
        assert "has left the organization" in await world.complaint(subject, "zoe@example.org")
    answer = world.provider.authorize(await world.leave())
    await world.change(status="inactive")
    assert "no such identity provider" in complaint(await world.come_back(answer))
    assert world.row["id"] not in (await world.open_page()).text


async def test_a_person_without_a_password_has_none(world: ProviderWorld) -> None:
    person = await world.person("subject-1", "zoe@example.org")
    body = {"current_password": "", "password": "long enough for us"}
    path, token = "/v1/users/me/password", person["token"]
    changed = await world.served.ask("PUT", path, body, token=token)
    assert changed.status_code in (400, 403)


async def test_an_answer_is_for_one_browser_once(world: ProviderWorld) -> None:
    world.says("subject-1", "zoe@example.org")
    answer = world.provider.authorize(await world.leave())
    own = world.cookies
    cookie = own.get("entrepot_provider_sign_in")
    assert cookie is not None

    world.cookies = type(own)()  # another browser
    assert "this browser did not begin that sign-in" in complaint(await world.come_back(answer))
    world.cookies = own
    for state in ("", "x" * 43):
        wrong = await world.come_back({**answer, "state": state})
        assert "this browser did not begin that sign-in" in complaint(wrong)
    assert world.provider.asked["/token"] == 0
    await world.redeem(await world.come_back(answer))
    # The cookie is gone; and with it, the answer is still spent.
    assert "this browser did not begin" in complaint(await world.come_back(answer))
    world.cookies.set("entrepot_provider_sign_in", cookie, domain="registry.test")
    assert "was used already" in complaint(await world.come_back(answer))
    assert world.provider.asked["/token"] == 1


async def test_an_answer_is_believed_at_its_providers_address_alone(world: ProviderWorld) -> None:
    """Else a provider could have a browser bring it the code of another (RFC 9700 §4.4)."""
    asked, path = world.row, f"/v1/organizations/{world.row['organization']}/identity-providers"
    body = {"name": "Other", "issuer": world.provider.url, "client_id": "entrepot"}
    other = await world.served.make(path, body, token=world.served.acme.person_token)
    world.says("subject-1", "zoe@example.org")
    answer = world.provider.authorize(await world.leave())
    world.row = {**asked, "id": other["id"]}
    refused = await world.come_back(answer)
    assert "another provider answered than the one that was asked" in complaint(refused)
    assert world.provider.asked["/token"] == 0
    world.row = {**asked, "id": "absent"}
    assert (await world.come_back(answer)).status_code == 404
    world.row = asked
    await world.redeem(await world.come_back(answer))
    assert (await world.browse(f"{AUTHORIZE}/callback")).status_code == 404


async def test_a_sign_in_takes_ten_minutes_at_most(world: ProviderWorld) -> None:
    answer = world.provider.authorize(await world.leave())
    world.served.clock.advance(600)
    world.says("subject-1", "zoe@example.org")
    assert "took more than 10 minutes" in complaint(await world.come_back(answer))


async def test_a_link_is_for_the_browser_that_opened_the_page(world: ProviderWorld) -> None:
    link = world.link(await world.open_page())
    world.cookies = type(world.cookies)()
    assert "this form has expired" in complaint(await world.browse(link))


async def test_an_address_begins_so_many(world: ProviderWorld) -> None:
    link = world.link(await world.open_page())
    for _ in range(BEGIN_BUDGET.limit):
        assert (await world.browse(link)).status_code == 303
    refused = await world.browse(link)
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= BEGIN_BUDGET.window_seconds


async def test_where_anyone_may_found_an_organization_no_provider_is_shown(tmp_path: Path) -> None:
    async with open_provider_world(tmp_path / "data", founders="anyone") as world:
        assert world.row["id"] not in (await world.open_page()).text


async def test_names_of_providers_are_shown_as_text(world: ProviderWorld) -> None:
    await world.change(name='<b onclick="x">&')
    page = await world.open_page()
    assert "Sign in with &lt;b onclick=&quot;x&quot;&gt;&amp;" in page.text
    world.provider.metadata = {"issuer": "<script>"}
    world.served.clock.now += 2 * HOUR
    link = world.link(await world.open_page())
    refused = await world.browse(link)
    assert "<script>" not in refused.text
    assert "names another issuer: <script>" in complaint(refused)
    world.provider.metadata = {"issuer": "\0\u202e"}
    assert "names another issuer: \ufffd\ufffd" in complaint(await world.browse(link))


DAY = 24 * 3600


async def begin(world: ProviderWorld) -> dict[str, Any]:
    """Sign Zoe in; return the tokens."""
    world.says("subject-1", "zoe@example.org", groups=["devs"])
    answer = await world.exchange(await world.sign_in())
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def refresh(world: ProviderWorld, tokens: dict[str, Any], *, status: int = 200) -> Any:  # noqa: ANN401
    form = {"grant_type": "refresh_token", "client_id": "cli"}
    answer = await world.ask_token(form | {"refresh_token": tokens["refresh_token"]})
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_no_refresh_outlasts_the_hours_of_the_provider(world: ProviderWorld) -> None:
    served, acme = world.served, world.served.acme
    assert world.row["session_hours"] == 7 * 24
    role_id = acme.ids["/v1/roles/{}"]
    await trust_provider(world, role_id)
    await world.assign_group("devs")
    weekly = await begin(world)
    await world.change(session_hours=2)

    tokens = await begin(world)
    assert tokens["expires_in"] == 3600
    served.clock.advance(5400)
    tokens = await refresh(world, tokens)
    assert tokens["expires_in"] == 1800
    assert (await world.assume(role_id, tokens["access_token"]))["expires_in"] == 1800
    served.clock.advance(1799)
    tokens = await refresh(world, tokens)
    assert tokens["expires_in"] == 1
    served.clock.advance(1)
    await refresh(world, tokens, status=400)
    me = await served.ask("GET", "/v1/users/me", token=tokens["access_token"])
    assert me.status_code == 401

    # A sign-in of before the change has the hours of then.
    served.clock.advance(6 * DAY)
    weekly = await refresh(world, weekly)
    served.clock.advance(DAY)
    await refresh(world, weekly, status=400)


async def test_hours_are_from_one_to_a_month(world: ProviderWorld) -> None:
    served, owner = world.served, world.served.acme.person_token
    for hours in (0, 721):
        answer = await served.ask("PATCH", world.path, {"session_hours": hours}, token=owner)
        assert answer.status_code == 400, answer.text


@on_both_databases
@pytest.mark.parametrize("body", [None, {"status": "inactive"}], ids=["deleted", "turned off"])
async def test_the_end_of_a_provider_ends_what_it_began(world: ProviderWorld, body: object) -> None:
    """Its sign-ins, and the sessions of roles that it gave trust for."""
    served, acme = world.served, world.served.acme
    role_id = acme.ids["/v1/roles/{}"]
    await trust_provider(world, role_id)
    path = f"/v1/roles/{role_id}"
    zoe = await begin(world)
    me = (await served.ask("GET", "/v1/users/me", token=zoe["access_token"])).json()["user"]
    await served.make(f"{path}/assignments", {"user": me["id"]}, token=acme.program_token)

    by_password = await world.by_password(me)
    sources = zoe["access_token"], by_password
    assumed = [(await world.assume(role_id, token))["access_token"] for token in sources]
    ended = [zoe["access_token"], *assumed]
    page = await world.sign_in()
    served.database.noted.clear()
    await world.exchange(await world.sign_in())
    ran = [each.statement for each in served.database.noted]
    # Whether the provider is active is asked under a lock until the session is there.
    assert ran.index(organizations._LOCK) < ran.index(rows._ADD_SESSION)

    async def statuses(tokens: list[str]) -> set[int]:
        answers = [await served.ask("GET", path, token=token) for token in tokens]
        return {answer.status_code for answer in answers}

    assert 401 not in await statuses([*ended, by_password, acme.person_token])
    method = "PATCH" if body else "DELETE"
    assert (await served.ask(method, world.path, body, token=acme.person_token)).is_success
    assert await statuses(ended) == {401}
    assert 401 not in await statuses([by_password, acme.person_token])
    await refresh(world, zoe, status=400)
    assert (await world.exchange(page)).json()["error"] == "invalid_grant"
