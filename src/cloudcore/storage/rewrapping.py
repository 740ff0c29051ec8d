"""Rewrap: let all pieces of a bucket be opened by the key that it is bound to now.

Binding a bucket to a key starts a run, which is a job. Each step wraps the data keys of some pieces
under that key; no stored byte is read. Parts of uploads come first: those that become objects
meanwhile are met there again. If another key is bound meanwhile, the run begins anew with that one.

A piece whose key is disabled or deleted stays: else who may bind the bucket could read what the
key's owner has shut.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, Literal, NamedTuple

import msgspec

from cloudcore.db.base import Connection
from cloudcore.jobs import runs
from cloudcore.jobs.kinds import Done, JobKind, Next, StepFailed
from cloudcore.jobs.queue import Job
from cloudcore.jobs.runs import NewRun, Progress, Run, run_kind
from cloudcore.storage import bucket_rows, piece_keys
from cloudcore.storage.bucket import Bucket
from cloudcore.storage.errors import KmsKeyDeleted, KmsKeyDisabled
from cloudcore.storage.needs import Rewrapped, SealedPiece, StorageNeeds
from cloudcore.storage.tables import BUCKET_ROWS
from cloudcore.wire import RFC3339, ResponseBody, rfc3339

KIND: Final = "storage.rewrap"
KEPT_SECONDS: Final = 90 * 24 * 3600
COUNTS: Final = ("moved", "plain", "key_disabled", "key_deleted", "unreadable")
PORTION: Final = 200
"""Pieces that one step looks at."""

_log = logging.getLogger(__name__)


class Cursor(msgspec.Struct, frozen=True):
    """Where a run is: the key that it moves to, and the last piece that it has looked at."""

    kms_key_id: str
    of_objects: bool = False
    """False: among the parts of uploads."""
    after: str = ""
    """The key of the object, or the id of the upload."""
    number: int = 0


class Rewrap(ResponseBody):
    """A run that lets the key of a bucket open all pieces in which its objects are stored."""

    status: Literal["running", "succeeded", "failed"]
    done: int
    """Pieces it has looked at: an object has one, or one for each part."""
    moved: int
    """Pieces that the key opens now."""
    plain: int
    """Pieces that are stored plain, and so have no key."""
    key_disabled: int
    """Pieces that stayed, since their key is disabled or its deletion is pending."""
    key_deleted: int
    """Pieces that nothing opens, since their key was deleted."""
    unreadable: int
    """Pieces whose data key does not open; store their objects again."""
    fault: str | None
    """Error code and message of a failed run; else null."""
    started_at: RFC3339
    finished_at: RFC3339 | None


class _Batch(NamedTuple):
    at: Cursor
    next: Cursor | None
    """None if it is the last one."""
    looked_at: int
    pieces: Sequence[SealedPiece]
    """Those that are under other keys."""


def rewrap_kind(needs: StorageNeeds) -> JobKind:
    """Return the kind of job that rewraps buckets."""
    return run_kind(
        KIND,
        partial(run_step, needs),
        database=needs.database,
        clock=needs.clock,
        ended=_log_end,
    )


def start_rewrap(
    tx: Connection,
    bucket: Bucket,
    run_id: str,
    *,
    started_by: str,
    started_by_source: str | None,
    now: int,
) -> Run:
    """Start to rewrap a bucket that is locked, or return the run that does."""
    new = NewRun(
        id=run_id,
        kind=KIND,
        account_id=bucket.account_id,
        scope_id=bucket.id,
        resource=bucket.crn,
        started_by=started_by,
        started_by_source=started_by_source,
        counts=COUNTS,
        kept_seconds=KEPT_SECONDS,
    )
    return runs.start_run(tx, new, now)


def last_rewrap(tx: Connection, bucket_id: str) -> Run | None:
    """Return the last run of a bucket, or None."""
    found = runs.list_runs(tx, KIND, bucket_id, "", 1)
    return found[0] if found else None


def rewrap_record(run: Run | None) -> Rewrap | None:
    """Return the record of a run."""
    if run is None:
        return None
    return Rewrap(
        status=msgspec.convert(run.state, Literal["running", "succeeded", "failed"]),
        done=run.done,
        **run.counts,
        fault=run.fault,
        started_at=rfc3339(run.started_at),
        finished_at=None if run.finished_at is None else rfc3339(run.finished_at),
    )


async def run_step(needs: StorageNeeds, run: Run, job: Job) -> Next | Done:
    """Wrap the data keys of the next pieces, and return the change that records them."""
    cursor = None if job.cursor is None else msgspec.convert(job.cursor, Cursor)
    batch = await needs.database.read(_read, needs, run, cursor)
    target = batch.at.kms_key_id
    try:
        rewrapped = await needs.bytes.rewrap(run.account_id, target, batch.pieces)
    except (KmsKeyDeleted, KmsKeyDisabled):
        raise _unusable() from None
    change = partial(_write, needs, run, target, rewrapped, run.done + batch.looked_at)
    return Done(change) if batch.next is None else Next(msgspec.to_builtins(batch.next), change)


def _read(tx: Connection, needs: StorageNeeds, run: Run, cursor: Cursor | None) -> _Batch:
    target = _target(tx, needs, BUCKET_ROWS.find(tx, run.account_id, run.scope_id))
    at = cursor if cursor is not None and cursor.kms_key_id == target else Cursor(target)
    of, after = (run.account_id, run.scope_id), (at.after, at.number)
    found = piece_keys.list_pieces(tx, *of, after, PORTION, of_objects=at.of_objects)
    if len(found) == PORTION:
        key, piece = found[-1]
        following: Cursor | None = Cursor(target, at.of_objects, key, piece.number)
    else:
        following = None if at.of_objects else Cursor(target, of_objects=True)
    others = [piece for _, piece in found if piece.kms_key_id != target]
    return _Batch(at, following, len(found), others)


def _target(tx: Connection, needs: StorageNeeds, bucket: Bucket | None) -> str:
    """Return the key that a bucket is bound to, or the platform key of its account."""
    if bucket is None:
        raise StepFailed("BUCKET_DELETED", "the bucket is gone", is_permanent=True)
    if bucket.kms_key_id is not None:
        return bucket.kms_key_id
    key = needs.keys.describe(tx, bucket.account_id, None)
    if key is None:
        raise _unusable()
    return key.id


def _write(
    needs: StorageNeeds,
    run: Run,
    target: str,
    rewrapped: Rewrapped,
    done: int,
    tx: Connection,
) -> None:
    """Record the wraps.

    Raise `StepFailed` if the bucket was deleted; or its key, or one of the pieces', was changed,
    and the step must be repeated.
    """
    bucket = bucket_rows.keep_bucket(tx, run.account_id, run.scope_id)
    used = {target, *(wrap.before for wrap in rewrapped.wraps)}
    is_usable = not rewrapped.wraps or needs.bytes.hold_keys(tx, run.account_id, used)
    if _target(tx, needs, bucket) != target or not is_usable:
        raise StepFailed("CHANGED_MEANWHILE", "keys were changed meanwhile")
    moved = sum(piece_keys.rewrap(tx, run.account_id, wrap) for wrap in rewrapped.wraps)
    runs.progress_run(tx, run.id, Progress({**rewrapped.kept, "moved": moved}, done))


def _unusable() -> StepFailed:
    words = "the key that the bucket is bound to cannot be used"
    return StepFailed("KEY_NOT_USABLE", words, is_permanent=True)


def _log_end(run: Run) -> None:
    _log.info("the rewrap of the bucket %s %s: %s", run.scope_id, run.state, dict(run.counts))
