"""The commands of the pages on backups bring a registry in use back on an empty machine.

Images, keys, buckets and encrypted blobs come from the backup and the root key alone, while others
push, delete and collect.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

from tests.clients.docs_shell import Shell, commands_of, shell, substituted, write_program
from tests.conformance.client import Registry
from tests.conformance.content import OCI_MANIFEST, Content, config, image_manifest
from tests.databases import create_database, drop_database, program_environment
from tests.entrepot import Home, Install
from tests.integration.cli_world import ContainerLogin, World, cli_world
from tests.live import start_registry
from tests.loaded import ENTREPOT, script_line
from tests.postgresql import server_programs

pytestmark = pytest.mark.timeout(300)

AT_ONCE: Final = {
    f"ENTREPOT_GC_{name}_SECONDS": "0" for name in ("GRACE", "CONDEMNED", "QUARANTINE")
}
NOT_RUN: Final = "entrepot serve"
"""Runs until it is stopped; the test starts it."""
SEALED: Final = os.urandom(300_000)
OBJECT: Final = os.urandom(700_000)
NOTE: Final = b"a few bytes, which are in the database"


@contextmanager
def others(world: World) -> Iterator[list[str]]:
    """Push, delete and collect during the block; the list has the images of turns that ended."""
    stopping, first, done = Event(), Event(), []

    def go_on() -> None:
        try:
            while not stopping.is_set():
                world.registry["acme/noise"].push_blob(Content(os.urandom(100_000)))
                digest = world.push("noise")
                world.registry["acme/noise"].delete_manifest(digest).raise_for_status()
                world.done("gc", "run", "--wait")
                done.append(digest)
                first.set()
        finally:
            first.set()

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(go_on)
        first.wait(60)
        try:
            yield done
        finally:
            stopping.set()
        ended.result()


def use(world: World, folder: Path) -> str:
    """Fill an install; return the digest of an image whose blobs are under a key of its own."""
    world.done("keys", "create", "shop")
    world.done("repositories", "create", "sealed", "--kms-key", "shop")
    parts = [world.registry["acme/sealed"].push_blob(each) for each in (config(), Content(SEALED))]
    image = image_manifest(parts[0], parts[1:], OCI_MANIFEST, "sha256")
    digest = world.registry["acme/sealed"].push_manifest(image).digest
    world.push("app", "1")
    world.done("buckets", "create", "photos")
    for key, content in (("large", OBJECT), ("note", NOTE)):
        (folder / key).write_bytes(content)
        world.done("buckets", "put", "photos", key, str(folder / key))
    return digest


def check(world: World, digest: str, folder: Path) -> None:
    """Check that all of that is here, byte for byte."""
    registry = world.registry
    assert registry["acme/sealed"].get_blob(Content(SEALED).digest).content == SEALED
    for repository, reference in (("acme/sealed", digest), ("acme/app", "1")):
        found = registry[repository].get_manifest(reference).raise_for_status().json()
        for part in (found["config"], *found["layers"]):
            blob = registry[repository].get_blob(part["digest"])
            assert Content(blob.raise_for_status().content).digest == part["digest"]
    for key, content in (("large", OBJECT), ("note", NOTE)):
        world.done("buckets", "get", "photos", key, str(folder / "back"))
        assert (folder / "back").read_bytes() == content
    assert world.read("keys", "list")


@contextmanager
def served_again(world: World, data: Path, **environment: str) -> Iterator[World]:
    """Serve a restored folder; the access key of before signs in."""
    registry = start_registry(data, command="serve", env=environment)
    try:
        old = world.install
        install = Install(registry, registry.url, "", old.access_key_id, old.secret)
        home = Home(data.parent / "home-again")
        signed_in = install.sign_in_by_key(home)
        assert signed_in.returncode == 0, signed_in.stderr
        token = home.stored()[install.url]["token"]["access_token"]
        login = ContainerLogin(install.url, token)
        with httpx.Client(base_url=install.url, auth=login, timeout=30) as http:
            yield World(install, home, Registry(http, "acme", only_standard=False))
    finally:
        stopped = registry.stop()
    assert stopped == 0, registry.log


@contextmanager
def operator(folder: Path) -> Iterator[Shell]:
    """Start a shell of the operator, with the programs of PostgreSQL on the way."""
    programs = folder / "programs"
    write_program(programs, "entrepot", script_line(ENTREPOT))
    environment = {
        name: text
        for name, text in program_environment().items()
        if not name.startswith("ENTREPOT_")
    }
    with suppress(pytest.skip.Exception):  # SQLite needs none
        environment["PATH"] = f"{server_programs()}{os.pathsep}{environment['PATH']}"
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
    with shell(folder, environment) as started:
        yield started


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def page(request: pytest.FixtureRequest) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Return a page, the URL of its install, and what its words mean here."""
    if request.param == "sqlite":
        yield "docs/how-to/backup.md", "", []
        return
    url = create_database(request.getfixturevalue("postgresql_url"), "template0")
    name = urlsplit(url).path.removeprefix("/")
    server = url.removesuffix(f"/{name}")
    yield (
        "docs/how-to/backup-postgresql.md",
        url,
        [
            ("postgresql://entrepot@db.example.com/entrepot", url),
            ("postgresql://entrepot@db2.example.com", server),
            ("entrepot2", f"{name}_2"),
        ],
    )
    drop_database(f"{url}_2")


def test_a_registry_in_use_comes_back_on_an_empty_machine(
    page: tuple[str, str, list[tuple[str, str]]], workspace: Path
) -> None:
    name, url, words = page
    restored, safe = workspace / "restored", workspace / "root.key"
    words = [
        *words,
        ("/backup/entrepot", str(workspace / "backup")),
        ("/srv/entrepot", str(restored)),
        ("/safe/root.key", str(safe)),
    ]
    commands = [substituted(each, words) for each in commands_of(name)]
    begins = next(
        n for n, each in enumerate(commands) if each.startswith(("createdb", "entrepot restore"))
    )
    settings = {"ENTREPOT_DATABASE_URL": url} if url else {}
    with operator(workspace) as started:
        with cli_world(workspace / "old", **AT_ONCE, **settings) as world:
            started.run(f"export ENTREPOT_DATA={world.install.registry.data}")
            digest = use(world, workspace)
            with others(world) as collected:
                before = len(collected)
                for command in commands[:begins]:
                    started.run(command)
            assert len(collected) > before
            shutil.copy(world.install.registry.data / "root.key", safe)
        shutil.rmtree(workspace / "old" / "data")
        if url:
            drop_database(url)
        started.run("unset ENTREPOT_DATA")
        printed = "".join(
            started.run(each) for each in commands[begins:] if not each.startswith(NOT_RUN)
        )
    assert "0 violations" in printed
    assert "is damaged" not in printed
    if url:
        settings = {"ENTREPOT_DATABASE_URL": f"{url}_2"}
    with served_again(world, restored, **settings) as again:
        check(again, digest, workspace)
