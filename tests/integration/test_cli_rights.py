"""The commands about people, programs and their rights, against a served registry."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.entrepot import ADMIN, PASSWORD, Home
from tests.integration.cli_world import JSON, World, cli_world

PULL: Final[dict[str, Any]] = {
    "version": "1",
    "statements": [
        {"sid": "pull", "effect": "allow", "actions": ["registry:PullImage"], "resources": ["*"]}
    ],
}
DELETE: Final = {"effect": "allow", "actions": ["registry:DeleteImage"], "resources": ["*"]}


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
def name() -> str:
    """Return a name of this test's own."""
    return f"n-{uuid4().hex[:12]}"


@pytest.fixture
def bot(world: World, name: str) -> str:
    """Return a service account of this test's own."""
    world.done("service-accounts", "create", name)
    return name


def labelled(text: str, label: str) -> str:
    """Return what stands after a label of a secret that is shown once."""
    (value,) = re.findall(rf"^  {label} +(\S+)$", text, re.MULTILINE)
    return str(value)


# whoami


def test_a_program_is_told_who_it_is(world: World) -> None:
    shown = world.read("whoami")
    assert shown["registry"] == world.install.url
    assert (shown["service_account"], shown["account"], shown["role"]) == ("admin", "acme", None)
    assert shown["principal"] == f"crn:iam::{shown['account_id']}:service-account/admin"
    assert shown["access_key_id"] == world.install.access_key_id
    assert (shown["person"], shown["is_renewed"]) == (None, False)
    assert "service_account admin" in world.done("whoami").lines


def test_a_program_without_rights_is_told_too(world: World, tmp_path: Path) -> None:
    home = Home(tmp_path)
    world.sign_in(home, {"effect": "allow", "actions": ["registry:PullImage"], "resources": ["*"]})
    shown = world.read("whoami", home=home)
    assert shown["account"] is None
    assert shown["principal"].startswith(f"crn:iam::{shown['account_id']}:service-account/program")


def test_a_person_is_told_who_they_are_in_a_role_and_without(world: World, owner: Home) -> None:
    shown = world.read("whoami", home=owner)
    assert (shown["person"], shown["role"], shown["account"]) == (ADMIN, "admin", "acme")
    assert shown["is_renewed"] is True
    world.done("roles", "assume", "--none", home=owner)
    shown = world.read("whoami", home=owner)
    assert (shown["person"], shown["role"], shown["account"]) == (ADMIN, None, None)
    mine = {each["name"]: each for each in world.read("roles", "mine", home=owner)}
    role = mine["admin"]
    assert role["account"]["name"] == "acme"
    assumed = world.done("roles", "assume", role["crn"], home=owner)
    assert assumed.text == f"Commands act in the role {role['crn']}\n"
    assert world.read("whoami", home=owner)["role"] == "admin"
    assert world.told("roles", "assume", "nobody", home=owner)[0] == 3
    assert world.read("whoami", home=owner)["role"] == "admin"


def test_who_has_not_signed_in_is_nobody(world: World, tmp_path: Path) -> None:
    ended = world.run("whoami", home=Home(tmp_path))
    assert (ended.status, ended.err) == (4, "entrepot: not signed in: run 'entrepot login URL'\n")


# service accounts and their keys


def test_a_service_account_from_its_creation_to_its_end(world: World, name: str) -> None:
    made = world.done("service-accounts", "create", name, "--description", "builds")
    assert made.text == (
        f"Created {name}, which may do nothing yet: 'entrepot policies attach POLICY "
        f"--service-account {name}' gives it rights, 'entrepot access-keys create {name}' gives it "
        "a key\n"
    )
    assert name in world.done("service-accounts", "list", "-q").lines
    (line,) = [each for each in world.done("service-accounts", "list").lines if name in each]
    assert line.startswith(f"{name} active builds - 20")
    record = world.read("service-accounts", "show", name)
    for written in (record["id"], record["crn"]):
        assert world.read("service-accounts", "show", written) == record
    changed = world.done("service-accounts", "update", name, "--status", "suspended")
    assert changed.text == f"Changed {name}; it is suspended\n"
    assert world.told("service-accounts", "update", name) == (
        2,
        "say what is to change: --description or --status",
    )
    deleted = world.done("service-accounts", "delete", name)
    assert deleted.text == f"Deleted {name}; its keys and tokens do not work any more\n"
    assert world.told("service-accounts", "show", name) == (
        3,
        (
            f"there is no service account {name!r}; "
            "'entrepot service-accounts list' shows those there are"
        ),
    )
    elsewhere = record["crn"].replace(record["crn"].split(":")[3], str(uuid4()))
    assert world.told("service-accounts", "show", elsewhere)[0] == 3
    assert world.told("service-accounts", "delete", "")[0] == 2


def test_a_key_is_shown_once_and_signs_in(world: World, bot: str, tmp_path: Path) -> None:
    made = world.done("access-keys", "create", bot)
    key, secret = (labelled(made.text, each) for each in ("access key id", "secret access key"))
    home = Home(tmp_path)
    arguments = ("login", world.install.url, "--access-key-id", key)
    assert world.done(*arguments, stdin=f"{secret}\n", home=home).err == ""
    (row,) = world.read("access-keys", "list", bot)
    assert (row["access_key_id"], row["status"]) == (key, "active")
    assert secret not in json.dumps(row)
    assert world.done("access-keys", "list", bot, "--quiet").lines == [key]
    # With --quiet the secret alone can be piped, and the key's id is still told.
    piped = world.run("access-keys", "create", bot, "--quiet")
    assert piped.err == f"Created a key of {bot}\n"
    second = world.read("access-keys", "list", bot)[1]["access_key_id"]
    arguments = ("login", world.install.url, "--access-key-id", second)
    world.done(*arguments, stdin=piped.text, home=home)
    status, words = world.told("access-keys", "create", bot)
    assert (status, words.partition(":")[0]) == (1, "CONFLICT")


def test_a_ci_bot_is_made_by_one_command(world: World, name: str, tmp_path: Path) -> None:
    made = world.done("service-accounts", "create", name, "--push", "web/*", "--expires-in", "90d")
    key = labelled(made.text, "access key id")
    login = ("login", world.install.url, "--access-key-id", key)
    assert made.lines[0] == (
        f"Created {name}, pusher of web/*; it signs in by 'entrepot {' '.join(login)}', which "
        "reads the secret"
    )
    home = Home(tmp_path)
    world.done(*login, stdin=labelled(made.text, "secret access key") + "\n", home=home)
    assert world.read("whoami", home=home)["service_account"] == name
    world.done("repositories", "create", f"web/{name}", home=home)
    status, words = world.told("repositories", "create", name, home=home)
    assert (status, words.partition(":")[0]) == (1, "ACCESS_DENIED")
    (row,) = world.read("access-keys", "list", name)
    assert row["expires_at"] is not None
    assert world.read("policies", "show", f"{name}-pusher")["description"] is not None


def test_rights_and_keys_of_a_new_service_account_are_chosen(world: World, name: str) -> None:
    both = ("--pull", "a,b/*", "--push", "c", "--no-key")
    made = world.done("service-accounts", "create", name, *both)
    assert made.text == (
        f"Created {name}, reader of a, b/*, pusher of c: "
        f"'entrepot access-keys create {name}' gives it a key\n"
    )
    piped = world.run("service-accounts", "create", f"{name}-2", "--key", "--quiet")
    assert (piped.status, piped.text.count("\n")) == (0, 1)
    answer = world.read("service-accounts", "create", f"{name}-3", "--admin", "*")
    assert answer.keys() == {"service_account", "policies", "access_key"}
    assert answer["access_key"]["secret_access_key"]


def test_a_key_is_rotated_deactivated_and_deleted(world: World, bot: str) -> None:
    old = world.read("access-keys", "create", bot, "--description", "runner")["access_key_id"]
    rotated = world.done("access-keys", "rotate", bot, "--now")
    new = labelled(rotated.text, "access key id")
    assert rotated.lines[0] == f"Created a key of {bot}; {old} works no more"
    statuses = {
        each["access_key_id"]: each["status"] for each in world.read("access-keys", "list", bot)
    }
    assert statuses == {old: "inactive", new: "active"}
    kept = world.done("access-keys", "rotate", bot, new, "--grace", "2h")
    assert f"{new} works until 20" in kept.text
    end = {
        each["access_key_id"]: each["expires_at"] for each in world.read("access-keys", "list", bot)
    }
    assert end[old] is None
    assert end[new] is not None
    status, words = world.told("access-keys", "create", bot)
    assert (status, words.partition(":")[0]) == (1, "CONFLICT")
    assert words.endswith(f"'entrepot access-keys delete {bot} KEY' makes room")
    status, words = world.told("access-keys", "rotate", bot)
    assert (status, words.partition(";")[0]) == (2, f"{bot} has 2 active keys")
    off = world.done("access-keys", "update", bot, new, "--status", "inactive", "--never-expires")
    assert off.text == f"{new} is inactive\n"
    end_at = ("--expires-at", "2100-01-31T12:00:00Z")
    ends = world.done("access-keys", "update", bot, new, *end_at, "--description", "old")
    assert ends.text == f"{new} is inactive, until 2100-01-31 12:00:00Z\n"
    assert any("old 2100-01-31" in line for line in world.done("access-keys", "list", bot).lines)
    assert world.told("access-keys", "update", bot, new)[0] == 2
    assert world.done("access-keys", "delete", bot, new).text == f"Deleted the access key {new}\n"
    assert world.told("access-keys", "delete", bot, new) == (
        3,
        f"{bot} has no access key {new!r}; 'entrepot access-keys list {bot}' shows those it has",
    )


# policies


def test_a_policy_from_its_creation_to_its_end(
    world: World, name: str, bot: str, tmp_path: Path
) -> None:
    made = world.done("policies", "create", name, "-", stdin=json.dumps(PULL))
    assert made.text == (
        f"Created the policy {name}; 'entrepot policies attach {name}' gives it to a service "
        "account or role\n"
    )
    assert name in world.done("policies", "list", "-q").lines
    assert world.done("policies", "show", name).lines == [
        "SID EFFECT ACTIONS RESOURCES CONDITIONS",
        "pull allow registry:PullImage * -",
    ]
    attached = world.done("policies", "attach", name, "--service-account", bot)
    assert attached.text == f"{bot} has the policy {name}\n"
    world.done("policies", "attach", name, "--role", "admin")
    table = world.done("policies", "attachments", name).lines
    assert {line.rsplit(" ", 2)[0] for line in table[1:]} == {
        f"{bot} service account",
        "admin role",
    }
    status, words = world.told("policies", "delete", name)
    assert (status, words.partition(":")[0]) == (1, "CONFLICT")
    # What was shown can be set again.
    file = tmp_path / "policy.json"
    file.write_bytes(world.done("policies", "show", name, *JSON).out)
    updated = world.done("policies", "update", name, str(file), "--description", "pull all")
    assert updated.text == f"{name} has revision 1 now, wherever it is attached\n"
    assert world.told("policies", "update", name)[0] == 2
    for target in (("--service-account", bot), ("--role", "admin")):
        detached = world.done("policies", "detach", name, *target)
        assert detached.text == f"{target[1]} has the policy {name} no more\n"
    assert world.told("policies", "detach", name, "--role", "admin")[0] == 3
    assert world.done("policies", "delete", name).text == f"Deleted the policy {name}\n"


class Terminal(io.StringIO):
    """A person at a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_person_is_asked_before_rights_are_taken(
    world: World, name: str, bot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.done("policies", "create", name, "-", stdin=json.dumps(PULL))
    world.done("policies", "attach", name, "--service-account", bot)
    detach = ("policies", "detach", name, "--service-account", bot)
    unassign = ("roles", "unassign", "admin", ADMIN)
    for command, question in (
        (detach, f"Take the policy {name} from {bot}, and its rights? [y/N] "),
        (unassign, f"Take the role admin from {ADMIN}, and end their sessions of it? [y/N] "),
    ):
        terminal = SimpleNamespace(stdin=Terminal("n\n"), stderr=Terminal())
        with monkeypatch.context() as asked:
            asked.setattr("registry.cli.output.prompts.sys", terminal)
            assert world.told(*command) == (1, "nothing was changed")
        assert terminal.stderr.getvalue() == question
    assert ADMIN in world.done("roles", "assignments", "admin", "-q").lines
    monkeypatch.setattr("registry.cli.output.prompts.sys", SimpleNamespace(stdin=Terminal("n\n")))
    world.done(*detach, "-y")


def test_a_ready_made_policy_is_shown_and_created(world: World, name: str) -> None:
    created = world.done("policies", "create", name, "--pull", "web/*")
    assert created.text.startswith(f"Created the policy {name}; ")
    statement = world.read("policies", "show", name)["document"]["statements"][0]
    assert statement["resources"][0].endswith(":repository/web/*")
    for wrong, told in (
        ((), "one of the arguments FILE --pull --push --admin is required"),
        (("-", "--pull", "x"), "argument --pull: not allowed with argument FILE"),
        (("--pull", "x", "--push", "x"), "argument --push: not allowed with argument --pull"),
    ):
        ended = world.run("policies", "create", name, *wrong)
        assert (ended.status, told in ended.err) == (2, True)
    names = [line.split()[0] for line in world.done("policies", "templates").lines[1:]]
    assert names == ["reader", "pusher", "admin"]
    lines = world.done("policies", "templates", "reader", "--names", "web/*").lines
    assert "registry:PullImage" in lines[1]
    assert world.told("policies", "templates", "x") == (
        3,
        "there is no template 'x'; there are reader, pusher, admin",
    )


# may X do Y


def test_a_principal_may_or_may_not_and_the_statements_say_why(world: World, name: str) -> None:
    world.done("service-accounts", "create", name, "--push", "web/*", "--no-key")
    allowed = world.done("may", name, "PushImage", "web/app")
    heading, row = allowed.lines
    assert heading == "ACTION DECISION REASON STATEMENTS"
    assert row.startswith("registry:PushImage allowed ")
    assert row.endswith(f" {name}-pusher[Push] allow")
    both = world.run("may", f"service-account/{name}", "PullImage,DeleteImage", "web/app")
    assert (both.status, both.err) == (1, "")
    assert [line.split()[1] for line in both.lines[1:]] == ["allowed", "implicitly"]
    crn = world.read("service-accounts", "show", name)["crn"]
    simulated = world.run("policies", "simulate", crn, "PushImage", "other", *JSON)
    assert simulated.status == 1
    (result,) = json.loads(simulated.out)["results"]
    assert (result["decision"], result["statements"]) == ("implicitly_denied", [])
    assert world.read("may", "role/admin", "iam:CreateRole", crn.replace(name, "x"))
    tried = world.done(
        *("may", name, "DeleteImage", "web/app", "--policy", "-"),
        stdin=json.dumps({"version": "1", "statements": [DELETE]}),
    )
    assert tried.lines[1].endswith(" the identity policy[0] allow")
    status, words = world.told("may", "nobody", "PushImage", "web/app")
    assert (status, words.partition(";")[0]) == (
        3,
        "there is neither a service account nor a role 'nobody'",
    )
    status, words = world.told("may", name, "PushImages", "web/app")
    assert (status, words.partition(":")[0]) == (2, "INVALID_INPUT")
    assert "registry:PushImage" in words
    status, words = world.told("may", name, "P*Image", "web/app")
    assert (status, "the pattern registry:P*Image" in words) == (2, True)
    assert "registry:PullImage, registry:PushImage" in words


def test_actions_are_listed(world: World) -> None:
    names = world.done("policies", "actions", "registry:Pu", "-q").lines
    assert {"registry:PullImage", "registry:PushImage"} <= set(names)
    assert all(each.startswith("registry:Pu") for each in names)
    line = world.done("policies", "actions", "registry:PushImage").lines[1]
    assert line.startswith("registry:PushImage ")


# people and roles


def test_a_person_is_added_with_a_role_and_may_act_in_it(
    world: World, owner: Home, name: str, tmp_path: Path
) -> None:
    email = f"{name}@example.org"
    made = world.done("users", "create", email, home=owner)
    assert made.lines[0] == (
        f"Added {email} to main; 'entrepot roles assign ROLE {email}' gives them rights"
    )
    world.done("policies", "create", name, "-", stdin=json.dumps(PULL))
    created = world.done("roles", "create", name, "--policy", name, "--max-session", "2h")
    assert created.text == (
        f"Created the role {name}: 'entrepot roles assign {name} EMAIL' gives it to a person\n"
    )
    assigned = world.done("roles", "assign", name, email)
    assert assigned.text == (f"{email} has the role {name}; its trust policy admits them now\n")
    assert world.done("roles", "assignments", name, "-q").lines == [email]
    home = Home(tmp_path)
    password = labelled(made.text, "one-time password")
    world.sign_in_person(home, email, password, "a long new password", role=name)
    assert world.read("whoami", home=home)["role"] == name
    assert world.told("repositories", "list", home=home)[1].startswith("ACCESS_DENIED")
    unassigned = world.done("roles", "unassign", name, email)
    assert unassigned.text == f"{email} has the role {name} no more\n"
    assert world.told("roles", "unassign", name, email)[0] == 3
    assert world.run("repositories", "list", home=home).status != 0
    world.done("roles", "delete", name)
    assert name not in world.done("roles", "list", "-q").lines


def test_a_role_is_created_with_its_people_and_changed(
    world: World, owner: Home, name: str, tmp_path: Path
) -> None:
    email = f"{name}@example.org"
    piped = world.run("users", "create", email, "--quiet", home=owner)
    assert "\n" in piped.text
    about = ("--user", email, "--description", "builds", "--pull", "web/*")
    role = world.read("roles", "create", name, *about)
    table = world.done("policies", "attachments", f"{name}-reader").lines
    assert table[1].startswith(f"{name} role 20")
    assert role["max_session_seconds"] == 3600
    world.sign_in_person(
        Home(tmp_path), email, piped.text.strip(), "a long new password", role=name
    )
    # Whoever the trust policy admits already needs no change of it.
    world.done("roles", "unassign", name, email)
    assert world.done("roles", "assign", name, email).text == f"{email} has the role {name}\n"
    lines = world.done("roles", "show", name).lines
    assert "description builds" in lines
    assert lines[-2] == "TRUST PRINCIPALS CONDITIONS"
    trust = {"version": "1", "statements": [{"effect": "allow", "principals": ["acme"]}]}
    changed = world.done("roles", "update", name, "--trust", "-", stdin=json.dumps(trust))
    assert (
        changed.text
        == f"Changed the role {name}; its sessions are over, unless trust was only added\n"
    )
    kept = world.done("roles", "assign", name, ADMIN, "--keep-trust")
    assert kept.text == (
        f"{ADMIN} has the role {name}, but its trust policy does not admit them yet\n"
    )
    assert world.told("roles", "update", name)[0] == 2
    assert world.told("roles", "create", name, "--user", "nobody@example.org") == (
        3,
        "there is no person 'nobody@example.org'; 'entrepot users list' shows those there are",
    )


def test_a_role_is_made_again_with_the_policy_left_or_not_at_all(world: World, name: str) -> None:
    world.done("roles", "create", name, "--pull", "web/*")
    world.done("roles", "delete", name)
    world.done("roles", "create", name, "--pull", "web/*")
    assert world.done("policies", "attachments", f"{name}-reader").lines[1].startswith(name)
    world.done("roles", "delete", name)
    refused = world.told("roles", "create", name, "--pull", "api/*", "--push", "web/*")
    words = f"CONFLICT: there is a policy {name}-reader; delete it, or choose another name"
    assert refused[0] == 1
    assert refused[1].startswith(f"the role {name} was not created: {words} (request ")
    world.done("policies", "create", f"{name}-admin", "--admin", "api/*")
    refused = world.told("roles", "create", name, "--push", "web/*", "--admin", "web/*")
    assert refused[1].startswith(f"the role {name} was not created: CONFLICT: there is a policy")
    assert name not in world.done("roles", "list", "-q").lines
    left = world.done("policies", "list", "-q").lines
    assert [each for each in left if each.startswith(name)] == [f"{name}-admin", f"{name}-reader"]


def test_people_are_listed_suspended_and_removed(world: World, owner: Home, name: str) -> None:
    email = f"{name}@example.org"
    world.done("users", "create", email, home=owner)
    for home in (owner, None):  # a person, and a program of the account
        assert {ADMIN, email} <= set(world.done("users", "list", "-q", home=home).lines)
    assert world.read("users", "show", email.upper(), home=owner)["must_change_password"] is True
    assert world.done("users", "suspend", email, home=owner).text == f"{email} is locked out\n"
    assert world.read("users", "show", email)["status"] == "suspended"
    world.done("users", "resume", email, home=owner)
    made_owner = world.done("members", "update", email, "--role", "owner", home=owner)
    assert made_owner.text == f"{email} is owner in main\n"
    lines = world.done("members", "list", home=owner).lines
    assert any(line.startswith(f"{email} owner 20") for line in lines)
    removed = world.done("members", "delete", email, home=owner)
    assert removed.text == (
        f"{email} is no longer in main, and has lost the roles in its accounts\n"
    )
    assert world.told("members", "delete", email, home=owner) == (
        3,
        f"there is no member {email!r}; 'entrepot members list' shows those there are",
    )
    other = f"other-{email}"
    world.done("users", "create", other, home=owner)
    assert world.done("users", "delete", other, home=owner).text == f"Deleted {other}\n"


def test_a_person_is_invited_and_joins_by_the_code(
    world: World, owner: Home, name: str, tmp_path: Path
) -> None:
    email = f"{name}@example.org"
    one_time = world.run("users", "create", email, "-q", home=owner).text.strip()
    home = Home(tmp_path)
    world.sign_in_person(home, email, one_time, "a long new password")
    world.done("organizations", "leave", home=home)
    assert world.told("users", "list", home=home)[0] == 3
    shown = world.done("invitations", "create", email, "--role", "billing", home=owner)
    organization = world.read("organizations", "show", home=owner)["id"]
    assert organization in world.done("organizations", "list", "-q", home=owner).lines
    assert f"'entrepot organizations accept {organization}' asks for it" in shown.lines[0]
    assert email in world.done("invitations", "list", "-q", home=owner).lines
    code = labelled(shown.text, "code")
    assert world.told("organizations", "accept", organization, stdin="iv_x\n", home=home)[0] == 3
    joined = world.done("organizations", "accept", organization, stdin=f"{code}\n", home=home)
    assert joined.text == "You are billing in main now\n"
    world.done("invitations", "create", f"x-{email}", home=owner)
    revoked = world.done("invitations", "delete", f"x-{email}", home=owner)
    assert revoked.text == f"Revoked the invitation of x-{email}\n"
    assert world.told("invitations", "delete", f"x-{email}", home=owner)[0] == 3


def test_an_owner_resets_a_persons_password(world: World, owner: Home, name: str) -> None:
    email = f"{name}@example.org"
    world.done("users", "create", email, home=owner)
    reset = world.done("users", "reset-password", email, home=owner)
    assert reset.lines[0] == f"Reset the password of {email}; all their sessions are over"
    assert len(labelled(reset.text, "one-time password")) == 22
    piped = world.run("users", "reset-password", email, "-q", home=owner)
    assert len(piped.text) == 23
    assert world.told("users", "reset-password", ADMIN, home=owner) == (
        1,
        f"{ADMIN} is you; 'entrepot users change-password' changes your own password",
    )


def test_a_person_changes_their_password(
    world: World, owner: Home, name: str, tmp_path: Path
) -> None:
    email = f"{name}@example.org"
    one_time = world.run("users", "create", email, "-q", home=owner).text.strip()
    home = Home(tmp_path)
    world.sign_in_person(home, email, one_time, "a long new password")
    change = ("users", "change-password")
    status, words = world.told(*change, stdin="wrong\nanother password\n", home=home)
    assert status == 1
    assert "the current password is wrong" in words
    assert world.told(*change, stdin="a long new password\n", home=home) == (
        2,
        "no new password was given; type it, or pipe it to the standard input",
    )
    given = "a long new password\nanother password\n"
    changed = world.done(*change, stdin=given, home=home)
    assert changed.text == f"Changed the password of {email}; your other sessions are over\n"
    world.sign_in_person(home, email, "another password")


def test_what_only_people_may_do_is_told_to_a_program(world: World) -> None:
    url = world.install.url
    for command in (("users", "create", "x@example.org"), ("organizations", "list")):
        assert world.told(*command) == (
            1,
            (
                f"only people may do this, and a service account is signed in to {url}; "
                f"run 'entrepot login {url}' without --access-key-id"
            ),
        )


def test_an_organization_is_renamed_and_named(world: World, owner: Home) -> None:
    (row,) = [
        each for each in world.read("organizations", "list", home=owner) if not each["is_personal"]
    ]
    renamed = world.done("organizations", "update", row["id"], "--name", "Acme", home=owner)
    assert renamed.text == "The organization is called Acme now\n"
    assert world.read("organizations", "show", "Acme", home=owner)["role"] == "owner"
    world.done("organizations", "update", "Acme", "--name", "main", home=owner)
    status, words = world.told("organizations", "show", "nobody", home=owner)
    assert (status, words.partition(";")[0]) == (3, "you are in no organization 'nobody'")
    assert world.told("organizations", "delete", "main", home=owner)[0] == 1
