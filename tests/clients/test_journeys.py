"""What a team does with a registry from its first day on, by the documentation alone.

Each journey is measured in steps: commands typed, forms sent in a browser, secrets pasted. A change
that makes one longer fails here.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
import yaml

from tests.clients.journey_world import Machine, Operator, Steps, first_password, operated
from tests.clients.node_provider import provider_with_client, sign_in_at_provider
from tests.entrepot import ADMIN, told
from tests.postgresql import free_port

pytestmark = [pytest.mark.client("skopeo"), pytest.mark.timeout(300)]

OWN: Final = "a password of my own"
ANOTHER: Final = "another password of my own"


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    provider = f"http://127.0.0.1:{free_port()}"
    settings = {"ENTREPOT_OIDC_INTERNAL_ORIGINS": provider}
    with operated(tmp_path_factory.mktemp("journeys"), **settings) as made:
        yield made


@pytest.fixture(scope="module")
def first_push(operator: Operator) -> tuple[Machine, Steps, str]:
    """Return the machine of the install's owner, after a first push, and the steps it took."""
    steps = Steps("First push", ["entrepot init --account acme --admin-email ME", "entrepot serve"])
    owner = Machine(operator.data.parent / "owner", operator)
    signed_in = owner.sign_in(steps, ADMIN, first_password(operator), OWN)
    assert "admin of acme" in signed_in
    owner.pushed(steps, "web/frontend:1", "first")
    return owner, steps, signed_in


@pytest.fixture(scope="module")
def owner(first_push: tuple[Machine, Steps, str]) -> Machine:
    return first_push[0]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return where the machines of a test are."""
    return tmp_path


def test_first_push(first_push: tuple[Machine, Steps, str]) -> None:
    owner, steps, _ = first_push
    steps.check(commands=4, forms=2)
    assert owner.pull(None, "web/frontend:1").returncode == 0


def test_a_second_person_may_only_read(owner: Machine, place: Path) -> None:
    steps = Steps("A second person who may only read")
    password = owner.run(steps, "users", "create", "bob@example.org", "--quiet").strip()
    role = ("roles", "create", "web-reader", "--pull", "web/*", "--user", "bob@example.org")
    owner.run(steps, *role)
    bob = Machine(place / "bob", owner.operator)
    bob.sign_in(steps, "bob@example.org", password, ANOTHER)
    assert bob.pull(steps, "web/frontend:1").returncode == 0
    steps.check(commands=4, forms=2)

    for name in ("web/frontend:1", "web/new:1", "elsewhere:1"):
        refused = bob.push(None, name, bob.image(name))
        assert is_denied(refused)
    assert "registry:DeleteImage" in bob.refused("images", "delete", "web/frontend", "1")
    assert "iam:CreateUser" in bob.refused("users", "create", "eve@example.org")
    assert owner.pull(None, "web/frontend:1").returncode == 0


def test_a_bot_pushes_to_its_repositories_alone(owner: Machine, place: Path) -> None:
    steps = Steps("A CI bot")
    made = owner.read(steps, "service-accounts", "create", "ci", "--push", "web/*")
    bot = Machine(place / "bot", owner.operator, **key_of(owner, made))
    bot.run(steps, "docker-login", "--client", "skopeo")
    bot.pushed(steps, "web/built-by-ci:1", "built")
    steps.check(commands=3)

    refused = bot.push(None, "api/built-by-ci:1", bot.image("elsewhere"))
    assert is_denied(refused)
    assert bot.refused("images", "delete", "web/built-by-ci", "1", "--yes")
    why = owner.home.run("may", "ci", "PushImage,DeleteImage", "api/built-by-ci")
    assert (why.returncode, why.stdout.count("implicitly denied")) == (1, 2)


def is_denied(ended: subprocess.CompletedProcess[str]) -> bool:
    """Return True if the registry refused a client for want of rights."""
    words = ("denied", "403 (Forbidden)")  # the latter for a HEAD, whose answer has no body
    return ended.returncode != 0 and any(each in ended.stderr for each in words)


def key_of(owner: Machine, made: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the variables of a CI system that hold the key just made."""
    return {
        "ENTREPOT_REGISTRY": owner.operator.url,
        "ENTREPOT_ACCESS_KEY_ID": made["access_key"]["access_key_id"],
        "ENTREPOT_SECRET_ACCESS_KEY": made["access_key"]["secret_access_key"],
    }


def test_a_pull_secret_of_kubernetes(owner: Machine, place: Path) -> None:
    steps = Steps("A pull secret of Kubernetes")
    made = owner.read(steps, "service-accounts", "create", "cluster", "--pull", "web/*")
    cluster = Machine(place / "cluster", owner.operator, **key_of(owner, made))
    manifest = cluster.run(steps, "docker-login", "--kubernetes-secret", "entrepot")
    steps.check(commands=2)

    secret = yaml.safe_load(manifest)["data"][".dockerconfigjson"]
    config = place / "config.json"
    config.write_bytes(base64.b64decode(secret, validate=True))
    assert made["access_key"]["secret_access_key"] not in config.read_text()
    node = Machine(place / "node", owner.operator)
    assert node.pull(None, "web/frontend:1").returncode != 0
    assert node.pull(None, "web/frontend:1", "--authfile", str(config)).returncode == 0
    assert is_denied(node.pull(None, "api:1", "--authfile", str(config)))


def test_who_moved_latest_and_back(owner: Machine, place: Path) -> None:
    password = owner.run(None, "users", "create", "ann@example.org", "--quiet").strip()
    role = ("roles", "create", "web-pusher", "--push", "web/*", "--user", "ann@example.org")
    owner.run(None, *role)
    ann = Machine(place / "ann", owner.operator)
    ann.sign_in(Steps(""), "ann@example.org", password, ANOTHER)
    good = owner.pushed(None, "web/shop:latest", "good")
    bad = ann.pushed(None, "web/shop:latest", "bad")

    steps = Steps("Who moved latest, and back")
    history = owner.run(steps, "tags", "history", "web/shop:latest", "--full-digests")
    audit = owner.read(steps, "audit", "list", "--who", "ann@example.org")
    owner.run(steps, "tags", "set", "web/shop:latest", good)
    steps.check(commands=3)

    moved = next(line for line in history.splitlines() if bad in line)
    assert "ann@example.org" in moved
    (pushed,) = [
        event
        for event in audit
        if event["action"] == "registry:PushImage" and event["details"].get("digest") == bad
    ]
    assert pushed["source"]["name"] == "ann@example.org"
    assert pushed["principal"].startswith("crn:iam::")
    assert pushed["details"]["tags"]["latest"] == {"from": good, "to": bad}
    assert owner.read(None, "tags", "show", "web/shop:latest")["digest"] == good
    undone = owner.run(None, "tags", "history", "web/shop:latest").splitlines()[1]
    assert ADMIN in undone


def test_clean_up_by_policy(owner: Machine, place: Path) -> None:
    digests = [owner.pushed(None, f"web/old:{n}", f"old {n}") for n in range(3)]
    owner.operator.pass_hours(2 + 24)
    rules = place / "rules.json"
    rule = {"priority": 1, "selector": "tagged", "tag_patterns": ["0", "1"], "older_than_days": 1}
    rules.write_text(json.dumps({"rules": [rule]}))

    steps = Steps("Clean up by policy")
    preview = owner.run(steps, "lifecycle", "preview", "web/old", str(rules), "-o", "json")
    owner.run(steps, "lifecycle", "set", "web/old", str(rules))
    owner.run(steps, "lifecycle", "run", "web/old", "--wait", "--yes")
    gone = owner.run(steps, "images", "deleted", "web/old", "--quiet").split()
    owner.run(steps, "images", "restore", *gone)
    steps.check(commands=5)

    assert all(digest in preview for digest in digests[:2])
    assert sorted(gone) == sorted(f"web/old@{digest}" for digest in digests[:2])
    for n in range(3):
        assert owner.pull(None, f"web/old:{n}").returncode == 0


@pytest.mark.client("oidc-provider")
def test_people_of_an_identity_provider(owner: Machine, place: Path, library: Path) -> None:
    steps = Steps("Let the people of an identity provider in, with the role of their group")
    url = owner.operator.environment["ENTREPOT_OIDC_INTERNAL_ORIGINS"]
    secret = "a secret of the client"
    add = ("identity-providers", "create", "Acme", "--issuer", url, "--client-id", "entrepot")
    people = ("--email-domain", "acme.example", "--creates-people")
    scopes = ("--scope", "email", "--scope", "groups")
    shown = owner.run(steps, *add, *people, *scopes, stdin=f"{secret}\n")
    owner.run(steps, "roles", "create", "developer", "--push", "team/*")
    owner.run(steps, "roles", "assign-group", "developer", "devs")
    zoe = {"email": "zoe@acme.example", "email_verified": True, "groups": ["devs"]}
    redirect_uri = shown.split()[-1]
    with provider_with_client(library, place, url, redirect_uri, secret, zoe=zoe):
        machine = Machine(place / "zoe", owner.operator)

        def browse(page: str) -> httpx.Response:
            answer, forms = sign_in_at_provider(page, "zoe")
            steps.forms += forms
            return answer

        assert "developer of acme" in machine.sign_in_by(steps, browse)
        machine.pushed(steps, "team/app:1", "of zoe")
        steps.check(commands=5, forms=2, prompts=1)

    assert is_denied(machine.push(None, "web/frontend:3", machine.image("elsewhere")))
    who = machine.read(None, "whoami")
    assert (who["person"], who["role"]) == ("zoe@acme.example", "developer")
    signed_in = ("--organization", "main", "--action", "iam:SignIn", "--who", "zoe@acme.example")
    assert owner.read(None, "audit", "list", *signed_in)
    owner.run(None, "identity-providers", "delete", "Acme", "--yes")
    assert machine.refused("repositories", "list")


def test_a_lost_password(owner: Machine) -> None:
    steps = Steps("Lose the admin's password, and recover")
    shown = owner.operator.run(steps, "reset-password", ADMIN)
    assert "is over" in owner.refused("repositories", "list")
    owner.sign_in(steps, ADMIN, told("one-time password", shown), ANOTHER)
    steps.check(commands=2, forms=2)
    owner.run(None, "repositories", "list")
    assert owner.push(None, "web/frontend:2", owner.image("again")).returncode == 0


def test_a_lost_disk(owner: Machine, place: Path) -> None:
    operator = owner.operator
    digest = owner.pushed(None, "web/kept:1", "kept")
    steps = Steps("Lose the disk, and restore")
    backup = place / "backup"
    operator.run(steps, "backup", str(backup), "--include-root-key")
    operator.stop()
    shutil.rmtree(operator.data)
    try:
        operator.run(steps, "restore", str(backup))
        operator.run(steps, "fsck")
    finally:
        steps.done.append("entrepot serve --data DATA")
        operator.serve()
    steps.check(commands=4)
    assert owner.read(None, "tags", "show", "web/kept:1")["digest"] == digest
    assert owner.pull(None, "web/kept:1").returncode == 0
    assert owner.push(None, "web/kept:2", owner.image("after")).returncode == 0
