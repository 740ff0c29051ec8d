"""Credentials of instances: whom a role lets in, both forms, renewal, revocation (PO3)."""

from __future__ import annotations

import json
import logging
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from cloudcore.audit.log import AuditLog
from cloudcore.audit.rows import audit_events
from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.compute.credentials import InstanceIdentity, RunningInstance, renew, write_identity
from cloudcore.compute.metadata_server import MetadataConversation, MetadataService
from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.errors import AccessDenied, InvalidInput, NotFound
from cloudcore.iam.service_roles import RoleRefused
from cloudcore.identity.rights.service_sessions import SessionsOfService
from cloudcore.identity.rows.accounts import Account
from cloudcore.identity.rows.roles import Role
from cloudcore.identity.services.accounts import update_account
from cloudcore.identity.services.roles import delete_role, update_role
from cloudcore.identity.tables import sessions
from cloudcore.identity.tokens.authentication import StoredSignatureKeys
from tests.databases import on_both_databases
from tests.integration.oauth_world import World, document

COMPUTE = "crn:iam:::service/compute"
MAY_LIST = {"effect": "allow", "actions": ["test:ListThings"], "resources": ["*"]}
HALF = 1800


def roles_of(oauth: World, service: str = "compute") -> SessionsOfService:
    return SessionsOfService(
        service,
        oauth.database,
        lambda: oauth.now,
        uuid7,
        oauth.keyring,
        oauth.tokens,
        AuditLog(oauth.database),
    )


async def role_of(oauth: World, account: Account, name: str = "web", *trusted: str) -> Role:
    """Return a role that may list things and trusts instances."""
    role = await oauth.add_role(account, name, *(trusted or (COMPUTE,)))
    await oauth.add_policy(account, MAY_LIST, role_id=role.id)
    return role


class Machine:
    """A machine whose instances have roles."""

    def __init__(self, oauth: World, folder: Path) -> None:
        self.oauth = oauth
        self.folder = folder
        self.roles = roles_of(oauth)
        self.instances: list[RunningInstance] = []

    def add(self, role: Role | None, account: Account | None = None) -> RunningInstance:
        of = uuid7()
        (self.folder / of).mkdir()
        account_id = role.account_id if role else (account and account.id) or ""
        made = RunningInstance(of, account_id, self.folder / of, role and role.id)
        self.instances.append(made)
        return made

    async def renew(self) -> Mapping[str, str]:
        of = self.roles, self.instances, self.is_wanted
        return await renew(self.oauth.database, *of, self.oauth.now)

    def is_wanted(self, _tx: Connection, instance: RunningInstance) -> bool:
        return instance in self.instances

    def held(self, instance: RunningInstance) -> dict[str, Any]:
        return dict(json.loads((instance.folder / "credentials.json").read_bytes()))


@pytest.fixture
def machine(oauth: World, tmp_path: Path) -> Machine:
    return Machine(oauth, tmp_path)


@on_both_databases
async def test_an_instance_acts_as_the_role_of_its_pool_in_both_forms_of_one_expiry(
    oauth: World, machine: Machine
) -> None:
    acme = await oauth.add_account("acme")
    role = await role_of(oauth, acme)
    instance = machine.add(role)

    assert await machine.renew() == {}

    held = machine.held(instance)
    assert held["expires_at"] == "2027-01-15T09:00:00.000000Z"  # an hour later
    assert (held["account_id"], held["account_handle"]) == (acme.id, "acme")
    assert held["role_id"] == role.id
    assert stat.S_IMODE((instance.folder / "credentials.json").stat().st_mode) == 0o600

    who = (await oauth.who(held["access_token"])).json()
    assert (who["kind"], who["id"], who["account_id"]) == ("role_session", role.id, acme.id)
    assert who["source"] == [COMPUTE, "compute", instance.id]
    assert await oauth.things(held["access_token"]) == 200

    keys = StoredSignatureKeys(oauth.database, oauth.keyring, lambda: oauth.now)
    key = await keys.find(held["access_key_id"])
    assert key is not None
    assert (key.secret, key.principal.id) == (held["secret_access_key"], role.id)
    assert key.fits_token(held["session_token"])

    oauth.pass_time(3600)
    assert (await oauth.who(held["access_token"])).status_code == 401
    assert await keys.find(held["access_key_id"]) is None


async def test_credentials_are_renewed_at_half_of_their_life_and_the_old_ones_go_on(
    oauth: World, machine: Machine
) -> None:
    role = await role_of(oauth, await oauth.add_account("acme"))
    instance = machine.add(role)
    await machine.renew()
    first = machine.held(instance)

    oauth.pass_time(HALF - 1)
    await machine.renew()
    assert machine.held(instance) == first

    oauth.pass_time(1)
    await machine.renew()
    second = machine.held(instance)
    assert second["access_token"] != first["access_token"]
    assert second["access_key_id"] != first["access_key_id"]
    for each in (first, second):
        assert await oauth.things(each["access_token"]) == 200


@on_both_databases
async def test_the_end_of_an_instance_ends_all_its_credentials_in_both_forms_at_once(
    oauth: World, machine: Machine
) -> None:
    acme = await oauth.add_account("acme")
    role = await role_of(oauth, acme)
    one, other = machine.add(role), machine.add(role)
    await machine.renew()
    held = [machine.held(one)]
    oauth.pass_time(HALF)
    await machine.renew()
    held.append(machine.held(one))

    await oauth.database.write(machine.roles.end, acme.id, one.id, oauth.now)

    keys = StoredSignatureKeys(oauth.database, oauth.keyring, lambda: oauth.now)
    for each in held:
        assert (await oauth.who(each["access_token"])).status_code == 401
        assert await keys.find(each["access_key_id"]) is None
    assert await oauth.things(machine.held(other)["access_token"]) == 200


@on_both_databases
async def test_no_session_begins_for_an_instance_that_is_gone(
    oauth: World, machine: Machine
) -> None:
    acme = await oauth.add_account("acme")
    role = await role_of(oauth, acme)
    instance = machine.add(role)
    listed = [*machine.instances]
    machine.instances.clear()  # its row is deleted while the machine looks at its list

    told = await renew(oauth.database, machine.roles, listed, machine.is_wanted, oauth.now)

    assert told == {instance.id: f"{instance.id} is gone"}
    assert not [*instance.folder.iterdir()]
    assert await count_sessions(oauth) == 0


async def test_an_instance_whose_pool_gets_another_role_has_only_that(
    oauth: World, machine: Machine
) -> None:
    acme = await oauth.add_account("acme")
    role, other = await role_of(oauth, acme), await role_of(oauth, acme, "other")
    instance = machine.add(role)
    await machine.renew()
    before = machine.held(instance)

    machine.instances[0] = instance._replace(role_id=other.id)
    await machine.renew()
    after = machine.held(instance)
    assert after["role_id"] == other.id
    assert (await oauth.who(before["access_token"])).status_code == 401
    assert await oauth.things(after["access_token"]) == 200

    machine.instances[0] = instance._replace(role_id=None)
    await machine.renew()
    assert not (instance.folder / "credentials.json").exists()
    assert (await oauth.who(after["access_token"])).status_code == 401


async def test_credentials_that_were_revoked_are_replaced_if_the_role_still_trusts_instances(
    oauth: World, machine: Machine
) -> None:
    acme = await oauth.add_account("acme")
    role = await role_of(oauth, acme, "web", COMPUTE, acme.id)
    instance = machine.add(role)
    await machine.renew()
    before = machine.held(instance)
    trust = {"trust_policy": json.loads(document({"effect": "allow", "principals": [COMPUTE]}))}
    await oauth.database.write(update_role, acme.id, role.id, trust, oauth.now)
    assert (await oauth.who(before["access_token"])).status_code == 401

    assert await machine.renew() == {}
    assert await oauth.things(machine.held(instance)["access_token"]) == 200


async def test_a_role_lets_instances_in_by_its_trust_policy_alone(
    oauth: World, machine: Machine
) -> None:
    acme, globex = await oauth.add_account("acme"), await oauth.add_account("globex")
    words = "does not allow crn:iam:::service/compute"
    for name, trusted in (("account", acme.id), ("balancers", "crn:iam:::service/loadbalancer")):
        instance = machine.add(await role_of(oauth, acme, name, trusted))
        assert words in (await machine.renew())[instance.id]
        machine.instances.clear()

    role = await role_of(oauth, acme)
    with pytest.raises(RoleRefused, match="deleted"):
        await machine.roles.begin(globex.id, role.id, uuid7())
    await oauth.database.write(update_account, acme.id, {"status": "suspended"})
    with pytest.raises(RoleRefused, match="suspended"):
        await machine.roles.begin(acme.id, role.id, uuid7())
    await oauth.database.write(update_account, acme.id, {"status": "active"})
    await oauth.database.write(delete_role, acme.id, role.id)
    with pytest.raises(RoleRefused, match="deleted"):
        await machine.roles.begin(acme.id, role.id, uuid7())


async def test_a_folder_that_takes_no_file_costs_no_session_and_no_other_instance(
    oauth: World, machine: Machine
) -> None:
    """One that is removed meanwhile is no error."""
    role = await role_of(oauth, await oauth.add_account("acme"))
    machine.add(role).folder.rmdir()
    full, other = machine.add(role), machine.add(role)
    (full.folder / "credentials.new").mkdir()  # as on a full disk: the file cannot be made
    for _ in range(2):
        problems = await machine.renew()
        assert list(problems) == [full.id]
        assert "its credentials cannot be written" in problems[full.id]
    assert await count_sessions(oauth) == 1
    assert machine.held(other)["role_id"] == role.id


async def test_a_denial_in_the_trust_policy_keeps_instances_out(
    oauth: World, machine: Machine
) -> None:
    acme = await oauth.add_account("acme")
    role = await role_of(oauth, acme)
    allow = {"effect": "allow", "principals": [COMPUTE]}
    for denied in ([COMPUTE], ["*"]):
        deny = {"effect": "deny", "principals": denied}
        changed = {"trust_policy": json.loads(document(allow, deny))}
        await oauth.database.write(update_role, acme.id, role.id, changed, oauth.now)
        with pytest.raises(RoleRefused, match="trust policy"):
            await machine.roles.begin(acme.id, role.id, uuid7())


async def test_a_pool_may_name_a_role_that_its_owner_may_pass_and_that_trusts_instances(
    oauth: World, machine: Machine
) -> None:
    acme, globex = await oauth.add_account("acme"), await oauth.add_account("globex")
    role = await role_of(oauth, acme)
    await role_of(oauth, acme, "people", acme.id)
    foreign = await role_of(oauth, globex)
    asked: list[str] = []

    async def resolve(value: str, account: Account = acme) -> str:
        of = account.id, "role", value, asked.append
        return (await oauth.database.read(machine.roles.resolve, *of)).id

    crn = f"crn:iam::{acme.id}:role/web"
    for value in (role.id, "web", crn, "crn:iam::acme:role/web"):
        assert await resolve(value) == role.id
        assert asked.pop() == crn
    may: dict[str, Any] = json.loads(document(MAY_LIST))
    own = await oauth.database.write(machine.roles.platform_role, acme.id, "one", may, oauth.now)
    for value, reason in ((own, "platform_owned"), ("people", "not_trusted")):
        with pytest.raises(InvalidInput) as refused:
            await resolve(value)
        assert refused.value.params["reason"] == reason
    assert COMPUTE in str(refused.value)
    for value in (foreign.id, "unknown"):
        with pytest.raises(NotFound):
            await resolve(value)
    with pytest.raises(InvalidInput):
        await resolve(f"crn:iam::{globex.id}:role/web")

    def refuse(_crn: str) -> None:
        raise AccessDenied("no")

    for value in (role.id, "web", "people", "unknown"):
        with pytest.raises(AccessDenied):
            await oauth.database.read(machine.roles.resolve, acme.id, "role", value, refuse)


async def test_nothing_secret_is_in_a_row_or_a_log(
    oauth: World, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    instance = machine.add(await role_of(oauth, await oauth.add_account("acme")))
    await machine.renew()
    held = machine.held(instance)
    every = Statement(select(sessions))
    rows = await oauth.database.read(lambda tx: tx.rows(every))
    for name in ("access_token", "secret_access_key", "session_token"):
        assert held[name] not in repr(rows)
        assert held[name] not in caplog.text
    assert instance.role_id is not None
    session = await machine.roles.begin(instance.account_id, instance.role_id, uuid7())
    assert session.secret_access_key not in repr(session)


async def test_the_audit_log_tells_when_an_instance_first_acts_in_a_role(
    oauth: World, machine: Machine
) -> None:
    acme = await oauth.add_account("acme")
    role = await role_of(oauth, acme)
    instance = machine.add(role)
    for _ in range(3):
        await machine.renew()
        oauth.pass_time(HALF)
    every = Statement(select(audit_events.c.action, audit_events.c.principal))
    assert [tuple(row) for row in await oauth.database.read(lambda tx: tx.rows(every))] == [
        ("iam:AssumeRole", COMPUTE)
    ]
    assert instance.id


async def test_a_program_in_an_instance_reads_what_was_written(
    oauth: World, machine: Machine
) -> None:
    instance = machine.add(await role_of(oauth, await oauth.add_account("acme")))
    await machine.renew()
    identity = InstanceIdentity(
        id=instance.id,
        pool_id=uuid7(),
        pool_name="web",
        account_id=instance.account_id,
        account_handle="acme",
        region="local",
        node="one",
        address_ipv4="10.0.0.5",
        address_ipv6=None,
        url="https://cloud.example",
    )
    write_identity(instance.folder, identity)
    write_identity(instance.folder, identity)

    seconds = oauth.now / MICROSECONDS
    service = MetadataService(instance.folder, now=lambda: seconds)
    token = asked(service, "PUT /latest/api/token", "TTL-Seconds: 60")
    told = json.loads(asked(service, "GET /latest/entrepot/instance", f": {token}"))
    assert (told["id"], told["address_ipv6"]) == (instance.id, None)
    access = asked(service, "GET /latest/entrepot/iam/access-token", f": {token}")
    assert await oauth.things(access) == 200
    shown = json.loads(asked(service, "GET /latest/entrepot/iam/credentials", f": {token}"))
    keys = StoredSignatureKeys(oauth.database, oauth.keyring, lambda: oauth.now)
    key = await keys.find(shown["access_key_id"])
    assert key is not None
    assert key.secret == shown["secret_access_key"]
    assert "access_token" not in shown


def asked(service: MetadataService, line: str, field: str) -> str:
    dash = "" if field.startswith(":") else "-"
    name = f"X-Entrepot-Metadata-Token{dash}{field}"
    head = f"{line} HTTP/1.1\r\nHost: 169.254.169.254\r\n{name}\r\n\r\n"
    answer = MetadataConversation(service).receive(head.encode()).decode()
    assert answer.startswith("HTTP/1.1 200 "), answer
    return answer.partition("\r\n\r\n")[2]


async def count_sessions(oauth: World) -> int:
    every = Statement(select(sessions.c.id))
    return len(await oauth.database.read(lambda tx: tx.rows(every)))
