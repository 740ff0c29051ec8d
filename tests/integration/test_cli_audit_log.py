"""``entrepot audit`` against a served registry: the logs of an account and of an organization."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from tests.entrepot import ADMIN, PASSWORD, Home
from tests.integration.cli_world import JSON, World, cli_world

SECRET: Final = "a secret of the client"


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
def app(world: World) -> str:
    """Return the name of a repository of this test's own."""
    name = f"app-{uuid4().hex[:12]}"
    world.done("repositories", "create", name)
    return name


def test_the_audit_log_is_listed_and_exported(world: World, app: str, tmp_path: Path) -> None:
    query = ("--action", "registry:*", "--resource", f"*{app}", "--since", "1h")
    wrong = world.run("audit", "list", *query)
    assert (wrong.status, "a * at its end only" in wrong.err) == (1, True)
    found = world.run("audit", "list", "--action", "registry:Create*", "--since", "1h", *JSON)
    event = next(each for each in found.document if each["resources"][0].endswith(f"/{app}"))
    assert event["action"] == "registry:CreateRepository"
    export = tmp_path / "events.jsonl"
    exact = ("--resource", event["resources"][0])
    world.done("audit", "export", *exact, "--to", str(export))
    assert [json.loads(line) for line in export.read_text().splitlines()] == [event]
    assert world.run("audit", "export", *exact, "--to", str(export)).status == 1  # it exists
    table = world.run("audit", "list", *exact)
    assert "registry:CreateRepository succeeded" in " ".join(table.lines[1].split())
    assert world.run("audit", "list", "--since", "yesterday").status == 2


def test_an_audit_log_without_events_tells_unknown_names(
    world: World, owner: Home, app: str, tmp_path: Path
) -> None:
    account = world.read("whoami")["account_id"]
    region = world.read("repositories", "show", app)["crn"].split(":")[2]
    repository = f"crn:registry:{region}:{account}:repository"
    roles = {each["name"]: each["crn"] for each in world.read("roles", "list")}
    since = ("--since", "2100-01-01")
    for query, told in (
        (("--who", "nobody"), "there is no service account 'nobody'"),
        (("--who", "no@example.org"), "there is no person 'no@example.org'"),
        (("--who", f"crn:iam::{account}:role/none"), f"there is no role 'crn:iam::{account}"),
        (("--who", "admin", *since), ""),
        (("--who", roles["admin"], *since), ""),
        (("--who", "crn:iam::acme:role/admin"), f"by its id: {roles['admin']}"),
        (("--resource", f"{repository}/none"), "the account has no repository 'none'"),
        (("--resource", f"{repository}/{app}", *since), ""),
        (("--resource", f"{repository}/none*"), ""),
        (("--resource", "crn:kms:x:y:key/none"), ""),
        (("--resource", app, *since), ""),
        (("--resource", "no-such"), "the account has no repository 'no-such'"),
    ):
        ended = world.run("audit", "list", *query, *JSON)
        assert (ended.status, ended.document) == (0, []), query
        lines = ended.err.splitlines()
        assert [line for line in lines if line.startswith("entrepot: no event: ")] == lines
        assert (told in ended.err, bool(lines)) == (True, bool(told)), (query, ended.err)
    both = world.run("audit", "list", "--who", "nobody", "--resource", "no-such")
    assert both.err.count("entrepot: no event: ") == 2
    # What it may not look up, it does not tell to be unknown.
    home = Home(tmp_path)
    world.sign_in(home, {"effect": "allow", "actions": ["audit:*"], "resources": ["*"]})
    ended = world.run("audit", "list", "--who", "nobody", home=home)
    assert (ended.status, ended.err) == (0, "")
    world.done("roles", "create", "auditing")
    (told,) = world.run("audit", "list", "--who", "auditing").err.splitlines()
    crn = f"crn:iam::{account}:role/auditing"
    assert told.endswith(f" auditing is a role, which is named by its CRN here: --who {crn}")
    for who, words in (("no@example.org", "main has no member 'no@example.org'"), (ADMIN, "")):
        of_main = ("--organization", "main", "--who", who, *since)
        ended = world.run("audit", "list", *of_main, home=owner)
        assert (ended.status, words in ended.err, bool(ended.err)) == (0, True, bool(words))


def test_an_owner_reads_the_log_of_the_organization(
    world: World, owner: Home, tmp_path: Path
) -> None:
    about = ("--issuer", "https://login.acme.example", "--client-id", "entrepot")
    world.done("identity-providers", "create", "acme", *about, stdin=f"{SECRET}\n", home=owner)
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
