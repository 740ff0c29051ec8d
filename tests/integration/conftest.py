"""What the suites of this folder begin with: databases, and installs and planes over them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from cloudcore.db.base import Database
from cloudcore.iam import passwords
from cloudcore.keyring import create_root_key
from cloudcore.web.envelope import ENVELOPE
from cloudcore.web.openapi import document
from registry.blobstore.disk.store import FilesystemStore
from registry.composition.main import prepare
from registry.settings.settings import Settings
from tests import control_plane, identity_world
from tests.databases import (
    database_url,
    migrated_file,
    migrated_template,
    planted,
    postgresql_database,
    sqlite_database,
)
from tests.integration import (
    billing_world,
    certificates_world,
    mail_world,
    network_world,
    notifications_world,
    oauth_world,
    s3_client,
)
from tests.integration.console_shop import Shop, open_shop
from tests.integration.fills_world import OpenFills, fills_world
from tests.integration.images_world import reader
from tests.integration.lifecycle_world import LifecycleWorld
from tests.integration.mirror_world import CachedWorld, open_cached
from tests.integration.pushing import World, client_of, make_world
from tests.integration.restoration_world import UndoWorld
from tests.integration.s3_client import S3Client
from tests.integration.served_world import Served, open_served, routes_of_the_whole
from tests.jobs import effects_table
from tests.passwords import CHEAP
from tests.postgresql import postgresql_url
from tests.storage_world import StorageWorld, open_storage_world
from tests.tenants import Install, open_install

__all__ = [
    "database_url",
    "effects_table",
    "migrated_file",
    "migrated_template",
    "postgresql_database",
    "postgresql_url",
    "reader",
    "sqlite_database",
]


@pytest.fixture
async def install(metadata_url: str) -> AsyncIterator[Install]:
    """Return an install of the registry in this process, with nobody in it."""
    async with open_install(metadata_url) as install:
        yield install


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    """Return the folder of the blobs in `store`."""
    return tmp_path / "blobs"


@pytest.fixture
def store(blobs: Path) -> Iterator[FilesystemStore]:
    """Return a store of blobs in files."""
    with closing(FilesystemStore(blobs)) as filesystem:
        yield filesystem


@pytest.fixture
async def client(install: Install) -> httpx.AsyncClient:
    """Return a connection to the control plane as the account ``acme``, with every right."""
    return await client_of(install, "acme")


@pytest.fixture
async def world(install: Install) -> World:
    """Return a repository of the account ``acme``, reached over both planes."""
    return await make_world(install)


@pytest.fixture
async def undo(world: World, metadata_url: str) -> AsyncIterator[UndoWorld]:
    """Return a repository for deletions and restorations; at the end, its counters add up."""
    made = UndoWorld(**vars(world), url=metadata_url)
    yield made
    made.check()


@pytest.fixture
async def lifecycle(world: World) -> LifecycleWorld:
    """Return a repository with a lifecycle policy to come, and days that pass."""
    return LifecycleWorld(**vars(world))


@pytest.fixture
async def served(tmp_path: Path, metadata_url: str) -> AsyncIterator[Served]:
    """Return all of ``entrepot serve`` in this process, with two tenants."""
    async with open_served(tmp_path / "data", metadata_url) as served:
        yield served


@pytest.fixture(scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    """Return the console of an install in this process, which the tests of a module share."""
    async with open_shop(tmp_path_factory.mktemp("shop") / "data") as shop:
        yield shop


@pytest.fixture
async def cached(metadata_url: str) -> AsyncIterator[CachedWorld]:
    """Return two workers with a rule of the pull-through cache, and its upstream."""
    async with open_cached(metadata_url, workers=2) as world:
        yield world


@pytest.fixture
def fills(metadata_url: str, tmp_path: Path) -> OpenFills:
    """Return a function that opens workers with an upstream."""
    return partial(fills_world, metadata_url, tmp_path)


@pytest.fixture
async def storage(database: Database, tmp_path: Path) -> AsyncIterator[StorageWorld]:
    """Return the services of buckets, and two accounts that use them."""
    async with open_storage_world(database, tmp_path / "buckets") as made:
        yield made


@pytest.fixture
async def s3(tmp_path: Path, metadata_url: str) -> AsyncIterator[S3Client]:
    """Return an S3 client whose account has a bucket ``bucket``."""
    async with open_served(tmp_path / "data", metadata_url, s3_host=s3_client.HOST) as served:
        client = s3_client.client_of(served, served.acme)
        await client.done("PUT", "/bucket")
        yield client


@pytest.fixture
async def notified(tmp_path: Path, metadata_url: str) -> AsyncIterator[notifications_world.World]:
    """Return a served install, and what subscribers of its topics see."""
    async with notifications_world.open_world(tmp_path / "data", metadata_url) as made:
        yield made


@pytest.fixture
async def mailing(tmp_path: Path, metadata_url: str) -> AsyncIterator[mail_world.World]:
    """Return a served install that sends mail, and a name server."""
    async with mail_world.open_world(tmp_path / "data", metadata_url) as made:
        yield made


@pytest.fixture
async def certified(tmp_path: Path, metadata_url: str) -> AsyncIterator[certificates_world.World]:
    """Return a served install with certificates, and a name server."""
    async with certificates_world.open_world(tmp_path / "data", metadata_url) as made:
        yield made


@pytest.fixture
async def billed(tmp_path: Path, metadata_url: str) -> AsyncIterator[billing_world.World]:
    """Return a served install whose accounts use things, and months that pass."""
    async with billing_world.open_world(tmp_path / "data", metadata_url) as made:
        yield made


@pytest.fixture
async def networked(metadata_url: str) -> AsyncIterator[network_world.World]:
    """Return a control plane of networks with two tenants, and what its driver is told."""
    async with network_world.open_world(metadata_url) as made:
        yield made


@pytest.fixture
def cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a hash take no 250 ms; `tests/unit/test_identity_passwords.py` has the real cost."""
    monkeypatch.setattr(passwords, "COST", CHEAP)


@pytest.fixture
async def identity(metadata_url: str, cheap_passwords: None) -> AsyncIterator[identity_world.World]:
    """Return a control plane of identity with two tenants."""
    async with identity_world.open_world(metadata_url) as world:
        yield world


@pytest.fixture
async def oauth(metadata_url: str, cheap_passwords: None) -> AsyncIterator[oauth_world.World]:
    """Return a control plane of tokens, sessions and the sign-in page."""
    async with oauth_world.open_world(metadata_url) as world:
        yield world


@pytest.fixture
async def plane(metadata_url: str) -> AsyncIterator[control_plane.World]:
    """Return a control plane over the family of things."""
    async with control_plane.open_world(metadata_url) as world:
        yield world


@pytest.fixture(scope="session")
def described(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the OpenAPI document of ``/v1``."""
    settings = Settings(data=planted(tmp_path_factory.mktemp("install") / "data"))
    prepare(settings)
    create_root_key(settings.root_key)
    control = asyncio.run(routes_of_the_whole(settings))
    routes = [route for route in control.routes if route.spec.path.startswith("/v1/")]
    return document(routes, {}, ENVELOPE)
