"""A backup or restoration that is killed at a step: the one before stays, and the next goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from importlib import import_module
from math import ceil
from typing import Final

import pytest

from registry.backup.files import sha256_of
from registry.blobstore.backups import deletions_held
from tests.fault.deaths import die_at
from tests.integration.backup_world import (
    LATER,
    LAYER,
    Site,
    on_both,
    on_postgresql,
    pulled,
    pushed,
    site,
)

__all__ = ["site"]

pytestmark = pytest.mark.usefixtures("no_settings")

PIECE: Final = 4096
"""Bytes of a dump that are written or read at a time."""
BACKUP: Final = {
    "sqlite": ("taking copy_database 1 after",),
    "postgresql": (
        "postgresql write_catalog 1 after",
        "postgresql CopyProgress 4 before",  # amid the dump
        "postgresql _write 1 after",
    ),
}
TAKEN: Final = (
    "copying copy_file 1 before",
    "copying copy_file 1 after",
    "taking write_manifest 1 before",
    "taking write_manifest 1 after",
    "taking _remove_rest 1 after",
)
RESTORE: Final = {
    "sqlite": ("restoring _restore_database 1 before",),
    "postgresql": (
        "postgresql CopyProgress 4 before",  # pg_restore has not read the list of what there is
        "postgresql feed 1 after",
    ),
}
BEGUN: Final = {
    "sqlite": ("restoring _write_mark 1 after",),
    "postgresql": (
        "restoring _write_mark 1 after",
        "postgresql mark_database 1 before",
        "postgresql mark_database 1 after",
    ),
}
SENT: Final = (
    "copying copy_file 1 before",
    "copying copy_file 2 after",
)
BROUGHT: Final = (
    "restoring _restore_database 1 after",
    "restoring prepare 1 after",
    "restoring renew_generation 1 after",
)


def kill(place: str, command: Callable[[], int]) -> None:
    """Let a process of its own run a command, and kill itself at a place."""
    name, function, number, when = place.split()
    module = import_module(f"registry.backup.{name}")
    call = getattr(module, function)  # a child without it would go on as a second run of the tests
    child = os.fork()
    if child == 0:
        if name == "postgresql":
            module._CHUNK = PIECE  # type: ignore[attr-defined]
        setattr(module, function, die_at(int(number), call, after=when == "after"))
        try:
            command()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), place
    assert os.WTERMSIG(status) == signal.SIGKILL, place


def check_complete(made: Site, place: str) -> None:
    """Check that what the manifest names is there, whole."""
    manifest = made.manifest()
    for name, sha256 in manifest.database.files.items():
        assert sha256_of(made.target / name) == sha256, place
    assert len(made.objects()) >= manifest.objects, place


def kind_of(made: Site) -> str:
    return "postgresql" if made.urls[made.data] else "sqlite"


@on_both
def test_a_backup_that_is_killed_leaves_the_one_before_and_no_hold(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.push_and_back_up()
    first = site.manifest().id
    site.serve(pushed(LATER), site.data)
    for place in (*BACKUP[kind_of(site)], *TAKEN):
        kill(place, site.back_up)
        check_complete(site, place)
        is_written = "write_manifest 1 after" in place or "_remove_rest" in place
        assert (site.manifest().id != first) is is_written, place
        with deletions_held(site.data / "blobs", 0), deletions_held(site.data / "buckets", 0):
            pass
    assert site.back_up() == 0
    files = {"backup.json", "backup.lock", "objects", "pieces"} | set(
        site.manifest().database.files
    )
    assert {each.name for each in site.target.iterdir()} == files
    assert site.restore() == 0
    assert "0 violations, 0 orphans" in capsys.readouterr().out
    site.serve(pulled(LAYER, LATER), site.restored)


@on_both
def test_a_restoration_that_is_killed_serves_nothing_and_goes_on(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.push_and_back_up()
    places = (*BEGUN[kind_of(site)], *SENT, *RESTORE[kind_of(site)], *BROUGHT)
    for place in places:
        kill(place, site.restore)
        assert site.run("serve", data=site.restored) == 2, place
        assert "run the same 'entrepot restore' again" in capsys.readouterr().err, place
    assert site.restore() == 0
    assert "0 violations, 0 orphans" in capsys.readouterr().out
    site.serve(pulled(LAYER), site.restored)


@on_postgresql
def test_what_a_killed_restoration_has_left_running_is_in_nobodys_way(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """``pg_restore`` has all of the dump by then, and may still bring it, or not."""
    site.push_and_back_up()
    dump = site.target / site.manifest().database.file
    kill(f"postgresql CopyProgress {ceil(dump.stat().st_size / PIECE)} before", site.restore)
    assert site.restore() == 0
    assert "0 violations, 0 orphans" in capsys.readouterr().out
    site.serve(pulled(LAYER), site.restored)


@on_postgresql
def test_a_restoration_that_is_killed_at_its_end_is_complete(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.push_and_back_up()
    for place in ("postgresql forget_mark 1 before", "postgresql forget_mark 1 after"):
        kill(place, site.restore)
        assert site.run("serve", data=site.restored) == 2, place
        assert "run the same 'entrepot restore' again" in capsys.readouterr().err, place
    assert site.restore() == 0
    assert site.run("fsck", data=site.restored) == 0
    site.serve(pulled(LAYER), site.restored)
