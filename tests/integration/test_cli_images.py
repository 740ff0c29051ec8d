"""The commands about repositories, images and tags, against a served registry."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path
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
from tests.databases import program
from tests.entrepot import Home
from tests.integration.cli_world import JSON, World, cli_world

NOBODY = f"sha256:{'0' * 64}"


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


# repositories


def test_a_repository_from_its_creation_to_its_return(world: World) -> None:
    name = f"team/app-{uuid4().hex[:8]}"
    created = world.done("repositories", "create", name, "--description", "it's", "--tag", "a=1=2")
    assert created.text == f"Created {name}; push to {world.host}/acme/{name}:TAG\n"
    record = world.read("repositories", "show", name)
    assert (record["description"], record["tags"]) == ("it's", {"a": "1=2"})
    shown = world.done("repositories", "show", name).lines
    assert shown[0] == "FIELD VALUE"
    assert {"size_bytes 0 B", "tags a=1=2", "last_pushed_at -"} <= set(shown)
    change = ("--description", "", "--no-tags", "--tag-mutability", "immutable")
    exclusions = ("--immutable-tag-exclusion", "latest", "--immutable-tag-exclusion", "dev-*")
    changed = world.read("repositories", "update", name, *change, *exclusions)
    assert (changed["description"], changed["tags"]) == (None, {})
    assert changed["tag_mutability"] == "immutable"
    assert changed["immutable_tag_exclusions"] == ["latest", "dev-*"]
    changed = world.read("repositories", "update", name, "--no-immutable-tag-exclusions")
    assert changed["immutable_tag_exclusions"] == []
    world.push(name)
    refused = world.told("repositories", "delete", name)
    assert refused == (2, f"{name} holds images (1); --force deletes it with them")
    advice = "'entrepot repositories deleted' shows how long it can be restored"
    assert world.done("repositories", "delete", name, "--force").text == (
        f"Deleted {name}; {advice}\n"
    )
    (deleted,) = [row for row in world.read("repositories", "deleted") if row["id"] == record["id"]]
    assert deleted["name"] == name
    assert any(record["id"] in line for line in world.done("repositories", "deleted").lines)
    restored = world.done("repositories", "restore", name)
    assert restored.text == f"Restored {name}; images in it: 1\n"
    assert world.told("repositories", "restore", name)[0] == 3


def test_repositories_are_listed_by_name(world: World) -> None:
    prefix = f"list-{uuid4().hex[:8]}"
    assert world.read("repositories", "create", f"{prefix}/b")["name"] == f"{prefix}/b"
    world.done("repositories", "create", f"{prefix}/a")
    rows = world.read("repositories", "list", "--name-prefix", prefix)
    assert [row["name"] for row in rows] == [f"{prefix}/a", f"{prefix}/b"]
    assert world.done("repositories", "list", "--name-prefix", prefix).lines == [
        "NAME IMAGES TAGS SIZE VISIBILITY LAST PUSHED",
        f"{prefix}/a 0 0 0 B private -",
        f"{prefix}/b 0 0 0 B private -",
    ]


def test_a_deleted_repository_goes_by_its_id_where_names_do_not_tell(world: World) -> None:
    name = f"twice-{uuid4().hex[:8]}"
    ids = []
    for _ in range(2):
        ids.append(world.read("repositories", "create", name)["id"])
        world.push(name)  # what held nothing is not kept
        assert world.done("repositories", "delete", name, "--force", *JSON).text == ""
    status, words = world.told("repositories", "restore", name)
    assert status == 2
    assert all(each in words for each in ids)
    assert world.read("repositories", "restore", ids[0].upper())["id"] == ids[0]


@pytest.mark.parametrize(
    "written", ["{name}", "acme/{name}", "{host}/acme/{name}", "other:1/acme/{name}", "{id}"]
)
def test_a_repository_is_found_as_people_write_it(world: World, app: str, written: str) -> None:
    names = {"name": app, "host": world.host, "id": world.read("repositories", "show", app)["id"]}
    written = written.format(**names)
    if written.startswith("other"):
        assert world.told("repositories", "show", written)[0] == 3
    else:
        assert world.read("repositories", "show", written)["name"] == app


def test_a_nested_name_is_not_taken_for_an_account(world: World, app: str) -> None:
    status, words = world.told("images", "list", f"other/{app}")
    assert status == 3
    assert words == (
        f"the account has no repository 'other/{app}'; 'entrepot repositories list' shows those "
        "it has, and one of another account goes by its id"
    )
    world.done("repositories", "create", f"acme/{app}")
    assert world.read("repositories", "show", f"acme/{app}")["name"] == f"acme/{app}"
    assert world.read("repositories", "show", f"acme/acme/{app}")["name"] == f"acme/{app}"
    assert world.read("repositories", "show", f"{world.host}/acme/{app}")["name"] == app


@pytest.mark.parametrize("written", ["", "/", "acme/", "{host}/acme/", "{host}/"])
def test_no_name_is_no_repository(world: World, app: str, written: str) -> None:
    """A variable that a script forgot to set deletes nothing."""
    written = written.format(host=world.host)
    assert world.told("repositories", "delete", written, "--force")[0] == 3
    assert world.told("tags", "delete", written, "v1")[0] in (2, 3)
    assert world.read("repositories", "show", app)["name"] == app


# images


def test_images_are_listed_the_newest_first(world: World, app: str) -> None:
    empty = world.run("images", "list", app)
    assert (empty.status, len(empty.lines)) == (0, 1)
    assert empty.err == "entrepot: no image has a tag; --all lists those without\n"
    assert world.done("images", "list", app, "--all").lines == empty.lines
    first, second, third = (world.push(app, tag) for tag in ("v1", None, "w1"))

    def listed(*options: str) -> list[str]:
        return [row["digest"] for row in world.read("images", "list", app, *options)]

    assert listed() == [third, first]
    assert listed("--all") == listed("-a") == [third, second, first]
    assert listed("--tagged") == [third, first]
    assert listed("--untagged") == [second]
    assert listed("--tag-prefix", "v") == [first]
    assert listed("--all", "--limit", "2") == [third, second]
    table = world.done("images", "list", app, "--all").lines
    assert table[0] == "DIGEST TAGS SIZE PUSHED LAST PULLED"
    expected = [[third, "w1"], [second, "-"], [first, "v1"]]
    assert [line.split()[:2] for line in table[1:]] == [[short(a), b] for a, b in expected]
    for option in ("--full-digests", "--no-trunc"):
        table = world.done("images", "list", app, "--all", option).lines
        assert [line.split()[:2] for line in table[1:]] == expected
    assert world.done("images", "list", app, "-q").lines == [f"{app}@{third}", f"{app}@{first}"]
    misused = world.run("images", "list", app, "--limit", "0")
    assert misused.status == 2
    assert "argument --limit: a number, 1 or more" in misused.err


@pytest.mark.parametrize(
    "written",
    [
        *("{app}:v1", "acme/{app}:v1", "{host}/acme/{app}:v1", "{app}@{digest}", "{app}@{id}"),
        *("{app}@{digest:.13}", "{app}@{short}"),
    ],
)
def test_an_image_is_found_as_people_write_it(world: World, app: str, written: str) -> None:
    digest = world.push(app, "v1")
    (row,) = world.read("images", "list", app)
    shown = {
        "app": app,
        "host": world.host,
        "digest": digest,
        "id": row["id"],
        "short": short(digest),
    }
    assert world.read("images", "show", written.format(**shown)) == row


def test_an_image_is_shown_field_by_field(world: World, app: str) -> None:
    digest = world.push(app, "v1")
    lines = world.done("images", "show", f"{app}:other@{digest}").lines  # the digest counts
    assert {f"digest {digest}", "tags v1", "is_index no", "last_pulled_at -"} <= set(lines)


def test_a_manifest_is_printed_byte_by_byte_or_as_its_parts(world: World, app: str) -> None:
    registry = world.registry
    child = registry.push_image(f"acme/{app}")
    platform = {"os": "linux", "architecture": "arm64", "variant": "v8"}
    listed = {**child.descriptor, "platform": platform}
    fields = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [listed]}
    index = document(fields, OCI_INDEX)
    registry.push_manifest(f"acme/{app}", index, "v1")
    printed = world.done("images", "manifest", f"{app}:v1", *JSON).out
    assert f"sha256:{hashlib.sha256(printed).hexdigest()}" == index.digest
    assert world.done("images", "manifest", f"{app}:v1").lines == [
        "PART PLATFORM SIZE DIGEST MEDIA TYPE",
        f"manifest linux/arm64/v8 {len(child.body)} B {short(child.digest)} {OCI_MANIFEST}",
    ]
    parts = world.done("images", "manifest", f"{app}@{child.digest}").lines
    assert [line.split()[0] for line in parts] == ["PART", "config", "layer"]


def test_storage_says_what_deleting_would_free(world: World, app: str) -> None:
    world.push(app, "v1")
    size = world.read("images", "show", f"{app}:v1")["size_bytes"]
    assert world.read("images", "storage", f"{app}:v1")["freed_bytes"] == size
    assert world.read("repositories", "storage", app)["exclusive_bytes"] == size
    assert f"freed_bytes {size} B" in world.done("images", "storage", f"{app}:v1").lines


def test_referrers_are_a_tree(world: World, app: str) -> None:
    registry, name = world.registry, f"acme/{app}"
    subject = registry.push_image(name, "v1")
    empty = registry.push_blob(name, config())

    def refer(to: Content, kind: str) -> str:
        manifest = image_manifest(empty, **subject_of(to), artifactType=kind)
        pushed.append(registry.push_manifest(name, manifest))
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


def test_pins_hold_an_image_until_they_are_taken_away(world: World, app: str) -> None:
    digest = world.push(app, "v1")
    pinned = world.done("images", "pin", f"{app}:v1", "production", "--for", "30d")
    assert pinned.text.startswith(f"Pinned {app}:v1 as production until 20")
    pin = world.read(
        "images", "pin", f"{app}:v1", "staging", "--expires-at", "2100-01-01T00:00:00Z"
    )
    assert pin["expires_at"].startswith("2100-01-01T00:00:00")
    assert world.done("images", "pin", f"{app}:v1", "test").text == (
        f"Pinned {app}:v1 as test until it is unpinned\n"
    )
    pins = world.read("images", "pins", f"{app}:v1")
    assert [each["name"] for each in pins] == ["production", "staging", "test"]
    assert world.done("images", "pins", f"{app}:v1").lines[3].startswith("test - crn:iam:")
    held = world.run("images", "delete", f"{app}@{digest}")
    hint = "entrepot: --force deletes what is pinned or listed by an index, too\n"
    assert (held.status, held.err) == (1, f"entrepot: 1 of 1 items were refused\n{hint}")
    words = "CONFLICT: the image is pinned; remove its pins, or force "
    words += "(pins: production, staging, test)"
    assert held.lines[1] == f"{short(digest)} refused {words}"
    unpinned = world.done("images", "unpin", f"{app}:v1", "test")
    assert unpinned.text == f"Unpinned {app}:v1: test\n"
    assert world.told("images", "unpin", f"{app}:v1", "test")[0] == 3
    world.done("images", "delete", f"{app}@{digest}", "--force")
    for span in ("999999w", "0d"):
        misused = world.run("images", "pin", f"{app}:v1", "x", "--for", span)
        assert misused.status == 2
        assert "is not between 1m and 36500d" in misused.err
    misused = world.run("images", "pin", f"{app}:v1", "x", "--for", "soon")
    assert misused.status == 2
    assert "'soon' is no span like 90m, 12h, 30d or 4w" in misused.err
    misused = world.run("images", "pin", f"{app}:v1", "prod/eu-1")
    assert misused.status == 2
    assert "'prod/eu-1' has a slash; write 'prod.eu-1'" in misused.err


# deleting and restoring


def test_of_many_items_each_has_its_outcome(world: World, app: str) -> None:
    first, second = world.push(app, "v1"), world.push(app, "v2")
    (row,) = world.read("images", "list", app, "--tag-prefix", "v1")
    items = (row["id"], "v1", "v2", "v3", NOBODY)
    ended = world.run("images", "delete", app, *items)
    assert (ended.status, ended.err) == (1, "entrepot: 2 of 4 items were refused\n")
    heading, *done, no_image, no_tag = ended.lines
    assert heading == "ITEM OUTCOME DETAIL"
    assert done == [
        f"{short(first)} deleted with its tags: v1",
        f"v2 deleted its image stays: {short(second)}",
    ]
    assert no_image.startswith(f"{short(NOBODY)} refused NOT_FOUND: ")
    assert no_tag.startswith("v3 refused NOT_FOUND: ")
    assert world.read("images", "delete", f"{app}@{second}") == {
        "deleted": [{"digest": second, "tags": []}],
        "failures": [],
    }
    deleted = world.read("images", "deleted", app)
    assert [(each["digest"], each["tags"]) for each in deleted] == [(second, []), (first, ["v1"])]
    assert [line.split()[0] for line in world.done("images", "deleted", app).lines[1:]] == [
        short(second),
        short(first),
    ]
    restored = world.run("images", "restore", f"{app}@{first}", short(second), NOBODY)
    assert restored.status == 1
    assert restored.lines[1:3] == [
        f"{short(first)} restored with its tags: v1",
        f"{short(second)} restored without tags",
    ]
    assert restored.lines[3].startswith(f"{short(NOBODY)} refused NOT_FOUND: ")
    none = "no deleted image has a digest that begins with 000000000000; "
    assert world.told("images", "restore", app, short(NOBODY)) == (
        3,
        f"{none}'entrepot images deleted' lists those that can be restored",
    )


def test_a_child_is_refused_with_the_index_that_needs_it(world: World, app: str) -> None:
    registry, name = world.registry, f"acme/{app}"
    child = registry.push_image(name)
    index = registry.push_manifest(name, image_index([child]), "v1")
    ended = world.run("images", "delete", app, child.digest, "--full-digests")
    assert ended.status == 1
    assert ended.lines[1].startswith(f"{child.digest} refused CONFLICT: ")
    assert ended.lines[1].endswith(f"delete the index first, or force (in: {index.digest})")
    assert ended.err.endswith("--force deletes what is pinned or listed by an index, too\n")


def test_a_child_goes_by_force_and_the_index_is_told(world: World, app: str) -> None:
    registry, name = world.registry, f"acme/{app}"
    child, other = registry.push_image(name, "arm"), registry.push_image(name)
    index = registry.push_manifest(name, image_index([child, other]), "v1")
    ended = world.done("images", "delete", app, child.digest, "--force", "--full-digests")
    assert ended.lines[1] == (
        f"{child.digest} deleted with its tags: arm; lacking now in {index.digest} (v1)"
    )
    world.done("images", "restore", f"{app}@{child.digest}")
    assert world.run("images", "delete", app, child.digest).status == 1


def test_items_are_named_by_what_lists_print(world: World, app: str) -> None:
    first, second, third = (world.push(app, tag) for tag in ("v1", None, None))
    names = world.done("images", "list", app, "--untagged", "-q").lines
    assert names == [f"{app}@{third}", f"{app}@{second}"]
    deleted = world.read("images", "delete", *names)["deleted"]
    assert {each["digest"] for each in deleted} == {second, third}
    names = world.done("images", "deleted", app, "-q").lines
    assert len(world.read("images", "restore", *names)["restored"]) == 2
    assert world.done("tags", "list", app, "-q").lines == [f"{app}:v1"]
    # A tag that looks like a digest is a tag; what is no tag may be a short digest.
    tag = short(second)
    world.done("tags", "set", f"{app}:{tag}", first)
    deleted = world.read("images", "delete", app, tag, short(third))["deleted"]
    assert deleted == [{"digest": third, "tags": []}, {"digest": first, "tags": [tag]}]
    assert world.read("images", "delete", app, f"sha256:{tag}")["deleted"][0]["digest"] == second
    world.done("tags", "delete", f"{app}:v1", f"{app}:v1")
    assert world.told("tags", "delete", f"{app}:v1", "other:v1")[0] == 2
    status, words = world.told("images", "show", f"{app}@{tag}")
    assert (status, words.partition(":")[0]) == (3, "NOT_FOUND")


def test_more_items_than_a_request_takes(world: World, app: str) -> None:
    registry, name = world.registry, f"acme/{app}"
    empty = registry.push_blob(name, config())
    children = [
        registry.push_manifest(name, image_manifest(empty, annotations={"n": str(number)}))
        for number in range(101)
    ]
    index = registry.push_manifest(name, image_index(children[:1]))
    tagged = [f"t{number}" for number in range(101)]
    for start in range(0, 101, 50):
        registry.put_manifest(name, index, tags=tagged[start : start + 50])
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


def test_what_is_no_image_is_told_before_anything_is_asked(world: World) -> None:
    for reference, words in {
        "app": "which image of app? write REPO:TAG or REPO@DIGEST",
        "app:": "no tag follows the colon of 'app:'",
        "app@sha256:12": "what follows the @ is no digest: 'sha256:12'; write six hex digits of "
        "it or more, in lower case",
        "app:.x": "'.x' is no tag: 1 to 128 letters, digits, '_', '.' and '-', "
        "not beginning with '.' or '-'",
    }.items():
        assert world.told("images", "show", reference) == (2, words)
    assert world.told("images", "delete", "app")[0] == 2
    assert world.told("images", "restore", "app")[0] == 2
    assert world.told("images", "restore", "app:v1")[0] == 2


# what a shell offers


def test_names_of_repositories_and_tags_are_offered(world: World, app: str) -> None:
    world.push(app, "v1")
    world.push(app, "v2")
    offer = "__complete"
    assert world.done(offer, "repository", app[:12]).lines == [app]
    assert world.done(offer, "image", app[:12]).lines == [f"{app}:v1", f"{app}:v2"]
    assert world.done(offer, "image", f"{app}:v2").lines == [f"{app}:v2"]
    assert world.done(offer, "service-account", "adm").lines == ["admin"]
    assert world.done(offer, "role", "x").lines == []


@pytest.mark.parametrize("kind", ["repository", "image", "person"])
def test_nothing_is_offered_where_nothing_can_be_asked(
    world: World, kind: str, tmp_path: Path
) -> None:
    elsewhere = Home(world.home.folder, {"ENTREPOT_REGISTRY": "http://127.0.0.1:1"})
    for home in (Home(tmp_path), elsewhere):
        ended = world.run("__complete", kind, "a:b", home=home)
        assert (ended.status, ended.out, ended.err) == (0, b"", "")
    assert world.done("__complete", "image", "nobody:").out == b""


# tags


def test_a_tag_from_its_setting_to_its_return(world: World, app: str) -> None:
    first, second = world.push(app, "v1"), world.push(app, "v2")
    target = f"{app}:latest"
    assert world.done("tags", "set", target, "v1").text == f"{target} points to {first}\n"
    assert world.read("tags", "set", target, short(second))["digest"] == second
    assert world.read("tags", "set", target, f"{app}:v1")["digest"] == first
    (row,) = world.read("images", "list", app, "--tag-prefix", "v2")
    assert world.read("tags", "set", target, row["id"])["digest"] == second
    assert world.read("tags", "show", target)["mutable"] is True
    assert f"digest {second}" in world.done("tags", "show", target).lines
    assert [each["name"] for each in world.read("tags", "list", app)] == ["latest", "v1", "v2"]
    assert (
        world.done("tags", "list", app, "--prefix", "v1")
        .lines[1]
        .startswith(f"v1 {short(first)} yes 20")
    )
    history = world.read("tags", "history", target)
    assert [each["action"] for each in history] == ["moved", "moved", "moved", "created"]
    shown = world.done("tags", "history", target).lines[1]
    assert f" moved {short(second)} {short(first)} admin (service account)" in shown
    assert world.done("tags", "delete", target, "v1").lines[1:] == [
        f"latest deleted its image stays: {short(second)}",
        f"v1 deleted its image stays: {short(first)}",
    ]
    assert {each["tag"] for each in world.read("tags", "deleted", app)} == {"latest", "v1"}
    assert {line.split()[0] for line in world.done("tags", "deleted", app).lines[1:]} == {
        *("latest", "v1")
    }
    assert world.done("tags", "restore", target).text == f"{target} points to {second} again\n"
    assert world.read("tags", "restore", f"{app}:v1") == {"name": "v1", "digest": first}


def test_an_immutable_tag_is_told(world: World, app: str) -> None:
    first, second = world.push(app, "v1"), world.push(app, "v2")
    world.done("repositories", "update", app, "--tag-mutability", "immutable")
    status, words = world.told("tags", "set", f"{app}:v1", second)
    assert status == 1
    assert words.startswith("CONFLICT: ")
    ended = world.run("tags", "delete", app, "v1", *JSON)
    assert ended.status == 1
    (failure,) = json.loads(ended.out)["failures"]
    assert (failure["tag"], failure["code"]) == ("v1", "CONFLICT")
    assert world.read("tags", "show", f"{app}:v1")["digest"] == first


def test_a_tag_is_set_if_it_is_where_it_was_seen(world: World, app: str) -> None:
    first, second = world.push(app, "v1"), world.push(app, "v2")
    target = f"{app}:latest"
    status, words = world.told("tags", "set", target, "v1", "--if-current", first)
    assert status == 1
    assert words.startswith("PRECONDITION_FAILED: the tag latest is not ")
    world.done("tags", "set", target, "v1", "--if-absent")
    assert world.told("tags", "set", target, "v2", "--if-absent")[0] == 1
    assert world.told("tags", "set", target, "v2", "--if-current", second)[0] == 1
    assert world.read("tags", "show", target)["digest"] == first
    assert world.read("tags", "set", target, "v2", "--if-current", short(first))["digest"] == second
    misused = world.run("tags", "set", target, "v1", "--if-current", "v2")
    assert misused.status == 2
    assert "'v2' is no digest like sha256:..." in misused.err


def test_a_tag_that_is_set_to_a_deleted_image_is_told_how_to_restore_it(
    world: World, app: str
) -> None:
    world.push(app, "v1")
    gone = world.push(app, None)
    world.done("images", "delete", app, gone)
    for written in (gone, short(gone), f"sha256:{short(gone)}"):
        status, words = world.told("tags", "set", f"{app}:v1", written)
        assert status == 3
        assert words.startswith(f"{app} has no image {written}; if it was deleted, 'entrepot ")
        assert f"'entrepot images restore {app} DIGEST' brings it back" in words


def test_a_tag_that_is_not_there_is_told(world: World, app: str) -> None:
    words = f"there is no tag 'v9' in {app}; 'entrepot tags list {app}' shows those there are"
    for command in (("tags", "show"), ("tags", "history"), ("images", "show")):
        assert world.told(*command, f"{app}:v9") == (3, words)
    assert world.told("tags", "set", f"{app}:v1", "v9") == (3, words)
    assert world.told("tags", "set", f"{app}:v1", "other:v9")[0] == 2
    assert world.told("tags", "list", f"{app}:v1") == (
        2,
        f"a repository is named without tag or digest, not '{app}:v1'",
    )
    assert world.told("tags", "show", app)[0] == 2
    assert world.told("tags", "delete", app)[0] == 2


# who asks, and where


def test_what_a_policy_forbids_is_told_by_its_action(
    world: World, app: str, tmp_path: Path
) -> None:
    digest = world.push(app, "v1")
    home = Home(tmp_path)
    reading = ["registry:DescribeRepositories", "registry:DescribeImages"]
    crn = world.read("repositories", "show", app)["crn"]
    world.sign_in(home, {"effect": "allow", "actions": reading, "resources": [crn]})
    # Only this very name may be asked for, but what stands before it is tried too.
    assert world.run("images", "show", f"acme/{app}:v1", home=home).status == 0
    for arguments, action in {
        ("images", "delete", f"{app}@{digest}"): "registry:DeleteImage",
        ("tags", "set", f"{app}:v2", digest): "registry:PushImage",
        ("repositories", "list"): "registry:DescribeRepositories",
        ("repositories", "show", f"other-{app}"): "registry:DescribeRepositories",
        ("repositories", "create", "mine"): "registry:CreateRepository",
        ("settings", "show"): "registry:GetRegistrySettings",
    }.items():
        ended = world.run(*arguments, home=home)
        assert ended.status == 1
        assert f"entrepot: ACCESS_DENIED: you may not do {action} here" in ended.err


def test_who_is_not_signed_in_is_told_what_to_do(world: World, tmp_path: Path) -> None:
    home = Home(tmp_path)
    ended = world.run("images", "list", "app", home=home)
    assert (ended.status, ended.err) == (4, "entrepot: not signed in: run 'entrepot login URL'\n")
    ended = world.run("images", "list", "app", "--registry", world.install.url, home=home)
    assert ended.status == 4
    assert f"run 'entrepot login {world.install.url}'" in ended.err


def test_a_person_at_a_terminal_is_asked_first(world: World, app: str) -> None:
    digest = world.push(app, "v1")
    for answer, status in (("n", 1), ("y", 0)):
        controller, terminal = pty.openpty()
        process = subprocess.Popen(
            program("registry", "images", "delete", f"{app}@{digest}"),
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=terminal,
            env=world.home.environ,
            start_new_session=True,
        )
        os.close(terminal)
        try:
            shown = b""
            while b"[y/N] " not in shown:
                shown += os.read(controller, 1024)
            assert f"Delete images (1) and tags (0) of {app}?".encode() in shown
            os.write(controller, f"{answer}\n".encode())
            printed, _ = process.communicate(timeout=30)
            assert process.returncode == status
        finally:
            process.kill()
            process.wait()
            os.close(controller)
        assert (b" deleted " in printed) == (answer == "y")
    assert world.told("images", "show", f"{app}@{digest}")[0] == 3
