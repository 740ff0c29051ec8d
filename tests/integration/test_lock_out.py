"""Nobody takes the right to give rights from itself by mistake: 409, unless it is forced."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from cloudcore.db.base import Connection
from cloudcore.identity.names import iam_crn, person_crn
from cloudcore.identity.rights.lock_out import check_lock_out
from cloudcore.identity.rows.roles import ASSIGNMENTS, Assignment
from cloudcore.identity.runtime import HANDLERS
from tests.databases import on_both_databases
from tests.identity_world import ALLOW_ALL, World
from tests.integration.served_world import Served
from tests.tenants import document

SUSPENDED: Final = {"status": "suspended"}
UNCHECKED: Final = {
    "iam:DeletePolicy": "the policy is attached to nothing",
    "iam:UpdateAccount": "only a person suspends an account",
    **dict.fromkeys(
        (
            *("iam:UpdateOrganization", "iam:DeleteOrganization", "iam:RevokeInvitation"),
            *("iam:UpdateMember", "iam:RemoveMember", "iam:ChangePassword"),
            *("iam:UpdateUser", "iam:DeleteUser", "iam:DeleteContainerPassword"),
            *("iam:UpdateIdentityProvider", "iam:DeleteIdentityProvider"),
        ),
        "a person does it, who has no right in an account without a role",
    ),
}
"""Actions that change or delete something and cannot take rights from their caller, and why."""


def statement(effect: str, *actions: str) -> dict[str, Any]:
    return {"effect": effect, "actions": [*actions], "resources": ["*"]}


async def act_in_role(world: World) -> str:
    """Let the first tenant's person act in the role `admin`; return the path of the role."""
    await world.role_session("manager")
    return f"/v1/roles/{world.acme.role_id}"


async def policy(world: World, name: str, *statements: dict[str, Any]) -> str:
    """Make a policy; return the path of its attachments."""
    made = await world.make("/v1/policies", {"name": name, "document": document(*statements)})
    return f"/v1/policies/{made['id']}/attachments"


async def give_by_group(world: World) -> str:
    """Let the person have the role `admin` by a group alone; return the group assignment's path."""
    tenant = world.acme
    providers = f"/v1/organizations/{tenant.organization_id}/identity-providers"
    body = {"name": "sso", "issuer": "https://sso.example.org", "client_id": "entrepot"}
    provider = await world.make(providers, body | {"client_secret": "x" * 20}, token="person")
    groups = f"/v1/roles/{tenant.role_id}/group-assignments"
    made = await world.make(groups, {"identity_provider": provider["id"], "group": "admins"})

    def change(tx: Connection) -> None:
        ASSIGNMENTS.remove(tx, tenant.role_id, tenant.person.id)
        given = Assignment(tenant.role_id, tenant.person.id, world.now, provider["id"])
        assert ASSIGNMENTS.add(tx, given)

    await world.database.write(change)
    return f"{groups}/{made['id']}"


async def state(world: World, *paths: str) -> list[Any]:
    return [(await world.ask("GET", path)).json() for path in paths]


async def test_a_role_session_keeps_its_right_unless_it_is_forced(identity: World) -> None:
    role = await act_in_role(identity)
    tenant = identity.acme
    allows = f"/v1/policies/{tenant.policy_id}"
    denies = await policy(identity, "denies", statement("deny", "iam:AttachPolicy"))
    group = await give_by_group(identity)
    narrow = document(statement("allow", "iam:GetRole"))
    denied = document(ALLOW_ALL, statement("deny", "iam:*"))
    other = {"effect": "allow", "principals": [tenant.account_id]}
    shown = (role, allows, f"{allows}/attachments", denies, f"{role}/assignments")
    before = await state(identity, *shown, "/v1/policies")
    own = iam_crn(tenant.account_id, "role", "admin")
    every = iam_crn(tenant.account_id, "policy", "*")
    for method, path, body in (
        ("DELETE", f"{allows}/attachments/{tenant.attachment_id}", None),
        ("PATCH", allows, {"document": narrow}),
        ("PATCH", allows, {"document": denied}),
        ("POST", denies, {"role": "admin"}),
        ("PATCH", role, {"trust_policy": document(other)}),
        ("DELETE", role, None),
        ("DELETE", f"{role}/assignments/{tenant.person.id}", None),
        ("DELETE", group, None),
    ):
        refused = await identity.ask(method, path, body, token="manager")
        assert refused.status_code == 409, (method, path, refused.text)
        error = refused.json()["error"]
        assert error["code"] == "CONFLICT"
        assert error["params"] == {
            "reason": "own_rights",
            "actions": ["iam:AttachPolicy"],
            "resources": [own, every],
        }
        assert "take from you" in error["message"]
        assert "use force" in error["message"]
        assert await identity.status(method, f"{path}?force=false", body, token="manager") == 409
        wrong = await identity.ask(method, f"{path}?force=maybe", body, token="manager")
        assert (wrong.status_code, wrong.json()["error"]["params"]["field"]) == (400, "force")
    assert await state(identity, *shown, "/v1/policies") == before
    # Whose right it is not, is not asked.
    assert await identity.status("POST", denies, {"role": "admin"}) == 201
    # What takes nothing more, does not matter any more.
    gone = await identity.ask("DELETE", group, token="manager")
    assert gone.status_code == 204, gone.text


async def test_what_is_forced_is_done(identity: World) -> None:
    role = await act_in_role(identity)
    path = f"{role}/assignments/{identity.acme.person.id}?force=true"
    assert await identity.status("DELETE", path, token="manager") == 204
    assert await identity.show(f"{role}/assignments") == []
    tenant = identity.acme
    changed = await identity.ask(
        "PATCH",
        f"/v1/policies/{tenant.policy_id}?force=true&revision=1",
        {"document": document(statement("allow", "iam:GetPolicy"))},
    )
    assert changed.status_code == 200, changed.text
    assert (await identity.show(f"/v1/policies/{tenant.policy_id}"))["revision"] == 2


async def test_a_program_keeps_its_key_unless_it_is_forced(identity: World) -> None:
    (program,) = await identity.show("/v1/service-accounts")
    own = f"/v1/service-accounts/{program['id']}"
    keys = f"{own}/access-keys"
    used = await identity.make(keys, {})
    spare = await identity.make(keys, {})
    principal = identity.principals["admin"]._replace(access_key_id=used["id"])
    identity.principals["admin"] = principal
    for method, path, body in (
        ("PATCH", own, SUSPENDED),
        ("DELETE", own, None),
        ("PATCH", f"{keys}/{used['id']}", {"status": "inactive"}),
        ("DELETE", f"{keys}/{used['id']}", None),
    ):
        refused = await identity.ask(method, path, body)
        assert refused.status_code == 409, (method, path, refused.text)
        assert refused.json()["error"]["params"]["reason"] == "own_rights"
    for method, path, body in (
        ("PATCH", own, {"description": "Does it all."}),
        ("PATCH", f"{keys}/{used['id']}", {"description": "In use."}),
        ("DELETE", f"{keys}/{spare['id']}", None),
    ):
        assert (await identity.ask(method, path, body)).is_success, (method, path)
    assert await identity.status("DELETE", f"{keys}/{used['id']}?force=true") == 204


async def test_what_leaves_the_right_is_not_asked(identity: World) -> None:
    """Another policy that allows it is enough, and who does not have the right cannot lose it."""
    role = await act_in_role(identity)
    allows = f"/v1/policies/{identity.acme.policy_id}"
    spare = await policy(identity, "spare", statement("allow", "iam:AttachPolicy"))
    await identity.make(spare, {"role": "admin"}, token="manager")
    person = person_crn(identity.acme.person.organization_id, identity.acme.person.id)
    trusts = [{"effect": "allow", "principals": [each]} for each in (person, "acme")]
    for method, path, body in (
        ("PATCH", role, {"description": "Does less.", "trust_policy": document(*trusts)}),
        ("PATCH", allows, {"description": "Allows it all."}),
        ("DELETE", f"{allows}/attachments/{identity.acme.attachment_id}", None),
    ):
        answer = await identity.ask(method, path, body, token="manager")
        assert answer.is_success, (method, path, answer.text)
    bot = await identity.program("bot", statement("allow", "iam:DetachPolicy"))
    (held,) = await identity.show(f"/v1/policies?attached_to={bot.id}")
    path = f"/v1/policies/{held['id']}/attachments"
    (attachment,) = await identity.show(path)
    gone = await identity.ask("DELETE", f"{path}/{attachment['id']}", token="bot")
    assert gone.status_code == 204, gone.text


@on_both_databases
async def test_of_two_changes_at_once_one_leaves_the_right(identity: World) -> None:
    """Each alone leaves a policy that allows it; the second is decided by what the first left."""
    await act_in_role(identity)
    first = f"/v1/policies/{identity.acme.policy_id}/attachments/{identity.acme.attachment_id}"
    for turn in range(4):
        spare = await policy(identity, f"spare-{turn}", ALLOW_ALL)
        made = await identity.make(spare, {"role": "admin"}, token="manager")
        second = f"{spare}/{made['id']}"
        both = (identity.ask("DELETE", path, token="manager") for path in (first, second))
        answers = await asyncio.gather(*both)
        assert sorted(answer.status_code for answer in answers) == [204, 409]
        if answers[0].status_code == 204:
            first = second


def test_every_change_that_may_take_rights_is_checked() -> None:
    changes = {
        handler.opt["action"]: handler.opt.get("change_check") is check_lock_out
        for handler in HANDLERS
        if handler.http_methods & {"PATCH", "PUT", "DELETE"}
    }
    assert {action for action, is_checked in changes.items() if not is_checked} == set(UNCHECKED)


async def test_a_refused_change_leaves_no_event(served: Served) -> None:
    token = served.acme.program_token
    events = "/v1/audit-events?action=iam:DetachPolicy"
    found = (await served.ask("GET", "/v1/policies?limit=200", token=token)).json()["policies"]
    (admin,) = [each for each in found if each["name"] == "admin"]
    path = f"/v1/policies/{admin['id']}/attachments"
    attachments = (await served.ask("GET", path, token=token)).json()["attachments"]
    (own,) = [each["id"] for each in attachments if each["service_account"] is not None]
    before = (await served.ask("GET", events, token=token)).json()["events"]
    refused = await served.ask("DELETE", f"{path}/{own}", token=token)
    assert refused.status_code == 409, refused.text
    assert refused.json()["error"]["params"]["reason"] == "own_rights"
    assert (await served.ask("GET", events, token=token)).json()["events"] == before
    forced = await served.ask("DELETE", f"{path}/{own}?force=true", token=token)
    assert forced.status_code == 204, forced.text
    assert (await served.ask("GET", events, token=token)).status_code == 403
