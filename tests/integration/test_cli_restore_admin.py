"""What ``entrepot restore-admin`` makes anew and widens, of whose rights; else see `commands`."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, NotFound
from cloudcore.identity.names import person_crn
from cloudcore.identity.recovery import restore_admin
from cloudcore.identity.rows import policies
from cloudcore.identity.rows.accounts import ACCOUNTS, Account
from cloudcore.identity.rows.organizations import MEMBERS, ORGANIZATIONS, Membership, Organization
from cloudcore.identity.rows.policies import POLICIES
from cloudcore.identity.rows.roles import ROLES
from cloudcore.identity.rows.users import User
from tests.databases import on_both_databases
from tests.integration.oauth_world import World as Rows
from tests.integration.oauth_world import may

ANN = "ann@example.com"


async def own(oauth: Rows) -> tuple[Account, User]:
    """Add an account of an organization, and the person who is its member."""
    organization = Organization(uuid7(), "Acme", oauth.now, oauth.now)
    account = Account(uuid7(), organization.id, "acme", oauth.now)
    user = await oauth.add_user(ANN)

    def add(tx: Connection) -> None:
        ORGANIZATIONS.add(tx, organization)
        MEMBERS.add(tx, Membership(organization.id, user.id, "owner", oauth.now))
        assert ACCOUNTS.add(tx, account)

    await oauth.database.write(add)
    return account, user


async def restored(oauth: Rows) -> list[str]:
    """Restore, and return the actions of the changes."""
    new_id = partial(uuid7, oauth.now)
    _, changes = await oauth.database.write(restore_admin, "acme", ANN, new_id, oauth.now)
    return [each.action for each in changes]


async def trust_of(oauth: Rows, account: Account) -> Any:  # noqa: ANN401 - JSON
    role = await oauth.database.read(ROLES.find_named, account.id, "admin")
    assert role is not None
    return msgspec.json.decode(role.trust_policy)["statements"]


@on_both_databases
async def test_what_is_gone_is_made_anew_and_only_once(oauth: Rows) -> None:
    account, user = await own(oauth)
    made = ["iam:CreateRole", "iam:CreatePolicy", "iam:AttachPolicy", "iam:AssignRole"]
    assert await restored(oauth) == made
    assert await restored(oauth) == []
    crn = person_crn(user.organization_id, user.id)
    assert await trust_of(oauth, account) == [{"effect": "allow", "principals": [crn]}]


@on_both_databases
async def test_what_was_narrowed_is_widened(oauth: Rows) -> None:
    account, _ = await own(oauth)
    await restored(oauth)
    role = await oauth.database.read(ROLES.find_named, account.id, "admin")
    policy = await oauth.database.read(POLICIES.find_named, account.id, "admin")
    assert role is not None
    assert policy is not None
    other = {"effect": "allow", "principals": [account.id]}
    trust = msgspec.json.encode({"version": "1", "statements": [other]}).decode()
    await oauth.database.write(ROLES.save, role._replace(trust_policy=trust))
    narrow = msgspec.json.encode({"version": "1", "statements": [may("iam:GetRole")]}).decode()
    await oauth.database.write(POLICIES.save, policy._replace(document=narrow))
    await oauth.add_policy(account, may("*", effect="deny"), role_id=role.id)
    assert await restored(oauth) == ["iam:UpdateRole", "iam:UpdatePolicy", "iam:DetachPolicy"]
    kept = await oauth.database.read(policies.list_policies_of, account.id, role.id)
    assert [(each.name, '"*"' in each.document) for each in kept] == [("admin", True)]
    statements = await trust_of(oauth, account)
    assert (statements[0], len(statements)) == (other, 2)
    # Whom a denial concerned is not known, so nobody but the person is trusted afterwards.
    trust = trust.replace('"allow"', '"deny"')
    await oauth.database.write(ROLES.save, role._replace(trust_policy=trust))
    assert await restored(oauth) == ["iam:UpdateRole"]
    assert await trust_of(oauth, account) == statements[1:]


@on_both_databases
async def test_who_is_suspended_is_resumed_before(oauth: Rows) -> None:
    await own(oauth)
    await oauth.run("UPDATE users SET status = 'suspended'")
    with pytest.raises(Conflict, match="--resume"):
        await restored(oauth)
    await oauth.run("UPDATE accounts SET status = 'suspended'")
    with pytest.raises(Conflict, match="the account is suspended"):
        await restored(oauth)
    await oauth.run("DELETE FROM memberships")
    with pytest.raises(NotFound, match="has no member"):
        await restored(oauth)
