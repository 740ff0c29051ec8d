"""``entrepot restore-admin``: who runs an install gives an account's rights back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, NotFound
from cloudcore.identity.names import person_crn
from cloudcore.identity.recovery import restore_admin
from cloudcore.identity.rows import organizations, policies
from cloudcore.identity.rows.accounts import ACCOUNTS, Account
from cloudcore.identity.rows.organizations import MEMBERS, Membership, Organization
from cloudcore.identity.rows.policies import POLICIES
from cloudcore.identity.rows.roles import ROLES
from cloudcore.identity.rows.users import User
from tests.databases import on_both_databases
from tests.entrepot import ADMIN, PASSWORD, Home
from tests.integration.cli_world import World, cli_world
from tests.integration.oauth_world import World as Rows
from tests.integration.oauth_world import may

ANN = "ann@example.com"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("restored")


@pytest.fixture(scope="module")
def world(folder: Path) -> Iterator[World]:
    with cli_world(folder) as made:
        yield made


def test_an_account_that_locked_itself_out_gets_its_rights_back(
    world: World, folder: Path, tmp_path: Path
) -> None:
    home, data = Home(tmp_path), str(folder / "data")
    world.sign_in_person(home, ADMIN, world.install.one_time_password, PASSWORD, role="admin")
    with closing(sqlite3.connect(folder / "data" / "metadata.db")) as database, database:
        database.execute("DELETE FROM policy_attachments")
        database.execute("DELETE FROM role_assignments")
        database.execute("UPDATE accounts SET iam_revision = iam_revision + 1")
    assert world.told("roles", "list")[1].startswith("ACCESS_DENIED")
    arguments = ("restore-admin", "--account", "acme", "--email", ADMIN.upper(), "--data", data)
    restored = home.run(*arguments)
    assert restored.returncode == 0, restored.stderr
    assert f"{ADMIN} has all rights in acme, by the role admin" in restored.stdout
    assert f"{ADMIN} got the role admin of acme, with all rights" in restored.stderr
    assert ADMIN in world.done("roles", "assignments", "admin", "-q", home=home).lines
    world.done("policies", "attach", "admin", "--service-account", "admin", home=home)
    assert "admin" in world.done("roles", "list", "-q").lines
    again = home.run(*arguments)
    assert (again.returncode, again.stderr) == (0, "")
    assert "nothing was changed" in again.stdout
    with closing(sqlite3.connect(folder / "data" / "metadata.db")) as database:
        events = database.execute(
            "SELECT action FROM audit_events WHERE details LIKE '%entrepot restore-admin%'"
        ).fetchall()
    assert sorted(events) == [("iam:AssignRole",), ("iam:AttachPolicy",)]


@pytest.mark.parametrize(
    ("account", "email", "status", "words"),
    [
        ("other", ADMIN, 3, "there is no account other"),
        ("acme", "nobody@example.org", 3, "the organization of acme has no member with the"),
        ("acme", "nobody", 2, "--email 'nobody': this is no e-mail address"),
    ],
)
def test_whom_or_what_there_is_not_is_named(
    account: str, email: str, status: int, words: str, world: World, folder: Path
) -> None:
    data = str(folder / "data")
    ended = world.home.run("restore-admin", "--account", account, "--email", email, "--data", data)
    assert (ended.returncode, ended.stdout) == (status, "")
    assert f"entrepot: {words}" in ended.stderr


async def own(oauth: Rows) -> tuple[Account, User]:
    """Add an account of an organization, and the person who is its member."""
    organization = Organization(uuid7(), "Acme", False, oauth.now, oauth.now)
    account = Account(uuid7(), organization.id, "acme", "active", True, oauth.now)
    user = await oauth.add_user(ANN)

    def add(tx: Connection) -> None:
        organizations.add_organization(tx, organization)
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
