"""``entrepot gc``: what waits, runs, and a blob that comes back; against a registry."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from registry.blobstore.sealed.frame_format import sealed_size
from tests.conformance.content import blob
from tests.integration.cli_world import JSON, World, cli_world
from tests.schedules import postpone

DAY = 24 * 3600 * 1_000_000
STAGES = "STAGE BLOBS BYTES WAIT FOR AT MOST"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Return an install of the test's own: runs and garbage are those of its only account.

    No run begins by itself.
    """
    with cli_world(tmp_path) as made:
        postpone(made.install.registry.data, "registry.garbage_collection")
        yield made


def change(world: World, *statements: str) -> None:
    """Change the database below the registry."""
    database = world.install.registry.data / "metadata.db"
    with closing(sqlite3.connect(database, timeout=30)) as raw, raw:
        for statement in statements:
            raw.execute(statement)


def let_a_day_pass(world: World) -> None:
    change(
        world,
        f"UPDATE repository_blobs SET touched_at = touched_at - {DAY}",
        f"UPDATE blob_objects SET condemned_at = condemned_at - {DAY}",
        f"UPDATE quarantined_objects SET swept_at = swept_at - {DAY}",
    )


def recover(world: World, repository: str, digest: str) -> tuple[str, ...]:
    return ("gc", "recover", repository, digest, "--data", str(world.install.registry.data))


def test_a_blob_goes_stage_by_stage_and_comes_back(world: World) -> None:
    size = 4096
    digest = world.registry["acme/app"].push_blob(blob(size)).digest
    assert world.done("gc", "status").lines == [
        STAGES,
        "in grace 1 4.1 kB a manifest 24 h",
        "condemned 0 0 B a push of the same bytes 15 min",
        "in quarantine 0 0 B 'entrepot gc recover' 1 h",
        "No run yet: one begins by itself when something is due",
    ]
    assert world.done("gc", "runs", *JSON).document == []
    nothing = "condemned 0 blobs, swept 0, removed 0, which freed 0 B"
    assert world.done("gc", "run", "--wait").text == f"Succeeded: {nothing}\n"
    let_a_day_pass(world)
    first = world.read("gc", "run", "--wait")
    assert (first["status"], first["unlinked"], first["condemned"]) == ("succeeded", 1, 1)
    assert world.registry["acme/app"].head_blob(digest).status_code == 404
    status, words = world.told(*recover(world, "acme/app", digest))
    assert status == 3
    assert words.startswith(f"no blob {digest} is in quarantine: it was not swept yet (then a push")
    let_a_day_pass(world)
    assert world.read("gc", "run", "--wait")["swept"] == 1
    _, in_grace, condemned, in_quarantine, last = world.done("gc", "status").lines
    assert in_grace.startswith("in grace 0 0 B ")
    assert condemned.startswith("condemned 0 0 B ")
    assert in_quarantine.startswith("in quarantine 1 4.2 kB ")
    assert last.startswith("Last run, 20")
    swept = "condemned 0 blobs, swept 1, removed 0, which freed 0 B"
    assert last.endswith(f": succeeded; {swept}")

    # Beside the running registry.
    assert world.done(*recover(world, "acme/app", digest)).text == (
        f"Recovered {digest}: acme/app keeps it for 24 h, and while a manifest references it\n"
    )
    assert world.registry["acme/app"].get_blob(digest).status_code == 200
    assert world.told(*recover(world, "acme/app", digest))[0] == 3

    for _ in range(3):
        let_a_day_pass(world)
        last_run = world.read("gc", "run", "--wait")
    assert (last_run["removed"], last_run["freed_bytes"]) == (1, sealed_size(size))
    assert world.read("gc", "status")["quarantined_blobs"] == 0
    runs = world.read("gc", "runs")
    assert [each["removed"] for each in runs] == [1, 0, 0, 0, 0, 0]
    heading, newest = world.done("gc", "runs").lines[:2]
    assert heading == (
        "ID STATUS STARTED FINISHED BY UNLINKED CONDEMNED SWEPT KEPT REMOVED FREED FAULT"
    )
    assert newest.startswith(f"{last_run['id']} succeeded 20")
    assert newest.endswith(" 0 0 0 0 1 4.2 kB -")


def test_what_cannot_be_recovered_is_told(world: World) -> None:
    digest = world.registry["acme/app"].push_blob(blob(20_000)).digest
    for _ in range(2):
        let_a_day_pass(world)
        world.done("gc", "run", "--wait")
    (stored,) = (world.install.registry.data / "blobs" / "objects").glob("*/*")
    stored.write_bytes(bytes(stored.stat().st_size))
    status, words = world.told(*recover(world, "acme/app", digest))
    assert status == 1
    assert words.startswith(f"{digest} is damaged and stays in quarantine: ")
    assert world.read("gc", "status")["quarantined_blobs"] == 1
    stored.unlink()
    assert world.told(*recover(world, "acme/app", digest))[0] == 3
    told = world.told(*recover(world, "acme/other", digest))
    assert told == (3, "there is no repository acme/other")
    assert world.told(*recover(world, "app", digest))[0] == 2
    assert world.told(*recover(world, "acme/app", "sha256:1"))[0] == 2
    told = world.told(*recover(world, "acme/app", f"sha512:{'0' * 128}"))
    assert told == (2, "the quarantine knows blobs by their sha256")


def test_a_run_that_fails_says_why(world: World) -> None:
    image = world.push("app", "v1")
    change(world, "UPDATE repository_blobs SET manifest_refs = 0")
    let_a_day_pass(world)
    ended = world.run("gc", "run", "--wait")
    assert ended.status == 1
    assert ended.text.startswith("Failed: condemned 0 blobs, ")
    assert ended.err.startswith("entrepot: the run failed: INDEX_INCOMPLETE: ")
    last = world.done("gc", "status").lines[-1]
    assert ": failed; condemned 0 blobs" in last
    assert "; INDEX_INCOMPLETE: " in last
    started = world.done("gc", "run").text
    run_id = started.removeprefix("Run ").partition(" ")[0]
    assert started.endswith(" is under way; 'entrepot gc status' shows how far it has come\n")
    assert run_id in [each["id"] for each in world.read("gc", "runs")]
    assert world.registry["acme/app"].get_manifest(image).status_code == 200
