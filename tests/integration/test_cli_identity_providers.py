"""The commands about identity providers, their groups, and the log of an organization."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from tests.entrepot import ADMIN, PASSWORD, Home
from tests.integration.cli_world import World, cli_world

SECRET: Final = "a secret of the client"
ISSUER: Final = "https://login.acme.example"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with cli_world(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture(scope="module")
def owner(world: World, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Return the machine of the person who owns the install, in the role `admin`."""
    home = Home(tmp_path_factory.mktemp("owner"))
    world.sign_in_person(home, ADMIN, world.install.one_time_password, PASSWORD, role="admin")
    return home


@pytest.fixture
def name(world: World, owner: Home) -> Iterator[str]:
    """Return the name of an identity provider of this test's own, which is deleted after it."""
    name = f"acme-{uuid4().hex[:12]}"
    about = ("--issuer", ISSUER, "--client-id", "entrepot", "--email-domain", "acme.example")
    create = ("identity-providers", "create", name, *about, "--output", "json")
    made = world.done(*create, stdin=f"{SECRET}\n", home=owner)
    assert SECRET not in made.text
    yield name
    world.run("identity-providers", "delete", name, home=owner)


def test_a_provider_from_its_creation_to_its_end(world: World, owner: Home) -> None:
    create = ("identity-providers", "create", "Acme Login", "--issuer", ISSUER, "--client-id", "x")
    assert world.told(*create, home=owner) == (
        2,
        "no client secret was given; type it, or pipe it to the standard input",
    )
    made = world.done(*create, "--creates-people", stdin=f"{SECRET}\n", home=owner)
    record = world.read("identity-providers", "show", "Acme Login", home=owner)
    assert made.text == (
        f"Created Acme Login; register this redirect URI there: {record['redirect_uri']}\n"
    )
    assert record["redirect_uri"].startswith(world.install.url)
    assert (record["has_client_secret"], record["creates_people"]) == (True, True)
    assert SECRET not in json.dumps(record)
    for written in (record["id"], record["crn"]):
        assert world.read("identity-providers", "show", written, home=owner) == record
    assert world.done("identity-providers", "list", "-q", home=owner).text == "Acme Login\n"
    (line,) = world.done("identity-providers", "list", home=owner).lines[1:]
    assert line.startswith(f"Acme Login active {ISSUER} - yes 20")

    update = ("identity-providers", "update", "Acme Login")
    assert world.told(*update, home=owner)[0] == 2
    assert world.told(*update, "--client-secret", home=owner)[0] == 2
    changed = world.done(*update, "--status", "inactive", "--no-client-secret", home=owner)
    assert changed.text == "Changed Acme Login; it is inactive\n"
    about = ("--scope", "email", "--scope", "groups", "--email-domain", "a.example", "--name", "A")
    world.done(*update, *about, "--client-secret", stdin=f"{SECRET}\n", home=owner)
    record = world.read("identity-providers", "show", "A", home=owner)
    assert (record["scopes"], record["email_domains"]) == (
        ["openid", "email", "groups"],
        ["a.example"],
    )
    assert record["has_client_secret"] is True
    fewer = ("--no-email-domains", "--session-hours", "12")
    world.done("identity-providers", "update", "A", *fewer, home=owner)
    assert world.read("identity-providers", "show", "A", home=owner)["session_hours"] == 12
    assert world.read("identity-providers", "show", "A", home=owner)["email_domains"] == []
    deleted = world.done("identity-providers", "delete", "A", home=owner)
    assert deleted.text == (
        "Deleted A; its people stay, without the roles that its groups gave them\n"
    )
    assert world.told("identity-providers", "show", "A", home=owner) == (
        3,
        (
            "there is no identity provider 'A'; "
            "'entrepot identity-providers list' shows those there are"
        ),
    )


def test_only_an_owner_sees_providers(world: World, owner: Home, tmp_path: Path) -> None:
    email = f"{uuid4().hex[:12]}@example.org"
    one_time = world.run("users", "create", email, "-q", home=owner).text.strip()
    member = Home(tmp_path)
    world.sign_in_person(member, email, one_time, "a long new password")
    status, words = world.told("identity-providers", "list", home=member)
    assert (status, words.partition(":")[0]) == (1, "ACCESS_DENIED")
    # A secret is asked for only if the command can be carried out.
    about = ("Acme", "--issuer", ISSUER, "--client-id", "x")
    for command in (("list",), ("create", *about)):
        status, words = world.told("identity-providers", *command)
        assert (status, words.partition(",")[0]) == (1, "only people may do this")


def test_a_role_is_given_to_a_group_and_taken(world: World, owner: Home, name: str) -> None:
    role = f"r-{uuid4().hex[:12]}"
    world.done("roles", "create", role)
    provider = world.read("identity-providers", "show", name, home=owner)
    kept = world.done("roles", "assign-group", role, "ops", "--keep-trust", home=owner)
    assert kept.text == (
        f"People of ops have the role {role} from their next sign-in on, but its trust policy "
        "does not admit them yet\n"
    )
    given = ("roles", "assign-group", role, "devs", "--identity-provider", name)
    assert world.done(*given, home=owner).text == (
        f"People of devs have the role {role} from their next sign-in on; its trust policy admits "
        "them now\n"
    )
    trust = world.read("roles", "show", role)["trust_policy"]["statements"][-1]
    assert trust["principals"] == [provider["crn"]]
    # A program cannot see providers, so it names one by its id, which the role trusts by now.
    by_id = ("--identity-provider", provider["id"])
    done = world.done("roles", "assign-group", role, "more", *by_id)
    assert done.text == f"People of more have the role {role} from their next sign-in on\n"
    assert world.told("roles", "assign-group", role, "x", "--identity-provider", name)[0] == 1
    assert world.told("roles", "assign-group", role, "more", *by_id)[0] == 1  # it has it already

    assert world.done("roles", "groups", role, "-q").lines == ["ops", "devs", "more"]
    shown = world.done("roles", "groups", role, home=owner).lines
    assert shown[1].startswith(f"ops {name} 20")
    assert world.done("roles", "groups", role).lines[1].startswith(f"ops {provider['id']} 20")
    world.done("roles", "assign", role, ADMIN, "--keep-trust")
    (line,) = world.done("roles", "assignments", role).lines[1:]
    assert line.split()[3] == "no"  # by hand, not by a group
    rows = world.read("roles", "groups", role)
    assert {each["identity_provider"] for each in rows} == {provider["id"]}
    gone = world.done("roles", "unassign-group", role, "devs", home=owner)
    assert gone.text == f"The group devs has the role {role} no more\n"
    world.done("roles", "unassign-group", role, "more", "--identity-provider", provider["crn"])
    assert world.told("roles", "unassign-group", role, "devs") == (
        3,
        (
            f"the group 'devs' does not have this role; 'entrepot roles groups {role}' shows those "
            "that have it"
        ),
    )


def test_of_several_providers_one_is_named(world: World, owner: Home, name: str) -> None:
    role, other = f"r-{uuid4().hex[:12]}", f"other-{name}"
    world.done("roles", "create", role)
    about = ("--issuer", ISSUER, "--client-id", "x", "--no-client-secret")
    world.done("identity-providers", "create", other, *about, home=owner)
    try:
        status, words = world.told("roles", "assign-group", role, "ops", home=owner)
        assert (status, words.partition(":")[0]) == (
            2,
            "name one of the identity providers with --identity-provider",
        )
        for each in (name, other):
            given = ("roles", "assign-group", role, "ops", "--identity-provider", each)
            world.done(*given, home=owner)
        assert world.told("roles", "unassign-group", role, "ops", home=owner)[0] == 2
        taken = ("roles", "unassign-group", role, "ops", "--identity-provider", other)
        world.done(*taken, home=owner)
        assert world.done("roles", "groups", role, "-q").lines == ["ops"]
    finally:
        world.done("identity-providers", "delete", other, home=owner)


def test_providers_are_completed_and_nothing_that_a_shell_runs(
    world: World, owner: Home, name: str
) -> None:
    assert world.done("__complete", "identity-provider", "acm", home=owner).lines == [name]
    assert world.done("__complete", "identity-provider", "x", home=owner).lines == []
    emails = [f"`id`{name}@example.org", f"plain-{name}@example.org"]
    for email in emails:
        world.done("users", "create", email, home=owner)
    offered = world.done("__complete", "person", "", home=owner).lines
    assert set(emails) & set(offered) == {emails[1]}


def test_an_owner_reads_the_log_of_the_organization(
    world: World, owner: Home, name: str, tmp_path: Path
) -> None:
    main = ("--organization", "main")
    events = world.read("audit", "list", *main, "--action", "iam:*", home=owner)
    assert "iam:CreateIdentityProvider" in {each["action"] for each in events}
    assert not any("IdentityProvider" in each["action"] for each in world.read("audit", "list"))
    file = tmp_path / "log.jsonl"
    world.done("audit", "export", *main, "--to", str(file), home=owner)
    actions = {json.loads(line)["action"] for line in file.read_text().splitlines()}
    assert "iam:SignIn" in actions
    assert SECRET not in file.read_text()
    assert world.told("audit", "list", "--organization", "nobody", home=owner)[0] == 3
    status, words = world.told("audit", "list", *main)
    assert (status, words.partition(",")[0]) == (1, "only people may do this")
