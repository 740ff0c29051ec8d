"""Death between any two steps of unpacking and removing layers: whole or gone, and nothing left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from cloudcore.errors import Unavailable
from registry.image_roots.file_locks import held
from tests.busybox_images import file, gzipped, plain, tar_of
from tests.fault.layer_puller import LAYER
from tests.fault.small_disk import small_disk
from tests.layer_worlds import FIRST, LayerWorld, image_digest, wanted
from tests.live import ROOT
from tests.tools import require_tool

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("uncovered")]

_UNPACKING: Final = "mkdir,mkdirat,mknodat,fchmod,fsync,syncfs,rename,utimensat"
_REMOVING: Final = "unlink,unlinkat,rmdir,rename"
_NAME: Final = LAYER.diff_id.removeprefix("sha256:")
_OTHER: Final = gzipped(tar_of(file("kept")))
_KEEP: Final = """
import pathlib, sys
from registry.image_roots.layer_store import LayerStore
LayerStore(pathlib.Path(sys.argv[1]), None).keep_only(sys.argv[2:])
"""
_CALL: Final = re.compile(r"^(?:\d+ +)?(\w+)\(", re.MULTILINE)


class Step(NamedTuple):
    """A system call of a program: the `nth` of its name."""

    call: str
    nth: int


def _run(options: Sequence[str], command: Sequence[str], given: bytes) -> int:
    ended = subprocess.run(
        [require_tool("strace"), "-f", "-qqq", *options, sys.executable, *command],
        input=given,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        capture_output=True,
        check=False,
    )
    return ended.returncode


def _steps(calls: str, log: Path, command: Sequence[str], given: bytes = b"") -> list[Step]:
    """Run a program; return those of its steps that are of these calls, in order."""
    assert _run(["-e", f"trace={calls}", "-o", str(log)], command, given) == 0
    names = _CALL.findall(log.read_text())
    return [Step(name, names[:at].count(name)) for at, name in enumerate(names, 1)]


def _kill(step: Step, command: Sequence[str], given: bytes = b"") -> None:
    """Run a program that dies at a step."""
    fatal = f"inject={step.call}:signal=KILL:when={step.nth}"
    status = _run(["-e", f"trace={step.call}", "-e", fatal, "-o", "/dev/null"], command, given)
    assert status in (-signal.SIGKILL, 128 + signal.SIGKILL)


def _unpacker(folder: Path) -> list[str]:
    bounds = {"first_uid": FIRST, "most_bytes": 1 << 20, "most_entries": 10}
    task = {"folder": str(folder), **wanted(LAYER)._asdict(), **bounds}
    return ["-m", "registry.image_roots.unpack", json.dumps(task)]


async def test_a_death_at_any_step_of_unpacking_leaves_all_or_nothing(tmp_path: Path) -> None:
    world = LayerWorld(tmp_path / "whole")
    world.store().make_folders()
    steps = _steps(_UNPACKING, tmp_path / "log", _unpacker(world.folder), LAYER.data)
    seen = []
    for number, step in enumerate(steps):
        world = LayerWorld(tmp_path / str(number))
        world.store().make_folders()
        _kill(step, _unpacker(world.folder), LAYER.data)
        is_there = world.layers == [_NAME]
        assert is_there or world.layers == []
        (tree,) = await world.unpack(LAYER)
        assert (tree / "d/a").read_bytes() == b"a" * 5000
        assert sorted(each.name for each in tree.iterdir()) == ["c", "d"]
        assert world.left()["staging"] == []
        assert len(world.opened) == (0 if is_there else 1)
        seen.append(is_there)
    assert seen == [False] * (len(steps) - 1) + [True], "it is there once it was moved"
    assert len(steps) > 12


async def _two_images(folder: Path) -> LayerWorld:
    """Make a store in which the second image is about to be removed."""
    world = LayerWorld(folder)
    await world.unpack(_OTHER, number=1)
    await world.unpack(_OTHER, LAYER, number=2)
    world.store().keep_only([image_digest(1)])
    return world


def _copy_of(world: LayerWorld, folder: Path) -> LayerWorld:
    """Copy a store with owners and devices."""
    subprocess.run(["cp", "-a", world.folder, folder], check=True)
    return LayerWorld(folder)


def _keeper(world: LayerWorld) -> list[str]:
    return ["-c", _KEEP, str(world.folder), image_digest(1)]


async def test_a_death_at_any_step_of_removing_loses_nothing_that_is_used(tmp_path: Path) -> None:
    made = await _two_images(tmp_path / "made")
    world = _copy_of(made, tmp_path / "whole")
    steps = _steps(_REMOVING, tmp_path / "log", _keeper(world))
    kept = _OTHER.diff_id.removeprefix("sha256:")
    assert world.layers == [kept]
    for number, step in enumerate(steps):
        world = _copy_of(made, tmp_path / str(number))
        _kill(step, _keeper(world))
        assert kept in world.layers
        for _ in range(2):
            world.store().keep_only([image_digest(1)])
        assert world.layers == [kept]
        assert world.left()["staging"] == []
        assert (await world.unpack(_OTHER, number=1))[0].is_dir()
        assert world.opened == []
    assert len(steps) > 10


def test_what_a_killed_service_was_unpacking_is_removed(tmp_path: Path) -> None:
    world = LayerWorld(tmp_path / "layers")
    store = world.store()
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fault.layer_puller", str(world.folder)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
    ) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == b"begun\n"
        service.send_signal(signal.SIGKILL)
    with held(world.folder / "locks" / _NAME):
        pass  # its program has ended too: nobody gives it anything
    store.keep_only([])
    store.keep_only([])
    assert world.left() == {"layers": [], "images": [], "staging": [], "locks": []}


async def test_a_killed_program_is_told_and_the_next_unpacks(tmp_path: Path) -> None:
    world = LayerWorld(tmp_path / "layers")

    @asynccontextmanager
    async def opened(digest: str) -> AsyncIterator[AsyncIterator[bytes]]:
        (program,) = _unpackers()
        os.kill(program, signal.SIGKILL)
        async with world.open(digest) as parts:
            yield parts

    world.blobs[wanted(LAYER).blob] = LAYER.data
    with pytest.raises(Unavailable, match="its program ended with -9"):
        await world.store().unpack("account", image_digest(1), [wanted(LAYER)], opened)
    assert await world.unpack(LAYER)


def _unpackers() -> list[int]:
    """Return the programs that this process has started."""
    me = os.getpid()
    children = Path(f"/proc/{me}/task/{me}/children").read_text().split()
    named = b"registry.image_roots.unpack"
    return [int(each) for each in children if named in Path(f"/proc/{each}/cmdline").read_bytes()]


async def test_a_full_disk_is_told_and_takes_back_what_was_written(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8 << 20) as disk:
        world = LayerWorld(disk / "layers")
        big = plain(tar_of(*(file(f"{n}", os.urandom(1 << 20)) for n in range(9))))
        with pytest.raises(Unavailable, match="the disk of this machine is full"):
            await world.unpack(big)
        assert world.layers == world.left()["staging"] == []
        assert await world.unpack(LAYER, number=2)


async def test_some_of_the_disk_is_left_to_others(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64 << 20) as disk:
        world = LayerWorld(disk / "layers")
        parts = [file(f"{number}", b"") for number in range(300)]
        fits = plain(tar_of(file("a", os.urandom(61 << 20)), *parts))
        with pytest.raises(Unavailable, match="the disk of this machine is full"):
            await world.unpack(fits)
        assert world.layers == []
    with small_disk(tmp_path / "files", 8 << 20, files=1000) as disk:
        world = LayerWorld(disk / "layers")
        many = gzipped(tar_of(*(file(f"{number}") for number in range(990))))
        with pytest.raises(Unavailable, match="the disk of this machine is full"):
            await world.unpack(many)
        assert world.layers == []
