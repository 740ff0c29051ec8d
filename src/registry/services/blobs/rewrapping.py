"""Rewrap: let all blobs of a repository be read through the key that it writes under now.

A run is a job. Each step takes some uses (links, and blobs of deleted images) that are read through
another key, wraps the data keys of their objects under the repository's key, and moves the uses, in
one transaction. No stored byte is read. If another key is bound meanwhile, the run begins anew with
that one.

A use whose key is disabled or deleted stays: else who may rewrap could read what the key's owner
has shut.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import msgspec

from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput
from cloudcore.jobs import runs
from cloudcore.jobs.kinds import Done, JobKind, Next, StepFailed
from cloudcore.jobs.queue import Job
from cloudcore.jobs.runs import Progress, Run
from cloudcore.kms.rows import key_to_use
from registry.blobstore.base import DataKey
from registry.errors import KmsKeyDeleted, KmsKeyDisabled
from registry.keys import DataKeys, WrapBroken, WrappedKey
from registry.metadata.blobs import key_moves
from registry.metadata.blobs.key_moves import BlobUse, ObjectWrap
from registry.metadata.blobs.wraps import drop_unused_wraps, hold_enabled, put_wrap
from registry.metadata.collector.collection import lock_objects
from registry.metadata.encryption_bindings import EffectiveKey, effective_key
from registry.metadata.repositories import live as repositories
from registry.services.changes import Change
from registry.services.context import ServiceContext
from registry.services.repositories.names import lock_existing_repository
from registry.services.runs import RegistryRuns

KIND: Final = "registry.rewrap"
COUNTS: Final = ("moved", "plain", "key_disabled", "key_deleted", "unreadable")
"""The counters of a run: links and blobs of deleted images.

*moved* to the key; others stay as they are: *plain* ones have no key; that of others is disabled,
or its deletion is pending (*key_disabled*), or it was deleted (*key_deleted*); *unreadable*: no key
opens the data key.
"""
RUNS: Final = RegistryRuns(
    KIND,
    words="rewrap",
    type="rewrap-run",
    action="registry:RewrapRepository",
    counts=COUNTS,
    deletions=("moved",),
    kept_days=90,
)
PORTION: Final = 100
"""Uses that one transaction moves."""

_CLOSED: Final = (WrapBroken, KmsKeyDeleted, KmsKeyDisabled)
"""Why a wrap does not open."""
_log = logging.getLogger(__name__)


class Cursor(msgspec.Struct, frozen=True):
    """Where a run is: the key it moves to, and the last use that it has looked at."""

    kms_key_id: str
    after: key_moves.Position


class _Batch(NamedTuple):
    """What one step looks at."""

    key: EffectiveKey
    total: int | None
    """Uses that are left, if the run begins with this key; else None."""
    uses: Sequence[BlobUse]
    wraps: Sequence[ObjectWrap]


class _Move(NamedTuple):
    """What one transaction writes: new wraps by object, and the uses that move to them."""

    uses: Sequence[BlobUse]
    wraps: dict[str, bytes]
    counts: Counter[str]
    """Of the uses that stay."""


def rewrap_kind(ctx: ServiceContext) -> JobKind:
    """Return the kind of job that rewraps repositories."""
    return RUNS.job_kind(ctx, partial(run_step, ctx))


def start_rewrap(
    tx: Connection, repository_id: str, run_id: str, change: Change, *, has_keys: bool
) -> Run:
    """Start to rewrap a repository, or return the run that does.

    Raises:
        NotFound: there is no such repository.
        KeyMissing, KeyUnusable: of the key that it writes under.
        InvalidInput: this registry `has_keys` not.

    """
    repository = lock_existing_repository(tx, repository_id)
    if not has_keys:
        raise InvalidInput("this registry stores blobs plain", reason="sealing_disabled")
    key = effective_key(tx, repository.account_id, repository_id)
    key_to_use(tx, repository.account_id, key.kms_key_id)
    scope = repository_id, repository.name
    return RUNS.start(tx, repository.account_id, scope, run_id, change)


async def run_step(ctx: ServiceContext, run: Run, job: Job) -> Next | Done:
    """Wrap the data keys of the next uses, and return the change that moves the uses."""
    if ctx.data_keys is None:
        raise StepFailed("NO_KEYS", "this process has no keys")
    cursor = None if job.cursor is None else msgspec.convert(job.cursor, Cursor)
    batch = await ctx.database.read(_read, run, cursor)
    target = batch.key.kms_key_id
    try:
        move = await _wrap(ctx.data_keys, run, target, batch)
    except (KmsKeyDeleted, KmsKeyDisabled):
        raise _changed() from None  # the next attempt sees which key it was
    total = None if batch.total is None else run.done + batch.total
    progress = Progress({}, run.done + len(batch.uses), total)
    change = partial(_write, run, target, move, progress)
    if len(batch.uses) < PORTION:
        return Done(change)
    return Next(msgspec.to_builtins(Cursor(target, batch.uses[-1].position)), change)


def _read(tx: Connection, run: Run, cursor: Cursor | None) -> _Batch:
    if not repositories.is_live(tx, run.scope_id):
        raise StepFailed("REPOSITORY_DELETED", "the repository is gone", is_permanent=True)
    key = effective_key(tx, run.account_id, run.scope_id)
    if key.state != "enabled":
        words = f"the key that the repository writes under is not enabled but {key.state}"
        raise StepFailed("KEY_NOT_USABLE", words, is_permanent=True)
    is_new = cursor is None or cursor.kms_key_id != key.kms_key_id
    after = key_moves.FIRST if cursor is None or is_new else cursor.after
    at = (run.scope_id, key.kms_key_id)
    uses = key_moves.uses_elsewhere(tx, *at, after, PORTION)
    objects = sorted({use.object_id for use in uses})
    wraps = key_moves.usable_wraps(tx, run.account_id, objects)
    return _Batch(key, key_moves.count_elsewhere(tx, *at) if is_new else None, uses, wraps)


async def _wrap(data_keys: DataKeys, run: Run, target: str, batch: _Batch) -> _Move:
    """Wrap the data keys of the objects whose uses can move.

    A wrap that is there already is made anew: it may not open, and the one that does may go.
    """
    usable = [use for use in batch.uses if _obstacle(use) is None]
    opened = await _open_each(data_keys, run.account_id, _wraps_by_object(usable, batch.wraps))
    stored = {use.object_id: use.stored_id for use in usable if use.object_id in opened}
    wrapped = await data_keys.wrap_all(
        run.account_id, target, [(stored[each], opened[each]) for each in stored]
    )
    counts = Counter(filter(None, map(_obstacle, batch.uses)))
    closed = {use.object_id: use.digest for use in usable if use.object_id not in opened}
    for digest in closed.values():
        _log.error("no key opens the data key of blob %s", digest)
    movable = [use for use in usable if use.object_id in opened]
    if closed:
        counts["unreadable"] = len(usable) - len(movable)
    return _Move(movable, dict(zip(stored, wrapped, strict=True)), counts)


def _obstacle(use: BlobUse) -> str | None:
    """Return why a use cannot move, as a name of `COUNTS`, by what its row says; or None."""
    if use.kms_key_id is None:
        return "plain"
    if use.key_state == "enabled":
        return None
    return "key_deleted" if use.key_state == "deleted" else "key_disabled"


def _wraps_by_object(
    uses: Sequence[BlobUse], wraps: Sequence[ObjectWrap]
) -> dict[str, list[WrappedKey]]:
    """Return the wraps of the objects of uses, the one under a use's own key first."""
    found: dict[str, list[WrappedKey]] = {}
    of_object = {use.object_id: use for use in uses}
    for each in wraps:
        if (use := of_object.get(each.object_id)) is not None:
            wrap = WrappedKey(each.kms_key_id, each.wrapped, use.stored_id)
            known = found.setdefault(each.object_id, [])
            known.insert(0 if each.kms_key_id == use.kms_key_id else len(known), wrap)
    return found


async def _open_each(
    data_keys: DataKeys, account_id: str, wraps: dict[str, list[WrappedKey]]
) -> dict[str, DataKey]:
    """Return the data keys of objects, without those that no wrap opens.

    All are opened at once by their first wrap. If one does not open, each is tried by itself.
    """
    with suppress(*_CLOSED):
        first = [each[0] for each in wraps.values()]
        return dict(zip(wraps, await data_keys.open_all(account_id, first), strict=True))
    opened: dict[str, DataKey] = {}
    for object_id, each in wraps.items():
        for wrap in each:
            with suppress(*_CLOSED):
                opened[object_id] = (await data_keys.open_all(account_id, [wrap]))[0]
                break
    return opened


def _write(run: Run, target: str, move: _Move, progress: Progress, tx: Connection) -> None:
    """Write the wraps and move the uses.

    Raises:
        StepFailed: the repository was deleted; or its key or an object's bytes were changed, and
            the step must be repeated.

    """
    if not repositories.is_live(tx, run.scope_id):
        raise StepFailed("REPOSITORY_DELETED", "the repository is gone", is_permanent=True)
    account_id = run.account_id
    objects = {use.object_id: use.stored_id for use in move.uses}
    lock_objects(tx, account_id, objects)
    used = {use.kms_key_id for use in move.uses if use.kms_key_id is not None}
    is_usable = hold_enabled(tx, account_id, {target, *used})
    if not is_usable or effective_key(tx, account_id, run.scope_id).kms_key_id != target:
        raise _changed()
    there = key_moves.stored_ids(tx, account_id, sorted(objects))
    for object_id in sorted(there):
        if there[object_id] != objects[object_id]:
            raise _changed()
        put_wrap(tx, account_id, object_id, target, move.wraps[object_id])
    uses = [use for use in move.uses if use.object_id in there]
    moved = sum(key_moves.move_use(tx, run.scope_id, use, target) for use in uses)
    drop_unused_wraps(tx, account_id, objects)
    runs.progress_run(tx, run.id, progress._replace(counts={**move.counts, "moved": moved}))


def _changed() -> StepFailed:
    return StepFailed("CHANGED_MEANWHILE", "blobs or keys were changed meanwhile")
