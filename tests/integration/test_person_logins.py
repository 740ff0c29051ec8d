"""What a person logs container clients in with: how long it lasts, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection
from cloudcore.iam.passwords import hash_password
from cloudcore.identity.routes import container_passwords as routes
from cloudcore.identity.rows import sessions
from cloudcore.identity.rows.accounts import OWN_ACCOUNT, find_account
from cloudcore.identity.rows.container_passwords import ContainerPassword
from cloudcore.identity.services import container_passwords
from cloudcore.web.context import RequestContext
from cloudcore.wire import moment_of
from registry.services.access.logins import ADDRESS_BUDGET, CREDENTIAL_BUDGET
from tests.databases import on_both_databases
from tests.integration.acting_persons import assume, set_password
from tests.integration.provider_world import open_provider_world
from tests.integration.served_world import Served
from tests.integration.tokens_world import access_of
from tests.passwords import CHEAP
from tests.tenants import allow, claims_of, document, trust

PATH: Final = "/v1/users/me/container-passwords"
HOUR: Final = 3600 * MICROSECONDS
SECOND: Final = MICROSECONDS
MINUTE: Final = 60 * SECOND
DAY: Final = 24 * HOUR
ROLE: Final = "developer"
CONTENT: Final = b"a layer"


class Developer(NamedTuple):
    """A person with a role of acme, who has signed in."""

    name: str
    """Of the role, and of its policy."""
    id: str
    crn: str
    token: str
    role_id: str


async def renew_sign_in(served: Served, token: str) -> str:
    """Let a sign-in last for 30 days, as it does in a browser; return its id."""
    sid = served.tokens.verify(token).sid
    assert sid is not None
    await served.database.write(sessions.extend_session, sid, served.clock() + 30 * DAY)
    return sid


async def add_developer(served: Served, *actions: str, name: str = ROLE) -> Developer:
    """Add a person who may pull, log container clients in and do `actions`, by a role of acme."""
    acme = served.acme
    user, token = await served.add_person(f"of-{name}")
    await served.join(acme.organization_id, user.email, token, by=acme.person_token)
    await renew_sign_in(served, token)
    crn = f"crn:iam::{user.organization_id}:user/{user.id}"
    make = partial(served.make, token=acme.program_token)
    role = await make("/v1/roles", {"name": name, "trust_policy": trust(crn)})
    allowed = ["registry:GetAuthorizationToken", "registry:PullImage", *actions]
    policy = await make("/v1/policies", {"name": name, "document": rights(*allowed)})
    await make(f"/v1/policies/{policy['id']}/attachments", {"role": role["id"]})
    await make(f"/v1/roles/{role['id']}/assignments", {"user": user.email})
    return Developer(name, user.id, crn, token, role["id"])


def rights(*actions: str) -> dict[str, Any]:
    return document(allow(*actions))


async def make(served: Served, developer: Developer, **fields: object) -> dict[str, Any]:
    wanted = {"name": "laptop", "role": developer.name, **fields}
    return dict(await served.make(PATH, wanted, token=developer.token))


def life_of(made: dict[str, Any]) -> int:
    """Return how long a password lasts, in microseconds."""
    begun, over = (datetime.fromisoformat(made[name]) for name in ("created_at", "expires_at"))
    return moment_of(over) - moment_of(begun)


async def exchange(served: Served, password: str, username: str = "token") -> httpx.Response:
    return await served.ask(
        "GET",
        "/v2/token?scope=repository:acme/app:pull,push",
        headers={"Authorization": httpx.BasicAuth(username, password)._auth_header},
    )


async def listed(served: Served, developer: Developer) -> list[dict[str, Any]]:
    answer = await served.ask("GET", PATH, token=developer.token)
    return list(answer.json()["container_passwords"])


async def test_a_password_has_the_rights_of_the_role_and_not_more(served: Served) -> None:
    developer = await add_developer(served)
    asked = {"name": "laptop", "role": ROLE}
    answer = await served.ask("POST", PATH, asked, token=developer.token)
    made = answer.json()["container_password"]
    assert answer.headers["location"] == f"{PATH}/{made['id']}"
    assert (made["username"], made["account"]["name"]) == ("token", "acme")
    assert (made["role"]["name"], made["last_used_at"]) == (ROLE, None)
    assert life_of(made) == 12 * HOUR

    answer = await exchange(served, made["password"])
    assert answer.status_code == 200, answer.text
    bearer = answer.json()["token"]
    (entry,) = access_of(bearer)
    assert (entry["actions"], entry["denied"]) == (["pull"], ["push"])
    # What is asked with the bearer later is decided for the same role.
    tags = await served.ask("GET", "/v2/acme/app/tags/list", token=bearer)
    assert tags.status_code == 200
    names = await served.ask("GET", "/v2/token?scope=registry:catalog:*")
    assert names.status_code == 200

    (shown,) = await listed(served, developer)
    assert shown == {name: made[name] for name in shown}
    assert "password" not in shown
    one = await served.ask("GET", f"{PATH}/{made['id']}", token=developer.token)
    assert one.json() == {"container_password": shown}
    assert (await exchange(served, made["password"], "AKAAAAAAAAAAAAAAAAAA")).status_code == 401


async def test_what_a_request_decides_holds_while_the_password_does(served: Served) -> None:
    """The first push of a name, a mount, and the list of names."""
    acts = ("registry:PushImage", "registry:CreateRepository", "registry:DescribeRepositories")
    developer = await add_developer(served, *acts)
    made = await make(served, developer)
    password = made["password"]
    scopes = ("acme/app:pull", "acme/first:pull,push", "acme/second:pull,push")
    asked = "&".join(f"scope=repository:{each}" for each in scopes)
    answer = await served.ask(
        "GET",
        f"/v2/token?{asked}&scope=registry:catalog:*",
        headers={"Authorization": httpx.BasicAuth("token", password)._auth_header},
    )
    bearer = answer.json()["token"]
    begun = await served.ask("POST", "/v2/acme/first/blobs/uploads/", token=bearer)
    assert begun.status_code == 202, begun.text
    digest = f"sha256:{sha256(CONTENT).hexdigest()}"
    whole = f"{begun.headers['location']}?digest={digest}"
    put = await served.ask("PUT", whole, CONTENT, token=bearer)
    assert put.status_code == 201, put.text
    mount = f"/v2/acme/second/blobs/uploads/?mount={digest}&from=acme/first"
    mounted = await served.ask("POST", mount, token=bearer)
    assert mounted.status_code == 201, mounted.text
    names = await served.ask("GET", "/v2/_catalog", token=bearer)
    assert names.json() == {"repositories": ["acme/app", "acme/first", "acme/second"]}

    await revoke(served, developer)
    assert (await served.ask("GET", "/v2/_catalog", token=bearer)).status_code == 401


Ending = Callable[[Served, Developer], Awaitable[None]]


def request(method: str, path: str, body: object = None, *, by_owner: bool = False) -> Ending:
    """Return the end that acme's program brings by a request, or its owner."""

    async def end(served: Served, developer: Developer) -> None:
        acme = served.acme
        token = acme.person_token if by_owner else acme.program_token
        ids = {"role": developer.role_id, "person": developer.id, "of": acme.organization_id}
        answer = await served.ask(method, path.format(**ids), body, token=token)
        assert answer.is_success, answer.text

    return end


async def revoke(served: Served, developer: Developer) -> None:
    (made,) = await listed(served, developer)
    answer = await served.ask("DELETE", f"{PATH}/{made['id']}", token=developer.token)
    assert answer.status_code == 204, answer.text


async def distrust(served: Served, developer: Developer) -> None:
    changed = {"trust_policy": trust(served.globex.account_id)}
    await request("PATCH", "/v1/roles/{role}", changed)(served, developer)


async def suspend_account(served: Served, _: Developer) -> None:
    account = await served.database.read(find_account, served.acme.account_id)
    assert account is not None
    await served.database.write(OWN_ACCOUNT.save, account._replace(status="suspended"))


async def take_right(served: Served, developer: Developer) -> None:
    """Take the right to log container clients in from the role, not that to pull."""
    path = f"/v1/policies?name={developer.name}"
    found = await served.ask("GET", path, token=served.acme.program_token)
    (policy,) = found.json()["policies"]
    changed = {"document": rights("registry:PullImage")}
    await request("PATCH", f"/v1/policies/{policy['id']}", changed)(served, developer)


unassign: Final = request("DELETE", "/v1/roles/{role}/assignments/{person}")
SHARED: Final[dict[str, Ending]] = {
    "unassigned": unassign,
    "role deleted": request("DELETE", "/v1/roles/{role}"),
    "distrusted": distrust,
    "suspended": request("PATCH", "/v1/users/{person}", {"status": "suspended"}, by_owner=True),
    "removed": request("DELETE", "/v1/organizations/{of}/members/{person}", by_owner=True),
    "deleted": request("DELETE", "/v1/users/{person}", by_owner=True),
    "reset": request("POST", "/v1/users/{person}/reset-password", by_owner=True),
    "account suspended": suspend_account,
}
"""What ends passwords and logins alike; the last ends those of everyone."""
OF_PASSWORDS: Final = {"revoked": revoke, "right taken": take_right, **SHARED}


async def add_developers(served: Served, ends: Iterable[str]) -> dict[str, Developer]:
    return {end: await add_developer(served, name=end.replace(" ", "-")) for end in ends}


async def check_ends(
    served: Served,
    ends: dict[str, Ending],
    developers: dict[str, Developer],
    passwords: dict[str, str],
) -> None:
    """Check that each end ends the password of its person, and not those of others."""
    wrong = await exchange(served, "ecp_" + "0" * 32 + "_x")
    for name, end in ends.items():
        assert (await exchange(served, passwords[name])).status_code == 200, name
        await end(served, developers[name])
        refused = await exchange(served, passwords[name])
        assert (refused.status_code, refused.json()) == (401, wrong.json()), name


async def test_a_password_ends_with_what_it_stands_for(served: Served) -> None:
    found = await add_developers(served, OF_PASSWORDS)
    passwords = {end: (await make(served, each))["password"] for end, each in found.items()}
    await check_ends(served, OF_PASSWORDS, found, passwords)


async def test_a_password_of_an_assignment_that_ended_does_not_come_back(served: Served) -> None:
    developer = await add_developer(served)
    password = (await make(served, developer))["password"]
    await unassign(served, developer)
    path = f"/v1/roles/{developer.role_id}/assignments"
    await served.make(path, {"user": developer.id}, token=served.acme.program_token)
    assert (await exchange(served, password)).status_code == 401
    assert await listed(served, developer) == []


async def test_an_own_new_password_ends_those_of_container_clients(served: Served) -> None:
    developer = await add_developer(served)
    password = (await make(served, developer))["password"]
    kept = hash_password("an old password", CHEAP)
    await served.database.write(set_password, developer.id, kept)
    change = {"current_password": "an old password", "password": "a new password of mine"}
    answer = await served.ask("PUT", "/v1/users/me/password", change, token=developer.token)
    assert answer.status_code == 204, answer.text
    assert (await exchange(served, password)).status_code == 401


async def test_a_sign_in_that_ends_meanwhile_gets_none(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    developer = await add_developer(served)
    create = routes._create

    def after_the_end(tx: Connection, ctx: RequestContext, *given: Any) -> ContainerPassword:  # noqa: ANN401
        sessions.revoke_other_sessions(tx, developer.id, "", ctx.clock())
        return create(tx, ctx, *given)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(routes, "_create", after_the_end)
        asked = {"name": "laptop", "role": ROLE}
        assert (await served.ask("POST", PATH, asked, token=developer.token)).status_code == 401
    assert await listed(served, developer) == []


@on_both_databases
async def test_requests_at_once_get_no_more_than_the_most(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_passwords, "MAX_KEPT", 2)
    developer = await add_developer(served)
    asked = [
        served.ask("POST", PATH, {"name": f"of-{number}", "role": ROLE}, token=developer.token)
        for number in range(8)
    ]
    codes = sorted(answer.status_code for answer in await asyncio.gather(*asked))
    assert codes == [201] * 2 + [409] * 6


async def test_a_life_is_brought_within_the_operators(served: Served) -> None:
    developer, passwords = await add_developer(served), []
    for asked, seconds in ((1, 900), (1800, 1800), (None, 12 * 3600), (10**30, 12 * 3600)):
        made = await make(served, developer, name=f"{asked}"[:9], duration_seconds=asked)
        assert life_of(made) == seconds * MICROSECONDS
        passwords.append((moment_of(datetime.fromisoformat(made["expires_at"])), made["password"]))
    for moment, password in passwords:
        served.clock.now = moment - SECOND
        assert (await exchange(served, password)).status_code == 200
        served.clock.now = moment
        expired = await exchange(served, password)
        unknown = await exchange(served, "ecp_" + "0" * 32 + "_x")
        assert (expired.status_code, expired.json()) == (401, unknown.json())


async def test_names_are_the_persons_own_and_free_again_when_expired(served: Served) -> None:
    developer = await add_developer(served)
    await make(served, developer, duration_seconds=900)
    again = await served.ask("POST", PATH, {"name": "laptop", "role": ROLE}, token=developer.token)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "CONFLICT")
    served.clock.now += 900 * MICROSECONDS
    await make(served, developer)
    for number in range(49):
        await make(served, developer, name=f"other-{number}")
    more = await served.ask("POST", PATH, {"name": "more", "role": ROLE}, token=developer.token)
    assert more.status_code == 409
    assert "at most 50" in more.json()["error"]["message"]


async def test_only_a_role_that_admits_the_person_and_may_log_in_gets_one(served: Served) -> None:
    developer = await add_developer(served)
    refused = partial(served.ask, "POST", PATH, token=developer.token)
    unassigned = await refused({"name": "x", "role": "admin"})
    assert unassigned.status_code == 404
    await take_right(served, developer)
    answer = await refused({"name": "x", "role": ROLE})
    assert answer.status_code == 403
    assert "registry:GetAuthorizationToken" in answer.json()["error"]["message"]
    await distrust(served, developer)
    answer = await refused({"name": "x", "role": ROLE})
    assert answer.status_code == 403
    assert "trust policy" in answer.json()["error"]["message"]
    assert await listed(served, developer) == []


async def test_they_are_for_persons_and_nobody_sees_anothers(served: Served) -> None:
    developer = await add_developer(served)
    made = await make(served, developer)
    path, other = f"{PATH}/{made['id']}", served.acme.person_token
    assert (await served.ask("GET", path, token=other)).status_code == 404
    assert (await served.ask("DELETE", path, token=other)).status_code == 404
    others = (await served.ask("GET", PATH, token=other)).json()["container_passwords"]
    assert made["id"] not in {each["id"] for each in others}
    session = await assume(served, developer.token, ROLE)
    answer = await served.ask("POST", PATH, {"name": "x", "role": ROLE}, token=session)
    assert answer.status_code == 403
    assert (await exchange(served, made["password"])).status_code == 200


async def test_attempts_at_one_are_bounded_and_told_to_its_account(served: Served) -> None:
    developer = await add_developer(served)
    made = await make(served, developer)
    wrong = made["password"][:-1] + ("a" if made["password"][-1] != "a" else "b")
    for _ in range(CREDENTIAL_BUDGET.limit):
        assert (await exchange(served, wrong)).status_code == 401
    for password in (wrong, made["password"]):
        refused = await exchange(served, password)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
    # Ids that somebody makes up count against the address, and hold up no right password.
    served.clock.now += CREDENTIAL_BUDGET.window_seconds * MICROSECONDS
    for number in range(ADDRESS_BUDGET.limit):
        assert (await exchange(served, f"ecp_{number:032x}_x")).status_code == 401
    assert (await exchange(served, "ecp_")).status_code == 429
    assert (await exchange(served, made["password"])).status_code == 200

    await served.auditor.flush()
    query = "/v1/audit-events?action=iam:SignIn&limit=200"
    events = (await served.ask("GET", query, token=served.acme.program_token)).json()
    refusals = [each for each in events["events"] if each["outcome"] == "refused"]
    assert [each["principal"] for each in refusals] == [developer.crn]
    assert refusals[0]["times"] == CREDENTIAL_BUDGET.limit


async def test_making_and_revoking_are_events_of_the_account(served: Served) -> None:
    developer = await add_developer(served)
    made = await make(served, developer)
    await revoke(served, developer)
    found = await served.ask("GET", "/v1/audit-events?limit=200", token=served.acme.program_token)
    events = [
        (each["action"], each["principal"], each["details"]["role"])
        for each in found.json()["events"]
        if each["action"].endswith("ContainerPassword") and each["principal"] == developer.crn
    ]
    role = f"crn:iam::{served.acme.account_id}:role/{ROLE}"
    assert events == [
        ("iam:DeleteContainerPassword", developer.crn, role),
        ("iam:CreateContainerPassword", developer.crn, role),
    ]
    assert made["password"] not in found.text


async def test_the_last_use_is_told_by_the_hour(served: Served) -> None:
    developer = await add_developer(served)
    made = await make(served, developer)
    served.clock.now += 3 * HOUR
    used = served.clock.now - served.clock.now % HOUR
    assert (await exchange(served, made["password"])).status_code == 200
    await served.uses.flush()
    again = developer._replace(token=reissued(served, developer.token))
    (shown,) = await listed(served, again)
    assert moment_of(datetime.fromisoformat(shown["last_used_at"])) == used


async def test_a_password_ends_with_the_providers_sign_in(tmp_path: Path) -> None:
    """However long the operator lets others last: groups are asked for at each sign-in."""
    data, month = tmp_path / "data", 30 * 24 * 3600
    async with open_provider_world(data, container_password_seconds=month) as world:
        served, acme = world.served, world.served.acme
        lasting = (await make(served, await add_developer(served)))["password"]
        role_id = acme.ids["/v1/roles/{}"]
        trusted = {"trust_policy": trust(world.row["crn"])}
        path = f"/v1/roles/{role_id}"
        assert (await served.ask("PATCH", path, trusted, token=acme.program_token)).is_success
        named = {"name": "all", "document": rights("registry:*")}
        policy = await served.make("/v1/policies", named, token=acme.program_token)
        attached = f"/v1/policies/{policy['id']}/attachments"
        await served.make(attached, {"role": role_id}, token=acme.program_token)
        await world.assign_group("devs")
        await world.change(session_hours=2)
        person = await world.person("subject-1", "zoe@example.org", groups=["devs"])
        made = await served.make(PATH, {"name": "x", "role": role_id}, token=person["token"])
        assert 2 * HOUR - MINUTE < life_of(made) <= 2 * HOUR
        assert (await exchange(served, made["password"])).status_code == 200
        await world.change(status="inactive")
        assert (await exchange(served, made["password"])).status_code == 401
        await world.change(status="active")
        assert (await exchange(served, made["password"])).status_code == 401
        served.clock.now += 29 * DAY
        assert (await exchange(served, lasting)).status_code == 200


async def sign_out(served: Served, developer: Developer) -> None:
    sid = served.tokens.verify(developer.token).sid
    assert sid is not None
    await served.database.write(sessions.revoke_session, sid, served.clock())


OF_LOGINS: Final = {"signed out": sign_out, **SHARED}


@on_both_databases
async def test_a_login_ends_when_it_says_or_with_what_it_stands_for(served: Served) -> None:
    """It was made in a role session of an hour, which its person would renew."""
    acme, passwords = served.acme, {}
    await renew_sign_in(served, acme.person_token)
    found = await add_developers(served, OF_LOGINS)
    for end, developer in found.items():
        session = await assume(served, developer.token, developer.name)
        minted = (await served.ask("POST", "/v1/authorization-token", token=session)).json()
        told = moment_of(datetime.fromisoformat(minted["expires_at"]))
        assert told - moment_of(datetime.fromisoformat(minted["issued_at"])) == 12 * HOUR
        passwords[end] = minted["password"]
    served.clock.now = told - SECOND
    assert (await exchange(served, passwords[end])).status_code == 200
    served.clock.now = told - 2 * HOUR
    acme.person_token = reissued(served, acme.person_token)
    acme.program_token = reissued(served, acme.program_token)
    for end, developer in found.items():
        found[end] = developer._replace(token=reissued(served, developer.token))
    await check_ends(served, OF_LOGINS, found, passwords)


def reissued(served: Served, token: str) -> str:
    """Return another token with the claims of one that has expired."""
    claims = claims_of(token)
    return served.tokens.issue(
        claims["sub"],
        uuid7(),
        served.clock() + HOUR,
        account_id=claims.get("acc"),
        sid=claims.get("sid"),
        access_key_id=claims.get("akid"),
    )
