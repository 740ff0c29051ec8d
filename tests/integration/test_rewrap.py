"""A rewrapped repository is read through its new key alone, and no byte was touched."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput, NotFound
from cloudcore.jobs import runs
from cloudcore.jobs.kinds import Done, Next, StepFailed
from cloudcore.jobs.queue import Job
from cloudcore.kms import services as keys
from cloudcore.kms.key import Key
from cloudcore.kms.providers import EmbeddedProvider, Providers
from cloudcore.kms.rules import KeyMissing, KeyUnusable
from cloudcore.kms.vault import Vault
from cloudcore.objects.rewrapping import COUNTS
from registry.metadata.blobs import key_moves
from registry.metadata.blobs.wraps import put_wrap
from registry.oci.digest import digest_of
from registry.services.blobs import rewrapping
from registry.services.data_keys import DataKeys
from registry.services.repositories.details import delete_repository
from tests.databases import on_both_databases
from tests.integration.counting import CountingDatabase
from tests.keyed_registry import KeyedRegistry, open_keyed_registry
from tests.kms_world import KEYRING
from tests.memory_store import MemoryStore


@pytest.fixture
async def keyed(metadata_url: str) -> AsyncIterator[KeyedRegistry]:
    async with open_keyed_registry(metadata_url, MemoryStore()) as keyed:
        yield keyed


async def push(keyed: KeyedRegistry, content: bytes, repository: str = "app") -> str:
    """Push a blob through the plane that seals; return its digest."""
    digest = digest_of(content)
    target = f"/v2/dev/{repository}/blobs/uploads/?digest={digest}"
    assert (await keyed.client.request("POST", target, content)).status == 201
    return str(digest)


async def push_many(keyed: KeyedRegistry, count: int) -> list[str]:
    return sorted([await push(keyed, b"blob %d" % number) for number in range(count)])


async def bind_new(keyed: KeyedRegistry) -> Key:
    """Make a key, and bind the repository to it."""
    new = await keyed.make_key("new")
    await keyed.bind(new)
    return new


async def check_pulls(keyed: KeyedRegistry, count: int, *repositories: str) -> None:
    """Check that the first blobs are pulled from each of these repositories."""
    for number in range(count):
        content = b"blob %d" % number
        for repository in repositories:
            assert await keyed.pull(digest_of(content), repository) == (200, content)


@on_both_databases
async def test_every_blob_is_read_through_the_new_key(keyed: KeyedRegistry) -> None:
    digests = await push_many(keyed, 5)
    old, new = await keyed.platform_key(), await bind_new(keyed)
    assert set((await keyed.link_keys()).values()) == {old.id}
    stored = [await keyed.stored_id(digest) for digest in digests]
    run = await keyed.rewrap()
    assert [await keyed.stored_id(digest) for digest in digests] == stored
    assert (run.state, run.done, run.total) == ("succeeded", 5, 5)
    assert run.counts == dict.fromkeys(COUNTS, 0) | {"moved": 5}
    assert await keyed.link_keys() == dict.fromkeys(digests, new.id)
    await check_pulls(keyed, 5, "app")
    for digest in digests:
        assert await keyed.wraps_of(digest) == [new.id]
    await keyed.kms.disable(new)
    assert (await keyed.pull(digests[0]))[0] == 403


@on_both_databases
async def test_another_repository_keeps_its_own_wrap(keyed: KeyedRegistry) -> None:
    digest = await push(keyed, b"shared", "app")
    await push(keyed, b"shared", "other")
    old, new = await keyed.platform_key(), await bind_new(keyed)
    await keyed.rewrap()
    assert await keyed.wraps_of(digest) == sorted([old.id, new.id])
    await keyed.kms.delete(new)
    assert (await keyed.pull(digest))[0] == 404
    assert await keyed.pull(digest, "other") == (200, b"shared")


async def test_several_portions(keyed: KeyedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrapping, "PORTION", 3)
    digests = await push_many(keyed, 7)
    new = await bind_new(keyed)
    run = await keyed.rewrap()
    assert (run.state, run.done, run.total, run.counts["moved"]) == ("succeeded", 7, 7, 7)
    assert await keyed.link_keys() == dict.fromkeys(digests, new.id)


@on_both_databases
async def test_what_cannot_move_is_counted(keyed: KeyedRegistry) -> None:
    first, second, new = [await keyed.make_key(name) for name in ("first", "second", "new")]
    moved = await push(keyed, b"moved")
    for key, content in ((first, b"disabled"), (second, b"deleted")):
        await keyed.bind(key)
        await push(keyed, content)
    target = f"/v2/dev/app/blobs/uploads/?digest={digest_of(b'plain')}"
    assert (await keyed.registry.client.request("POST", target, b"plain")).status == 201
    await push(keyed, b"disabled", "other")  # readable there; that opens no door here
    await keyed.kms.disable(first)
    await keyed.kms.delete(second)
    await keyed.bind(new)
    run = await keyed.rewrap()
    assert (run.state, run.done, run.total) == ("succeeded", 4, 4)
    one_each = dict.fromkeys(("moved", "plain", "key_disabled", "key_deleted"), 1)
    assert run.counts == one_each | {"unreadable": 0}
    assert await keyed.pull(moved) == (200, b"moved")
    assert (await keyed.pull(digest_of(b"disabled")))[0] == 403
    assert (await keyed.pull(digest_of(b"deleted")))[0] == 404


async def test_a_broken_wrap_is_passed_by(keyed: KeyedRegistry) -> None:
    """The data key is opened through another key; without one, the blob stays and is counted."""
    old, new = await keyed.make_key("old"), await keyed.make_key("new")
    await keyed.make_repository("app")
    await keyed.bind(old)
    shared, lost = await push(keyed, b"shared"), await push(keyed, b"lost")
    await push(keyed, b"shared", "other")
    for digest in (shared, lost):
        object_id = await keyed.object_id(digest)
        await keyed.database.write(put_wrap, keyed.account_id, object_id, old.id, b"\1" * 80)
    await keyed.bind(new)
    run = await keyed.rewrap()
    assert (run.counts["moved"], run.counts["unreadable"]) == (1, 1)
    assert await keyed.pull(shared) == (200, b"shared")


async def test_a_broken_wrap_under_the_new_key_is_made_anew(keyed: KeyedRegistry) -> None:
    new = await keyed.make_key("new")
    digest = await push(keyed, b"shared")
    await keyed.make_repository("other")
    await keyed.bind(new, "other")
    await push(keyed, b"shared", "other")
    object_id = await keyed.object_id(digest)
    await keyed.database.write(put_wrap, keyed.account_id, object_id, new.id, b"\1" * 80)
    await keyed.bind(new)
    await keyed.rewrap()
    assert await keyed.wraps_of(digest) == [new.id]
    assert await keyed.pull(digest) == (200, b"shared")


def job_at(cursor: Any) -> Job:  # noqa: ANN401 - of any kind of job
    """Return a job that has come to this cursor."""
    return Job(**{**dict.fromkeys(Job._fields), "cursor": cursor})


async def _steps(
    keyed: KeyedRegistry, between: Callable[[int], Awaitable[None]]
) -> tuple[list[StepFailed], runs.Run]:
    """Carry out a run step by step; call `between` after a step was prepared, before its commit."""
    run = await keyed.start_rewrap()
    refused: list[StepFailed] = []
    cursor: Any = None
    for number in range(50):
        run = await keyed.run(run)
        outcome = await rewrapping.run_step(keyed.ctx, run, job_at(cursor))
        await between(number)
        assert outcome.change is not None
        try:
            await keyed.database.write(outcome.change)
        except StepFailed as error:
            refused.append(error)
            continue
        if isinstance(outcome, Done):
            return refused, await keyed.run(run)
        assert isinstance(outcome, Next)
        cursor = outcome.cursor
    raise AssertionError("the run does not end")


@on_both_databases
async def test_a_binding_that_changes_meanwhile_counts(
    keyed: KeyedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrapping, "PORTION", 3)
    digests = await push_many(keyed, 7)
    first, second = await keyed.make_key("first"), await keyed.make_key("second")
    await keyed.bind(first)

    async def between(number: int) -> None:
        if number == 1:
            await keyed.bind(second)

    refused, run = await _steps(keyed, between)
    assert [each.is_permanent for each in refused] == [False]
    assert await keyed.link_keys() == dict.fromkeys(digests, second.id)
    assert (run.done, run.total) == (10, 10)
    for digest in digests:
        assert await keyed.wraps_of(digest) == [second.id]


Disturbance = Callable[[KeyedRegistry, list[str]], Awaitable[None]]


async def push_again(keyed: KeyedRegistry, _digests: list[str]) -> None:
    await push(keyed, b"blob 1")


async def delete(keyed: KeyedRegistry, digests: list[str]) -> None:
    for digest in digests:
        gone = await keyed.client.request("DELETE", f"/v2/dev/app/blobs/{digest}")
        assert gone.status == 202


async def replace_bytes(keyed: KeyedRegistry, digests: list[str]) -> None:
    await keyed.mark_damaged(digests[0])
    for number in range(4):
        await push(keyed, b"blob %d" % number, "other")


async def mount(keyed: KeyedRegistry, digests: list[str]) -> None:
    for digest in digests:
        target = f"/v2/dev/other/blobs/uploads/?mount={digest}&from=dev/app"
        assert (await keyed.client.request("POST", target)).status == 201


async def pull(keyed: KeyedRegistry, digests: list[str]) -> None:
    for digest in digests:
        assert (await keyed.pull(digest))[0] == 200


def once(keyed: KeyedRegistry, disturb: Disturbance, digests: list[str]) -> Callable[[int], Any]:
    async def between(number: int) -> None:
        if number == 0:
            await disturb(keyed, digests)

    return between


@on_both_databases
@pytest.mark.parametrize("disturb", [push_again, delete, replace_bytes, mount, pull])
async def test_what_comes_between_read_and_write(
    keyed: KeyedRegistry, disturb: Disturbance
) -> None:
    digests = await push_many(keyed, 4)
    new = await bind_new(keyed)
    refused, _ = await _steps(keyed, once(keyed, disturb, digests))
    assert len(refused) == (disturb is replace_bytes)
    if disturb is delete:
        assert await keyed.link_keys() == {}
        return
    assert await keyed.link_keys() == dict.fromkeys(digests, new.id)
    repositories = ["app", "other"] if disturb in (mount, replace_bytes) else ["app"]
    await check_pulls(keyed, 4, *repositories)


@on_both_databases
async def test_a_key_that_is_disabled_between_reading_and_writing(keyed: KeyedRegistry) -> None:
    digests = await push_many(keyed, 4)
    old, new = await keyed.platform_key(), await bind_new(keyed)

    async def disable(_keyed: KeyedRegistry, _digests: list[str]) -> None:
        await keyed.kms.disable(new)

    with pytest.raises(StepFailed, match="not enabled"):
        await _steps(keyed, once(keyed, disable, digests))
    assert await keyed.link_keys() == dict.fromkeys(digests, old.id)


@on_both_databases
async def test_what_is_shut_between_reading_and_writing_stays(keyed: KeyedRegistry) -> None:
    old, new = await keyed.make_key("old"), await keyed.make_key("new")
    await keyed.make_repository("app")
    await keyed.bind(old)
    digests = await push_many(keyed, 4)
    await keyed.bind(new)

    async def disable(_keyed: KeyedRegistry, _digests: list[str]) -> None:
        await keyed.kms.disable(old)

    refused, run = await _steps(keyed, once(keyed, disable, digests))
    assert len(refused) == 1
    assert run.counts["key_disabled"] == 4
    assert await keyed.link_keys() == dict.fromkeys(digests, old.id)


@on_both_databases
async def test_pushes_and_a_run_beside_each_other(
    keyed: KeyedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrapping, "PORTION", 2)
    digests = await push_many(keyed, 12)
    new = await bind_new(keyed)

    async def work(begin: int) -> None:
        for number in range(begin, 12, 3):
            await push(keyed, b"blob %d" % number)
            await push(keyed, b"blob %d" % number, "other")

    run, *_ = await asyncio.gather(keyed.rewrap(), work(0), work(1), work(2))
    assert run.state == "succeeded"
    assert await keyed.link_keys() == dict.fromkeys(digests, new.id)
    await check_pulls(keyed, 12, "app", "other")


@on_both_databases
async def test_blobs_of_deleted_images_move_too(keyed: KeyedRegistry) -> None:
    old, new = await keyed.platform_key(), await keyed.make_key("new")
    image, layer = await keyed.push_image(b"layer")
    deleted = await keyed.client.request("DELETE", f"/v2/dev/app/manifests/{image}")
    assert deleted.status == 202
    gone = await keyed.client.request("DELETE", f"/v2/dev/app/blobs/{layer}")
    assert gone.status == 202
    assert await keyed.wraps_of(layer) == [old.id]
    await keyed.bind(new)
    run = await keyed.rewrap()
    assert run.state == "succeeded"
    assert await keyed.wraps_of(layer) == [new.id]
    assert await keyed.tombstone_keys() == {new.id}


async def test_a_run_that_cannot_start(keyed: KeyedRegistry) -> None:
    await push(keyed, b"blob")
    scope, change = await keyed.repository_id(), keyed.ctx.change_by("someone")

    async def start(scope: str, *, has_keys: bool = True) -> runs.Run:
        return await keyed.database.write(
            rewrapping.start_rewrap, scope, keyed.ctx.new_id(), change, has_keys=has_keys
        )

    with pytest.raises(NotFound):
        await start(keyed.ctx.new_id())
    with pytest.raises(InvalidInput) as refused:
        await start(scope, has_keys=False)
    assert refused.value.params["reason"] == "sealing_disabled"
    key = await bind_new(keyed)
    await keyed.kms.disable(key)
    with pytest.raises(KeyUnusable):
        await start(scope)
    await keyed.kms.delete(key)
    with pytest.raises(KeyMissing):
        await start(scope)


@on_both_databases
async def test_a_run_ends_with_its_repository_and_its_key(keyed: KeyedRegistry) -> None:
    await push(keyed, b"blob")
    key = await bind_new(keyed)

    def disable(tx: Connection) -> None:
        keys.disable_key(tx, key, keyed.ctx.clock())

    run = await keyed.start_rewrap()
    joined = await keyed.start_rewrap()
    assert joined.id == run.id
    await keyed.database.write(disable)
    ended = await keyed.finish(run)
    assert (ended.state, ended.fault) == (
        "failed",
        "KEY_NOT_USABLE: the key that the repository writes under is not enabled but disabled",
    )


async def test_a_run_does_not_go_on_in_a_repository_that_was_deleted(keyed: KeyedRegistry) -> None:
    digest = await push(keyed, b"blob")
    before = await keyed.wraps_of(digest)
    await bind_new(keyed)
    run = await keyed.start_rewrap()
    of = keyed.account_id, run.scope_id, keyed.ctx.change_by("someone")
    await keyed.database.write(delete_repository, *of, force=True)
    ended = await keyed.finish(run)
    fault = "REPOSITORY_DELETED: the repository is gone"
    assert (ended.state, ended.fault) == ("failed", fault)
    assert await keyed.wraps_of(digest) == before


async def test_a_portion_is_opened_and_wrapped_in_two_reads(keyed: KeyedRegistry) -> None:
    await push_many(keyed, 6)
    await bind_new(keyed)
    counting = CountingDatabase(keyed.database)
    providers = Providers(EmbeddedProvider(KEYRING))
    vault = Vault(counting, providers, keyed.ctx.clock)
    ctx = replace(keyed.ctx, data_keys=DataKeys(vault))
    run = await keyed.start_rewrap()
    outcome = await rewrapping.run_step(ctx, run, job_at(None))
    assert outcome.change is not None
    await keyed.database.write(outcome.change)
    assert (await keyed.run(run)).counts["moved"] == 6
    assert counting.reads == 2


async def test_a_cursor_of_an_older_release_is_understood(keyed: KeyedRegistry) -> None:
    digests = await push_many(keyed, 4)
    new = await bind_new(keyed)
    run = await keyed.start_rewrap()
    after = {"kms_key_id": new.id, "after": ["", digests[1]]}
    outcome = await rewrapping.run_step(keyed.ctx, run, job_at(after))
    assert outcome.change is not None
    await keyed.database.write(outcome.change)
    moved = [digest for digest, key in (await keyed.link_keys()).items() if key == new.id]
    assert sorted(moved) == digests[2:]


@on_both_databases
async def test_several_portions_of_deleted_images(
    keyed: KeyedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrapping, "PORTION", 2)
    for number in range(4):
        image, _ = await keyed.push_image(b"layer %d" % number)
        gone = await keyed.client.request("DELETE", f"/v2/dev/app/manifests/{image}")
        assert gone.status == 202
        if number % 2:  # two by two at one moment
            keyed.registry.clock.advance(1)
    new = await bind_new(keyed)
    run = await keyed.rewrap()
    assert (run.state, run.counts["moved"], run.done) == ("succeeded", run.total, run.total)
    assert await keyed.tombstone_keys() == {new.id}
    assert set((await keyed.link_keys()).values()) == {new.id}


def test_deleted_images_are_read_in_the_order_of_an_index(sqlite_database: str) -> None:
    """What a portion costs does not grow with the deleted images of its repository."""
    values = dict.fromkeys(
        ("kms_key_id", "repository_id", "after_image", "after_deletion", "after", "limit"), 1
    )
    with closing(sqlite3.connect(sqlite_database.removeprefix("sqlite:///"))) as raw:
        explain = f"EXPLAIN QUERY PLAN {key_moves._DELETED.sqlite}"
        plan = [row[3] for row in raw.execute(explain, values)]
    assert plan[0].startswith("SEARCH deleted_manifests USING"), plan
    assert "ix_deleted_manifests_deleted_at (repository_id=? AND (deleted_at,id)>" in plan[0], plan
    assert "USE TEMP B-TREE FOR ORDER BY" not in plan, plan
