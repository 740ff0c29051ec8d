"""Roles that the platform makes in accounts: what they may do, who sees them, who changes them."""

from __future__ import annotations

from typing import Any

import pytest

from cloudcore.audit.log import AuditLog
from cloudcore.clock import uuid7
from cloudcore.errors import InvalidInput
from cloudcore.iam.policy import ResourceRules, policy_of
from cloudcore.iam.service_roles import RoleRefused
from cloudcore.identity.rights.service_sessions import SessionsOfService
from cloudcore.identity.tokens.access_tokens import AccessTokens
from tests.databases import on_both_databases
from tests.identity_world import World
from tests.tenants import allow, document, trust

TRUST = {"effect": "allow", "principals": ["crn:iam:::service/loadbalancer"]}


def may(*actions: str) -> dict[str, Any]:
    return document(allow(*actions))


class _Signed(AccessTokens):
    """Access tokens without a key."""

    def __init__(self) -> None:
        pass

    def issue(self, *_of: object, **_more: object) -> str:
        return "token"


def service_of(identity: World, service: str = "loadbalancer") -> SessionsOfService:
    return SessionsOfService(
        service,
        identity.database,
        identity.clock,
        lambda: uuid7(identity.clock()),
        identity.keyring,
        _Signed(),
        AuditLog(identity.database),
    )


async def made(identity: World, name: str = "web") -> str:
    of = identity.acme.account_id, name, may("certificate:GetCertificate"), identity.now
    return await identity.database.write(service_of(identity).platform_role, *of)


async def listed(identity: World, path: str, token: str = "admin") -> list[dict[str, Any]]:
    found = await identity.show(path, token=token)
    return [each for each in found if each["service"] is not None]


async def test_lists_show_the_platforms_roles_as_such(identity: World) -> None:
    role_id = await made(identity)
    (role,) = await listed(identity, "/v1/roles")
    assert (role["id"], role["service"]) == (role_id, "loadbalancer")
    assert role["name"] == "service/loadbalancer/web"
    assert role["trust_policy"]["statements"] == [TRUST]
    (policy,) = await listed(identity, f"/v1/policies?attached_to={role_id}")
    assert policy["name"] == role["name"]
    assert policy["document"] == may("certificate:GetCertificate")
    assert await listed(identity, "/v1/roles", token="stranger") == []


async def test_the_owner_can_neither_change_nor_delete_them(identity: World) -> None:
    role_id = await made(identity)
    (policy,) = await listed(identity, f"/v1/policies?attached_to={role_id}")
    at = f"/v1/policies/{policy['id']}/attachments"
    (attached,) = await identity.show(at)
    user = identity.acme.person.id
    group = {"identity_provider": uuid7(), "group": "ops"}
    own = await identity.make("/v1/policies", {"name": "all", "document": may("*")})
    other = await identity.make("/v1/roles", {"name": "dev", "trust_policy": trust("acme")})
    for method, path, body in (
        ("PATCH", f"/v1/roles/{role_id}", {"trust_policy": trust("acme")}),
        ("PATCH", f"/v1/roles/{role_id}", {"description": "mine"}),
        ("DELETE", f"/v1/roles/{role_id}", None),
        ("POST", f"/v1/roles/{role_id}/assignments", {"user": user}),
        ("PATCH", f"/v1/policies/{policy['id']}", {"document": may("*")}),
        ("DELETE", f"/v1/policies/{policy['id']}", None),
        ("POST", at, {"role": other["id"]}),
        ("DELETE", f"{at}/{attached['id']}", None),
        ("POST", f"/v1/policies/{own['id']}/attachments", {"role": role_id}),
        ("POST", f"/v1/roles/{role_id}/group-assignments", group),
    ):
        answer = await identity.ask(method, path, body)
        assert answer.status_code == 409, (method, path, answer.text)
        error = answer.json()["error"]
        assert error["params"]["reason"] == "platform_owned", error
        assert "service/loadbalancer/web is the platform's" in error["message"]
    assert await identity.status("DELETE", f"/v1/roles/{role_id}?force=true") == 409
    assert len(await listed(identity, "/v1/roles")) == 1
    assert len(await listed(identity, f"/v1/policies?attached_to={role_id}")) == 1


async def test_no_request_makes_or_names_one(identity: World) -> None:
    await made(identity)
    name = "service/loadbalancer/mine"
    for path, body in (
        ("/v1/roles", {"name": name, "trust_policy": trust("acme")}),
        ("/v1/policies", {"name": name, "document": may("*")}),
    ):
        assert await identity.status("POST", path, body) == 400
    own = await identity.make("/v1/policies", {"name": "all", "document": may("*")})
    for role in ("service/loadbalancer/web", "crn:iam::acme:role/service/loadbalancer/web"):
        path = f"/v1/policies/{own['id']}/attachments"
        assert await identity.status("POST", path, {"role": role}) == 400
    named = trust("crn:iam::acme:role/service/loadbalancer/web")
    assert await identity.status("POST", "/v1/roles", {"name": "x", "trust_policy": named}) == 400


async def test_making_one_again_changes_its_policy_and_nothing_else(identity: World) -> None:
    role_id = await made(identity)
    assert await made(identity) == role_id
    (before,) = await listed(identity, f"/v1/policies?attached_to={role_id}")
    assert before["revision"] == 1
    of = identity.acme.account_id, "web", may("loadbalancer:PutMetrics"), identity.now
    assert await identity.database.write(service_of(identity).platform_role, *of) == role_id
    (after,) = await listed(identity, f"/v1/policies?attached_to={role_id}")
    assert (after["id"], after["revision"]) == (before["id"], 2)
    assert after["document"] == may("loadbalancer:PutMetrics")


@on_both_databases
async def test_one_goes_with_its_sessions_and_only_by_its_service(identity: World) -> None:
    role_id, account_id = await made(identity), identity.acme.account_id
    service = service_of(identity)
    session = await service.begin(account_id, role_id, "replica-0")
    assert await service.live([session.id]) == {session.id}
    with pytest.raises(RoleRefused):
        await service_of(identity, "compute").begin(account_id, role_id, "instance")
    # The owner's own role stays, and one of another service.
    own = await identity.make("/v1/roles", {"name": "dev", "trust_policy": trust("acme")})
    compute = service_of(identity, "compute")
    for other, gone in ((service, own["id"]), (compute, role_id), (service, uuid7())):
        await identity.database.write(other.remove_platform_role, account_id, gone)
    stranger = identity.globex.account_id
    await identity.database.write(service.remove_platform_role, stranger, role_id)
    assert await identity.status("GET", f"/v1/roles/{own['id']}") == 200
    assert len(await listed(identity, "/v1/roles")) == 1

    for _ in range(2):
        await identity.database.write(service.remove_platform_role, account_id, role_id)
    assert await listed(identity, "/v1/roles") == []
    assert await listed(identity, "/v1/policies") == []
    assert await service.live([session.id]) == frozenset()


async def test_trust_policies_may_name_services_and_other_policies_may_not(identity: World) -> None:
    named = trust("crn:iam:::service/compute")
    role = await identity.make("/v1/roles", {"name": "web", "trust_policy": named})
    assert role["trust_policy"] == named
    assert role["service"] is None
    for wrong in (
        "crn:iam:::service/Compute",
        "crn:iam:::service/",
        "crn:iam::acme:service/compute",
        "crn:iam:::service/a/b",
    ):
        body = {"name": "wrong", "trust_policy": trust(wrong)}
        assert await identity.status("POST", "/v1/roles", body) == 400
    other = document({"actions": ["test:GetThing"], **named["statements"][0]})
    with pytest.raises(InvalidInput, match="only a role's trust policy may name"):
        policy_of(other, ResourceRules("a thing", frozenset({"test:GetThing"})))
