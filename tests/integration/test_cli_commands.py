"""Commands whose arguments, answers, questions or streams no table of `commands` can hold."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from tests.conformance.content import (
    OCI_INDEX,
    OCI_MANIFEST,
    Content,
    config,
    document,
    image_index,
    image_manifest,
    subject_of,
)
from tests.entrepot import ADMIN, AtTerminal, Home
from tests.integration.cli_world import JSON, World, cli_world


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


def short(digest: str) -> str:
    """Return a digest as tables show it."""
    return digest.removeprefix("sha256:")[:12]


def test_a_manifest_is_printed_byte_by_byte_or_as_its_parts(world: World, app: str) -> None:
    registry = world.registry
    child = registry[f"acme/{app}"].push_image()
    platform = {"os": "linux", "architecture": "arm64", "variant": "v8"}
    listed = {**child.descriptor, "platform": platform}
    fields = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [listed]}
    index = document(fields, OCI_INDEX)
    registry[f"acme/{app}"].push_manifest(index, "v1")
    printed = world.done("images", "manifest", f"{app}:v1", *JSON).out
    assert f"sha256:{hashlib.sha256(printed).hexdigest()}" == index.digest
    assert world.done("images", "manifest", f"{app}:v1").lines == [
        "PART PLATFORM SIZE DIGEST MEDIA TYPE",
        f"manifest linux/arm64/v8 {len(child.body)} B {short(child.digest)} {OCI_MANIFEST}",
    ]
    parts = world.done("images", "manifest", f"{app}@{child.digest}").lines
    assert [line.split()[0] for line in parts] == ["PART", "config", "layer"]


def test_referrers_are_a_tree(world: World, app: str) -> None:
    registry, name = world.registry, f"acme/{app}"
    subject = registry[name].push_image("v1")
    empty = registry[name].push_blob(config())

    def refer(to: Content, kind: str) -> str:
        manifest = image_manifest(empty, **subject_of(to), artifactType=kind)
        pushed.append(registry[name].push_manifest(manifest))
        return pushed[-1].digest

    pushed = [subject]
    sbom = refer(subject, "application/sbom")
    signature = refer(pushed[-1], "application/signature")
    other = refer(subject, "application/other")
    shown = world.done("images", "referrers", f"{app}:v1").text.splitlines()
    assert shown[0] == f"{app}:v1"
    assert [line.split("  ")[0] for line in shown[1:2]] == ["├─ application/other"]
    assert shown[1].startswith(f"├─ application/other  {short(other)}  ")
    assert shown[2].startswith(f"└─ application/sbom  {short(sbom)}  ")
    assert shown[3].startswith(f"   └─ application/signature  {short(signature)}  ")
    whole = world.done("images", "referrers", f"{app}:v1", "--full-digests").text
    assert f"└─ application/sbom  {sbom}  " in whole
    tree = world.read("images", "referrers", f"{app}:v1", "--artifact-type", "application/sbom")
    assert [each["digest"] for each in tree] == [sbom]
    assert [each["digest"] for each in tree[0]["referrers"]] == [signature]


def test_a_child_is_refused_with_the_index_that_needs_it(world: World, app: str) -> None:
    registry, name = world.registry, f"acme/{app}"
    child = registry[name].push_image()
    index = registry[name].push_manifest(image_index([child]), "v1")
    ended = world.run("images", "delete", app, child.digest, "--full-digests")
    assert ended.status == 1
    assert ended.lines[1].startswith(f"{child.digest} refused CONFLICT: ")
    assert ended.lines[1].endswith(f"delete the index first, or force (in: {index.digest})")
    assert ended.err.endswith("--force deletes what is pinned or listed by an index, too\n")


def test_a_child_goes_by_force_and_the_index_is_told(world: World, app: str) -> None:
    registry, name = world.registry, f"acme/{app}"
    child, other = registry[name].push_image("arm"), registry[name].push_image()
    index = registry[name].push_manifest(image_index([child, other]), "v1")
    ended = world.done("images", "delete", app, child.digest, "--force", "--full-digests")
    assert ended.lines[1] == (
        f"{child.digest} deleted with its tags: arm; lacking now in {index.digest} (v1)"
    )
    world.done("images", "restore", f"{app}@{child.digest}")
    assert world.run("images", "delete", app, child.digest).status == 1


def test_more_items_than_a_request_takes(world: World, app: str) -> None:
    registry, name = world.registry, f"acme/{app}"
    empty = registry[name].push_blob(config())
    children = [
        registry[name].push_manifest(image_manifest(empty, annotations={"n": str(number)}))
        for number in range(101)
    ]
    index = registry[name].push_manifest(image_index(children[:1]))
    tagged = [f"t{number}" for number in range(101)]
    for start in range(0, 101, 50):
        registry[name].put_manifest(index, tags=tagged[start : start + 50])
    # The first child is refused as long as its index is there, which is in the second request.
    digests = [*(each.digest for each in children), index.digest]
    outcome = world.read("images", "delete", app, *digests, *tagged[:1])
    assert len(outcome["deleted"]) == 102
    assert outcome["failures"] == []
    assert {"digest": index.digest, "tags": sorted(tagged)} in outcome["deleted"]
    restored = world.read("images", "restore", app, *digests)
    assert len(restored["restored"]) == 102
    assert world.read("images", "list", app, "--all", "--limit", "201")[0]["digest"]
    assert len(world.read("tags", "delete", app, *tagged)["deleted"]) == 101
    # By force too, no child is taken from an index that goes a request later.
    outcome = world.read("images", "delete", app, *digests, "--force")
    assert len(outcome["deleted"]) == 102
    assert not any("incomplete_indexes" in each for each in outcome["deleted"])


def test_a_key_and_a_content_type_that_cannot_be_sent_are_refused(world: World) -> None:
    for key in ("", "\udcff", "k" * 1025):
        for verb in ("put", "get"):
            told = world.told("buckets", verb, "absent", key, "file")
            assert told == (2, "key: 1 to 1024 bytes of UTF-8")
    told = world.told("buckets", "put", "absent", "k", "-", "--content-type", "a/b\r\nX: y")
    assert told == (2, r"a content type is like text/plain, not 'a/b\r\nX: y'")


RULES = '{"rules": [{"priority": 1, "selector": "any", "keep_last": 1}]}'


class Terminal(io.StringIO):
    """A person at a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_person_is_asked_before_what_takes_something_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.done("policies", "create", "x", "--pull", "web/*")
    world.done("service-accounts", "create", "x")
    world.done("policies", "attach", "x", "--service-account", "x")
    world.done("keys", "create", "x")
    world.done("buckets", "create", "xxx")
    world.run("buckets", "put", "xxx", "file", "-", stdin="kept")
    for command, question in (
        ("policies detach x --service-account x", "Take the policy x from x, and its rights?"),
        (
            f"roles unassign admin {ADMIN}",
            f"Take the role admin from {ADMIN}, and end their sessions of it?",
        ),
        (
            "keys disable x",
            "Disable the key x? What it seals can be neither pulled nor pushed then.",
        ),
        (
            "buckets remove xxx file",
            "Delete these objects of the bucket xxx? Nothing brings them back.",
        ),
    ):
        terminal = SimpleNamespace(stdin=Terminal("n\n"), stderr=Terminal())
        with monkeypatch.context() as asked:
            asked.setattr("cloudcore.commands.prompts.sys", terminal)
            assert world.told(*command.split()) == (1, "nothing was changed")
        assert terminal.stderr.getvalue() == f"{question} [y/N] "
    assert len(world.read("policies", "attachments", "x")) == 1
    assert ADMIN in world.done("roles", "assignments", "admin", "-q").lines
    assert world.read("keys", "show", "x")["state"] == "enabled"
    assert [each["key"] for each in world.read("buckets", "objects", "xxx")] == ["file"]
    monkeypatch.setattr("cloudcore.commands.prompts.sys", SimpleNamespace(stdin=Terminal("n\n")))
    world.done("keys", "disable", "x", "-y")
    world.done("buckets", "remove", "xxx", "file", "--yes")


def test_a_person_at_a_terminal_is_asked_first(world: World, app: str) -> None:
    digest = world.push(app, "v1")
    for answer, status in (("n", 1), ("y", 0)):
        with AtTerminal(world.home, "images", "delete", f"{app}@{digest}") as person:
            person.type(answer, after=b"[y/N] ")
            assert f"Delete images (1) and tags (0) of {app}?".encode() in person.shown
            ended, printed = person.ended()
        assert (ended, b" deleted " in printed) == (status, answer == "y")
    assert world.told("images", "show", f"{app}@{digest}")[0] == 3


def test_progress_is_shown_to_a_person_alone(world: World, app: str) -> None:
    world.done("lifecycle", "set", app, "-", stdin=RULES)
    with AtTerminal(world.home, "lifecycle", "run", app, "--wait", "--yes") as person:
        status, printed = person.ended()
        assert (status, printed[:11]) == (0, b"Succeeded: ")
        person.see(b"expired 0 images, looked at ")


COMMAND = f"{sys.executable} -m registry"
BUFFERED = {"PYTHONUNBUFFERED": ""}
"""Lets Python write when it has 8 KiB or ends, as it does unless this variable says otherwise."""


@pytest.mark.parametrize(
    ("line", "status", "told"),
    [
        ("--help >&-", 0, ""),
        ("--help >/dev/full", 1, "entrepot: No space left on device\n"),
        ("--version >/dev/full", 1, "entrepot: No space left on device\n"),
        ("completion bash >&-", 0, ""),
        ("completion bash >/dev/full", 1, "entrepot: No space left on device\n"),
        ("images list app 2>&-", 4, ""),
        ("images list app <&- >&- 2>&-", 4, ""),
        ("lifecycle preview app - <&-", 2, "entrepot: the standard input holds no JSON object: "),
    ],
)
def test_a_stream_that_is_not_there_is_no_fault_of_the_command(
    line: str, status: int, told: str, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    ended = subprocess.run(
        ["bash", "-c", f"{COMMAND} {line}"],
        capture_output=True,
        text=True,
        check=False,
        env=home.environ | BUFFERED,
        timeout=60,
    )
    assert ended.returncode == status, ended.stderr
    assert ended.stderr.startswith(told)
    assert ended.stderr.count("\n") == bool(told)


@pytest.mark.parametrize(
    "line", ["images --help", "completion bash", "images list {app} --output json"]
)
def test_what_nobody_reads_ends_quietly(line: str, world: World, app: str) -> None:
    """Also a list of a command that talks to a registry, which ends by a path of its own."""
    for number in range(3):
        world.push(app, f"v{number}")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [*COMMAND.split(), *line.format(app=app).split()],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=world.home.environ | BUFFERED,
            timeout=60,
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, "")
