"""Every operation of identity, from its route table: malformed ids and bodies, rights elsewhere.

What a newly added route does not fit into fails here until it has its place in `BODIES`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from cloudcore.identity.routes.handlers import HANDLERS
from cloudcore.web.app import Routes, family_routes
from cloudcore.web.route_spec import RouteSpec
from tests.databases import on_both_databases
from tests.identity_world import ALLOW_ALL, World
from tests.integration.identity_operations import BODIES, dump

OF_PERSONS: Final = ("/v1/organizations", "/v1/users/me")
UNKNOWN: Final = "01890000-0000-7000-8000-0000000000ff"
WRONG: Final[tuple[Any, ...]] = (
    *(1, 1.5, True, [], [{}], {"a": {}}, {"version": 1}, "\x00", "\ud800"),
)


def operations() -> Iterator[RouteSpec]:
    for route in Routes([family_routes("iam", HANDLERS)]).all:
        if not route.spec.public:  # the kernel's own
            yield route.spec


OPEN: Final = {"GET /v1/actions", "GET /v1/policy-templates", "POST /v1/allowed-actions"}
"""What every signed-in caller may read: nothing of it is an account's, or only its own rights."""
SPECS: Final = sorted(operations(), key=lambda spec: spec.operation)


def test_bodies_stand_for_all_operations_that_read_one() -> None:
    assert {spec.operation for spec in SPECS if spec.method in ("POST", "PUT", "PATCH")} == set(
        BODIES
    )
    assert len(SPECS) == len(HANDLERS) >= 49


def is_of_persons(spec: RouteSpec) -> bool:
    is_on_people = spec.path.startswith("/v1/users") and spec.method != "GET"
    return is_on_people or spec.path.startswith(OF_PERSONS)


def token_for(spec: RouteSpec, program: str = "admin", person: str = "person") -> str:
    return person if is_of_persons(spec) else program


Ids = dict[str, str]


async def furnish(world: World, program: str, person: str) -> Ids:
    """Make one of each thing in a tenant and return their ids by the names of path parameters."""
    tenant = world.acme if program == "admin" else world.globex
    member = "member" if program == "admin" else "other"
    joined = await world.person(member)
    organization = f"/v1/organizations/{tenant.organization_id}"
    await world.join(member, organization=tenant.organization_id, by=person)
    invitation = await world.make(
        f"{organization}/invitations", {"email": "pending@example.org"}, token=person
    )
    await world.ask("POST", f"{organization}/switch", token=person)
    owner = await world.make("/v1/service-accounts", {"name": "owner"}, token=program)
    await world.make("/v1/service-accounts", {"name": "free"}, token=program)
    provider = await world.make(
        f"{organization}/identity-providers",
        {"name": "Login", "issuer": "https://login.example.com", "client_id": "entrepot"},
        token=person,
    )
    group = await world.make(
        f"/v1/roles/{tenant.role_id}/group-assignments",
        {"identity_provider": provider["id"], "group": "devs"},
        token=program,
    )
    keys = f"/v1/service-accounts/{owner['id']}/access-keys"
    key = await world.make(keys, {}, token=program)
    role = f"crn:iam::{tenant.account_id}:role/admin"
    laptop = await world.make(
        "/v1/users/me/container-passwords", {"name": "laptop", "role": role}, token=person
    )
    if program == "admin":
        await world.person("guest")
    return {
        "account_id": tenant.account_id,
        "organization_id": tenant.organization_id,
        "user_id": joined.id,
        "invitation_id": invitation["id"],
        "provider_id": provider["id"],
        "group_assignment_id": group["id"],
        "service_account_id": owner["id"],
        "key_id": key["id"],
        "password_id": laptop["id"],
        "role_id": tenant.role_id,
        "policy_id": tenant.policy_id,
        "attachment_id": tenant.attachment_id,
    }


def path_of(spec: RouteSpec, ids: Ids) -> str:
    return re.sub(r"\{(\w+?)(?::str)?\}", lambda match: ids[match[1]], spec.path)


@pytest.fixture
async def own(identity: World) -> Ids:
    """Return one of each thing of the caller's account."""
    return await furnish(identity, "admin", "person")


@pytest.fixture
async def foreign(identity: World, own: Ids) -> Ids:
    """Return one of each thing of another account."""
    return await furnish(identity, "stranger", "outsider")


@pytest.mark.usefixtures("foreign")
async def test_malformed_ids_are_unknown_ones(identity: World, own: Ids) -> None:
    for spec in SPECS:
        for parameter in spec.id_parameters:
            for wrong in ("admin", own[parameter][:-1], own[parameter].replace("-", "")):
                answer = await identity.ask(
                    spec.method,
                    path_of(spec, own | {parameter: wrong}),
                    BODIES.get(spec.operation),
                    token=token_for(spec),
                )
                assert answer.status_code == 404, (spec.operation, wrong)


@on_both_databases
@pytest.mark.usefixtures("foreign")
async def test_a_right_on_another_thing_is_none(identity: World, own: Ids) -> None:
    """A statement about one resource does not let its holder touch the next one."""

    other = ALLOW_ALL | {"resources": [f"crn:iam::{own['account_id']}:*/other"]}
    await identity.program("elsewhere", other)
    for spec in SPECS:
        if spec.operation in OPEN:
            continue
        answer = await identity.ask(
            spec.method,
            path_of(spec, own),
            BODIES.get(spec.operation),
            token="elsewhere",
        )
        assert answer.status_code == 403, spec.operation


@pytest.mark.usefixtures("foreign")
async def test_a_member_is_no_owner(identity: World, own: Ids) -> None:
    path = f"/v1/organizations/{own['organization_id']}"
    for method, target, body in (
        ("PATCH", path, {"name": "Mine"}),
        ("DELETE", path, None),
        ("POST", f"{path}/invitations", {"email": "guest@example.org"}),
        ("PATCH", f"{path}/members/{own['user_id']}", {"role": "owner"}),
        ("DELETE", f"{path}/members/{identity.acme.person.id}", None),
        ("POST", "/v1/accounts", {"handle": "new", "organization": own["organization_id"]}),
        ("PATCH", f"/v1/accounts/{own['account_id']}", {"status": "suspended"}),
    ):
        answer = await identity.ask(method, target, body, token="member")
        assert answer.status_code == 403, (method, target)


@pytest.mark.usefixtures("foreign")
async def test_bodies_of_wrong_types_are_refused(identity: World, own: Ids) -> None:
    before = await identity.database.read(dump)
    for spec in SPECS:
        body = BODIES.get(spec.operation)
        if not body:
            continue
        for name in body:
            for wrong in WRONG:
                if isinstance(body[name], bool) and wrong is True:
                    continue
                answer = await identity.ask(
                    spec.method,
                    path_of(spec, own),
                    body | {name: wrong},
                    token=token_for(spec),
                )
                assert answer.status_code == 400, (spec.operation, name, wrong)
        for whole in ([], [body], "text", 1):
            answer = await identity.ask(
                spec.method, path_of(spec, own), whole, token=token_for(spec)
            )
            assert answer.status_code == 400, (spec.operation, whole)
    assert await identity.database.read(dump) == before
