"""The commands about policies, lifecycle, storage, settings, events, audit; completion of names."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from registry.composition.families import FAMILIES
from tests.databases import program
from tests.entrepot import ADMIN, PASSWORD, Home
from tests.integration.cli_world import JSON, World, cli_world

POLICY = {
    "version": "1",
    "statements": [
        {
            "sid": "anyone",
            "effect": "allow",
            "principals": ["*"],
            "actions": ["registry:PullImage"],
        }
    ],
}
RULES = {
    "rules": [
        {"priority": 1, "action": "keep", "selector": "tagged", "tag_prefixes": ["v"]},
        {"priority": 2, "selector": "any", "keep_last": 1, "description": "the newest"},
        {"priority": 3, "action": "keep", "selector": "any", "keep_last": 1},
    ]
}
TOPIC = "crn:notifications:local:acme:topic/builds"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with cli_world(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture
def app(world: World) -> str:
    """Return the name of a repository of this test's own."""
    name = f"app-{uuid4().hex[:12]}"
    world.done("repositories", "create", name)
    return name


def test_a_policy_from_its_setting_to_its_end(world: World, app: str, tmp_path: Path) -> None:
    none = (
        f"{app} has no policy: only its own account's policies count; "
        f"'entrepot repository-policies set {app} FILE' gives it one"
    )
    assert world.told("repository-policies", "show", app) == (3, none)
    status, words = world.told("repository-policies", "show", str(uuid4()))
    assert (status, words.startswith("NOT_FOUND: ")) == (3, True)
    ended = world.done("repository-policies", "set", app, "-", stdin=json.dumps(POLICY))
    assert ended.text == f"{app} has revision 1 of its policy\n"
    assert world.done("repository-policies", "show", app).lines == [
        "SID EFFECT PRINCIPALS ACTIONS CONDITIONS",
        "anyone allow * registry:PullImage -",
    ]
    shown = world.done("repository-policies", "show", app, *JSON)
    assert shown.document["document"]["statements"][0]["principals"] == ["*"]
    # What was shown can be set again.
    file = tmp_path / "policy.json"
    file.write_bytes(shown.out)
    assert world.read("repository-policies", "set", app, str(file))["revision"] == 2
    assert (
        world.done("repository-policies", "delete", app).text == f"{app} has no policy any more\n"
    )
    assert world.told("repository-policies", "show", app) == (3, none)


def test_a_policy_that_locks_out_is_set_by_force(world: World, app: str) -> None:
    statement = {**POLICY["statements"][0], "effect": "deny"}  # type: ignore[dict-item]
    document = json.dumps({"version": "1", "statements": [statement]})
    status, words = world.told("repository-policies", "set", app, "-", stdin=document)
    assert (status, words.partition(":")[0]) == (1, "CONFLICT")
    world.done("repository-policies", "set", app, "-", "--force", stdin=document)


def test_what_is_no_document_is_told(world: World, app: str, tmp_path: Path) -> None:
    status, words = world.told("repository-policies", "set", app, "-", stdin="[1]")
    assert status == 2
    assert words.startswith("the standard input holds no JSON object: ")
    file = tmp_path / "rules.json"
    assert world.told("lifecycle", "set", app, str(file)) == (
        2,
        f"{file}: No such file or directory",
    )
    file.write_text("{")
    status, words = world.told("lifecycle", "preview", app, str(file))
    assert (status, words.partition(" holds")[0]) == (2, str(file))
    file.write_text('{"rules": [{"priority": 0, "selector": "any"}]}')
    status, words = world.told("lifecycle", "set", app, str(file))
    assert status == 1
    assert words.startswith("INVALID_INPUT: rules")


def test_a_lifecycle_policy_from_its_preview_to_its_end(
    world: World, app: str, tmp_path: Path
) -> None:
    none = (
        f"{app} has no lifecycle policy, so nothing in it expires; "
        f"'entrepot lifecycle set {app} FILE' gives it one"
    )
    for command in (("show", app), ("preview", app), ("run", app), ("run", app, "--dry-run")):
        assert world.told("lifecycle", *command) == (3, none)
    world.push(app, "v1")
    world.push(app)
    # What was pushed within the hour stays, whatever the rules say.
    tried = world.done("lifecycle", "preview", app, "-", stdin=json.dumps(RULES))
    heading, summary, held = tried.lines
    assert held.startswith("No rule expires what was pushed or restored less than an hour ago, ")
    assert heading == "RULE DIGEST TAGS SIZE PUSHED LAST PULLED EXPIRES WITH"
    assert summary == (
        "0 of 2 images would expire, which frees 0 B once they can no longer be restored; "
        "kept: rule 1: 1, rule 3: 1"
    )
    ended = world.done("lifecycle", "set", app, "-", stdin=json.dumps(RULES))
    assert ended.text.startswith("Set; it runs at 20")
    assert f"'entrepot lifecycle preview {app}' shows what would expire" in ended.text
    shown = world.done("lifecycle", "show", app).lines
    assert shown[:4] == [
        "PRIORITY ACTION SELECTOR TAGS WHICH DESCRIPTION",
        "1 keep tagged v* all -",
        "2 expire any - all but the newest 1 the newest",
        "3 keep any - the newest 1 -",
    ]
    assert shown[4].startswith("Runs next at 20")
    document = world.read("lifecycle", "preview", app)
    assert (document["images"], document["summary"]["evaluated"]) == ([], 2)
    assert world.read("lifecycle", "run", app, "--dry-run")["summary"]["expired"] == 0
    file = tmp_path / "policy.json"
    file.write_bytes(world.done("lifecycle", "show", app, *JSON).out)
    assert world.read("lifecycle", "set", app, str(file))["revision"] == 2
    ended = world.done("lifecycle", "delete", app)
    assert ended.text == f"{app} has no lifecycle policy any more\n"


def test_what_is_old_enough_is_previewed_and_expires(world: World, app: str) -> None:
    kept, gone, last = (world.push(app, tag) for tag in ("v1", "w1", "w2"))
    new = world.push(app)
    size = world.read("images", "show", f"{app}:w1")["size_bytes"]
    with sqlite3.connect(world.install.registry.data / "metadata.db", timeout=30) as database:
        database.execute("UPDATE manifests SET pushed_at = pushed_at - 172800000000")
    database.close()
    world.done("lifecycle", "set", app, "-", stdin=json.dumps(RULES))
    _, row, summary, _ = world.done("lifecycle", "preview", app).lines
    assert row.startswith(f"2 {gone.removeprefix('sha256:')[:12]} w1 {size} B 20")
    assert summary == (
        f"1 of 4 images would expire (rule 2: 1), which frees {size} B "
        "once they can no longer be restored; kept: rule 1: 1, rule 2: 1, rule 3: 1"
    )
    assert world.done("lifecycle", "run", app, "--wait").text == (
        f"Succeeded: expired 1 of 4 images, which frees {size} B "
        "once they can no longer be restored\n"
    )
    assert [each["digest"] for each in world.read("images", "list", app, "-a")] == [new, last, kept]
    (run,) = world.read("lifecycle", "runs", app)
    (deleted,) = world.read("images", "deleted", app)
    assert deleted["deleted_by"].endswith(f":lifecycle-run/{run['id']}")


def test_a_run_is_started_and_waited_for(world: World, app: str) -> None:
    world.push(app, "v1")
    world.done("lifecycle", "set", app, "-", stdin=json.dumps(RULES))
    ended = world.done("lifecycle", "run", app, "--wait")
    first, held = ended.lines
    assert first == (
        "Succeeded: expired 0 of 1 images, which frees 0 B once they can no longer be restored"
    )
    assert held.startswith("No rule expires what was pushed or restored less than an hour ago, ")
    (run,) = world.read("lifecycle", "runs", app)
    assert (run["status"], run["evaluated"]) == ("succeeded", 1)
    assert world.done("lifecycle", "runs", app).lines[1].startswith(f"{run['id']} succeeded 20")
    started = world.done("lifecycle", "run", app).text
    advice = f"'entrepot lifecycle runs {app}' shows how far it has come"
    assert started.startswith("Started run ")
    assert started.endswith(f"; {advice}\n")
    waited = world.read("lifecycle", "run", app, "--wait")
    assert (waited["status"], waited["fault"]) == ("succeeded", None)


def test_progress_is_shown_to_a_person_alone(world: World, app: str) -> None:
    world.done("lifecycle", "set", app, "-", stdin=json.dumps(RULES))
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        program("registry", "lifecycle", "run", app, "--wait", "--yes"),
        stdout=subprocess.PIPE,
        stderr=terminal,
        env=world.home.environ,
    )
    os.close(terminal)
    try:
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert printed.startswith(b"Succeeded: ")
        assert b"expired 0 images, looked at " in os.read(controller, 4096)
    finally:
        process.kill()
        process.wait()
        os.close(controller)


def test_usage_tells_what_is_stored(world: World, app: str) -> None:
    world.push(app, "v1")
    usage = world.read("storage", "usage")
    assert "repositories" not in usage
    assert usage["unique_bytes"] <= usage["logical_bytes"]
    assert any(line.startswith("dedup_ratio 1") for line in world.done("storage", "usage").lines)
    table = world.done("storage", "usage", "--by-repository").lines
    assert table[0] == "REPOSITORY IMAGES LOGICAL STORED SHARED FREED IF DELETED"
    size = world.read("repositories", "show", app)["size_bytes"]
    assert f"{app} 1 {size} B {size} B 0 B {size} B" in table
    rows = world.read("storage", "usage", "--by-repository")["repositories"]
    assert app in [row["repository"]["name"] for row in rows]


def test_settings_are_shown_and_changed(world: World) -> None:
    assert world.done("settings", "show").lines == [
        "FIELD VALUE",
        "undelete_days 7",
        "uncounted_pullers -",
        "access_key_login no",
        "updated_at -",
    ]
    scanner = "crn:iam::acme:service-account/scan*"
    changed = ("--undelete-days", "3", "--uncounted-puller", scanner)
    changed_to = world.read("settings", "update", *changed)
    assert changed_to["undelete_days"] == 3
    assert changed_to["uncounted_pullers"][0].endswith(":service-account/scan*")
    world.done("settings", "update", "--undelete-days", "7", "--no-uncounted-pullers")
    assert world.read("settings", "show")["uncounted_pullers"] == []
    assert world.read("settings", "update", "--access-key-login")["access_key_login"]
    assert not world.read("settings", "update", "--no-access-key-login")["access_key_login"]
    status, words = world.told("settings", "update", "--undelete-days", "300")
    assert (status, words.count("undelete_days")) == (1, 1)
    assert world.told("settings", "update") == (
        2,
        "say what is to change: --undelete-days, --uncounted-puller or --access-key-login",
    )


def test_mirrors_are_made_changed_tested_and_deleted(world: World) -> None:
    upstream = ("--upstream", "https://registry.invalid")
    words = world.done("mirrors", "create", "hub", *upstream, "--username", "me", stdin="canary\n")
    assert words.text.startswith("Created hub; pull images of https://registry.invalid as ")
    made = world.read("mirrors", "show", "hub")
    assert made["credential"] == {"username": "me", "has_secret": True}
    assert (
        world.done("mirrors", "list").lines[1].startswith("hub https://registry.invalid yes 0 0 ")
    )
    changed = world.read(
        *("mirrors", "update", "hub", "--keep-unpulled-days", "9", "--max-bytes", "5"),
        *("--no-credential", "--no-enabled"),
    )
    assert (changed["keep_unpulled_days"], changed["max_bytes"]) == (9, 5)
    assert (changed["credential"], changed["enabled"]) == (None, False)
    assert world.read("mirrors", "update", "hub", "--max-bytes", "0")["max_bytes"] is None
    assert world.told("mirrors", "update", "hub")[0] == 2
    tested = world.run("mirrors", "test", "hub", "library/alpine:3")
    assert tested.status == 1
    assert tested.text.startswith("failed at dns after ")
    status, words_of_none = world.told("mirrors", "warm", "other/library/alpine")
    assert (status, "no rule caches" in words_of_none) == (3, True)
    ended = world.done("mirrors", "delete", made["id"])
    assert ended.text == "Deleted the rule of hub; what it has cached stays\n"
    assert world.done("mirrors", "list", *JSON).document == []


def test_topics_and_their_subscriptions_from_making_to_end(world: World) -> None:
    made = world.done("topics", "create", "news", "--description", "All", "--max-retries", "1")
    assert made.text.startswith("Created news;")
    shown = world.read("topics", "show", "news")
    assert (shown["delivery_policy"], shown["description"]) == ({"max_retries": 1}, "All")
    assert world.read("topics", "update", "news", "--no-delivery-policy")["delivery_policy"] is None
    endpoint = ("--protocol", "https", "--endpoint", "https://192.0.32.7/hook")
    made = world.done("subscriptions", "create", "news", *endpoint, "--raw")
    (found,) = world.read("subscriptions", "list", "news")
    secret = world.read("subscriptions", "secret", "news", found["id"])["signing_secret"]
    assert made.text == (
        f"Created the subscription {found['id']}; its signing secret is {secret}\n"
    )
    assert (found["status"], found["raw_message_delivery"]) == ("pending_confirmation", True)
    one = ("news", found["id"])
    changed = world.read("subscriptions", "update", *one, "--no-raw", "--timeout-seconds", "5")
    assert changed["raw_message_delivery"] is False
    assert changed["delivery_policy"] == {"timeout_seconds": 5}
    rotated = world.read("subscriptions", "rotate-secret", *one)
    assert rotated["previous_signing_secret"] == secret
    other = ("--protocol", "https", "--endpoint", "https://192.0.32.7/other")
    other_made = world.read("subscriptions", "create", "news", *other)
    assert other_made["signing_secret"].startswith("whsec_")
    asked = world.done("subscriptions", "resend", *one)
    assert asked.text == "Asked https://192.0.32.7/hook to confirm\n"
    published = world.read("topics", "publish", "news", "hi", "--attribute", "kind=a")
    assert published["message_id"]
    assert world.told("topics", "publish", "news", "hi", "--attribute", "kind") == (
        2,
        "--attribute takes NAME=VALUE, not 'kind'",
    )
    ended = world.done("subscriptions", "delete", *one)
    assert ended.text == f"Deleted the subscription {found['id']}\n"
    assert world.done("topics", "delete", "news").text == "Deleted news\n"
    assert world.told("topics", "show", "news")[0] == 3


def test_event_rules_are_made_listed_and_deleted(world: World) -> None:
    world.done("topics", "create", "builds")
    made = world.done(
        *("events", "create", "--topic", "builds", "--event-type", "registry.tag.*"),
        *("--event-type", "registry.image.pushed", "--repository-prefix", "team/"),
    )
    assert made.text.startswith("Created the event rule ")
    (rule,) = world.read("events", "list")
    assert world.read("events", "show", rule["id"]) == rule
    assert rule["event_types"] == ["registry.tag.*", "registry.image.pushed"]
    assert world.done("events", "list").lines[1].startswith(f"{rule['id']} {rule['topic']['crn']} ")
    head, line = world.done("events", "list").lines
    assert head == "ID TOPIC EVENT TYPES REPOSITORY PREFIX FAULTS CREATED"
    assert " team/ - 2" in line
    world.done("topics", "delete", "builds")
    assert " team/ TOPIC_MISSING " in world.done("events", "list").lines[1]
    world.done("topics", "create", "builds")
    ended = world.done("events", "delete", rule["id"])
    assert ended.text == f"Deleted the event rule {rule['id']}\n"
    assert world.told("events", "delete", rule["id"])[0] == 3
    assert world.done("events", "list", *JSON).document == []
    again = ("events", "create", "--topic", TOPIC, "--event-type", "registry.image.deleted")
    assert world.read(*again)["repository_prefix"] == ""


def test_regions_and_prices_are_listed_without_a_sign_in(world: World, tmp_path: Path) -> None:
    skus = sum(len(family.skus) for family in FAMILIES)
    for name, heading, count in (
        ("regions", "NAME DISPLAY NAME STATUS ENDPOINTS", 1),
        ("prices", "SKU SERVICE REGION UNIT AMOUNT CURRENCY", skus),
    ):
        public = ("catalog", name, "--registry", world.install.url)
        assert world.done(*public, home=Home(tmp_path)).lines[0] == heading
        found = world.read(*public, home=Home(tmp_path))
        assert found == world.read("catalog", name)
        assert len(found) == count


def test_tags_of_the_repository_in_the_line_are_offered(world: World, app: str) -> None:
    for tag in ("v1", "v2", "w1"):
        world.push(app, tag)
    for typed in (f"tags set {app}:latest", f"tags delete -o json {app} w1"):
        line = f"cd x; entrepot {typed} "
        assert world.done("__complete", "tag", "v", f"--line={line}v").lines == ["v1", "v2"]
        assert world.done("__complete", "tag", f"--line={line}").lines == ["v1", "v2", "w1"]
    for line in ("", "entrepot", "entrepot tags set ", "entrepot tags set nobody:x "):
        assert world.done("__complete", "tag", "", f"--line={line}").lines == []


def test_principals_and_actions_are_offered(world: World) -> None:
    offered = world.done("__complete", "principal").lines
    assert {"admin", "role/admin"} <= set(offered)
    assert world.done("__complete", "principal", "role/adm").lines == ["role/admin"]
    assert "admin" not in world.done("__complete", "principal", "role").lines
    actions = world.done("__complete", "action", "registry:Pu").lines
    assert {"registry:PullImage", "registry:PushImage"} <= set(actions)
    assert all(each.startswith("registry:Pu") for each in actions)


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
    world: World, app: str, tmp_path: Path
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
    owner = Home(tmp_path / "owner")
    world.sign_in_person(owner, ADMIN, world.install.one_time_password, PASSWORD)
    for who, words in (("no@example.org", "main has no member 'no@example.org'"), (ADMIN, "")):
        of_main = ("--organization", "main", "--who", who, *since)
        ended = world.run("audit", "list", *of_main, home=owner)
        assert (ended.status, words in ended.err, bool(ended.err)) == (0, True, bool(words))
