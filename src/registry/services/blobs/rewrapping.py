"""Rewrap the blobs of a repository under the KMS key that it writes under now.

The uses to move (`cloudcore.objects.rewrapping`) are the repository's links, and the blobs of its
deleted images, that are read through another key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput
from cloudcore.jobs.kinds import Done, JobKind, Next, StepFailed
from cloudcore.jobs.queue import Job
from cloudcore.jobs.runs import Run
from cloudcore.kms.rows import key_to_use
from cloudcore.objects import rewrapping as steps
from cloudcore.objects.rewrapping import COUNTS, UsePage, changed_meanwhile
from cloudcore.objects.wraps import WrappedKey, rewrap
from registry.metadata.blobs import key_moves
from registry.metadata.blobs.key_moves import BlobUse, ObjectWrap
from registry.metadata.blobs.wraps import drop_unused_wraps, hold_enabled, put_wrap
from registry.metadata.collector.collection import lock_objects
from registry.metadata.encryption_bindings import effective_key
from registry.metadata.repositories import repository as repositories
from registry.services.changes import Change
from registry.services.context import ServiceContext
from registry.services.repositories.names import lock_existing_repository
from registry.services.runs import RegistryRuns

KIND: Final = "registry.rewrap"
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
"""The maximum number of uses that one transaction moves."""


class Cursor(msgspec.Struct, frozen=True):
    """The position of a run: the key to which it moves uses, and the last use that it handled."""

    kms_key_id: str
    after: key_moves.UsePosition = key_moves.FIRST


class _WrappedUse(NamedTuple):
    """A use (a link, or a deleted image's blob), with those wraps of its object that may open."""

    blob: BlobUse
    wraps: Sequence[WrappedKey]

    @property
    def stored_id(self) -> str:
        return self.blob.stored_id

    @property
    def obstacle(self) -> str | None:
        if self.blob.kms_key_id is None:
            return "plain"
        if self.blob.key_state == "enabled":
            return None
        return "key_deleted" if self.blob.key_state == "deleted" else "key_disabled"

    def __str__(self) -> str:
        return f"blob {self.blob.digest}"


def rewrap_kind(ctx: ServiceContext) -> JobKind:
    """Return the kind of job that rewraps repositories."""
    return RUNS.job_kind(ctx, partial(run_step, ctx))


def start_rewrap(
    tx: Connection, repository_id: str, run_id: str, change: Change, *, has_keys: bool
) -> Run:
    """Start to rewrap a repository, or return the running run.

    Raises:
        NotFound: there is no such repository.
        KeyMissing, KeyUnusable: the key that the repository writes under is missing or unusable.
        InvalidInput: this registry has no keys (`has_keys` is False).

    """
    repository = lock_existing_repository(tx, repository_id)
    if not has_keys:
        raise InvalidInput("this registry stores blobs plain", reason="sealing_disabled")
    key = effective_key(tx, repository.account_id, repository_id)
    key_to_use(tx, repository.account_id, key.kms_key_id)
    scope = repository_id, repository.name
    return RUNS.start(tx, repository.account_id, scope, run_id, change)


async def run_step(ctx: ServiceContext, run: Run, job: Job) -> Next | Done:
    """Wrap the data keys of the next uses; return the result whose change moves these uses."""
    if ctx.data_keys is None:
        raise StepFailed("NO_KEYS", "this process has no keys")
    # If the key was disabled or deleted meanwhile, the step is repeated, and reads the key's state.
    anew, unusable = partial(rewrap, ctx.data_keys), changed_meanwhile
    return await steps.run_step(ctx.database, anew, run, job, _read, _write, unusable)


def _read(tx: Connection, run: Run, at: object) -> UsePage[_WrappedUse]:
    cursor = None if at is None else msgspec.convert(at, Cursor)
    _check_live(tx, run)
    key = effective_key(tx, run.account_id, run.scope_id)
    if key.state != "enabled":
        words = f"the key that the repository writes under is not enabled but {key.state}"
        raise StepFailed("KEY_NOT_USABLE", words, is_permanent=True)
    target, total = key.kms_key_id, None
    if cursor is None or cursor.kms_key_id != target:
        cursor, total = Cursor(target), key_moves.count_elsewhere(tx, run.scope_id, target)
    found = key_moves.uses_elsewhere(tx, run.scope_id, target, cursor.after, PORTION)
    is_last = len(found) < PORTION
    following = None if is_last else msgspec.to_builtins(Cursor(target, found[-1].position))
    uses = _with_wraps(tx, run.account_id, found)
    return UsePage(target, uses, len(found), following, total)


def _with_wraps(tx: Connection, account_id: str, found: Sequence[BlobUse]) -> list[_WrappedUse]:
    """Return uses with the wraps of their objects; the wrap under a use's current key comes first.

    A wrap that exists under the new key is replaced too: it may be broken, while the wrap that does
    open may be dropped afterwards.
    """
    wraps: dict[str, list[ObjectWrap]] = defaultdict(list)
    for each in key_moves.usable_wraps(tx, account_id, sorted({use.object_id for use in found})):
        wraps[each.object_id].append(each)
    return [
        _WrappedUse(
            use,
            [
                WrappedKey(each.kms_key_id, each.wrapped, use.stored_id)
                for each in sorted(
                    wraps[use.object_id], key=lambda wrap: wrap.kms_key_id != use.kms_key_id
                )
            ],
        )
        for use in found
    ]


def _write(
    tx: Connection, run: Run, target: str, uses: Sequence[_WrappedUse], wraps: Mapping[str, bytes]
) -> int:
    """Write the wraps and move the uses; return how many uses were moved.

    Raise `StepFailed` if the repository was deleted, or if its key or an object's bytes were
    changed meanwhile: then the step is repeated.
    """
    _check_live(tx, run)
    account_id = run.account_id
    objects = {use.blob.object_id: use.stored_id for use in uses}
    lock_objects(tx, account_id, objects)
    used = {use.blob.kms_key_id for use in uses if use.blob.kms_key_id is not None}
    is_usable = hold_enabled(tx, account_id, {target, *used})
    if not is_usable or effective_key(tx, account_id, run.scope_id).kms_key_id != target:
        raise changed_meanwhile()
    there = key_moves.stored_ids(tx, account_id, sorted(objects))
    for object_id, stored_id in sorted(there.items()):
        if stored_id != objects[object_id]:
            raise changed_meanwhile()
        put_wrap(tx, account_id, object_id, target, wraps[stored_id])
    moving = [use.blob for use in uses if use.blob.object_id in there]
    moved = sum(key_moves.move_use(tx, run.scope_id, use, target) for use in moving)
    drop_unused_wraps(tx, account_id, objects)
    return moved


def _check_live(tx: Connection, run: Run) -> None:
    if not repositories.is_live(tx, run.scope_id):
        raise StepFailed("REPOSITORY_DELETED", "the repository is gone", is_permanent=True)
