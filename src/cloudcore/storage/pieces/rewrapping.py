"""Rewrap: move all pieces of a bucket to the KMS key that the bucket is bound to now.

Binding a bucket to a KMS key starts a run (`cloudcore.objects.rewrapping`). The parts of uploads
are moved first; a part that becomes part of an object meanwhile is moved with the objects.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, Literal

import msgspec

from cloudcore.db.base import Connection
from cloudcore.jobs import runs
from cloudcore.jobs.kinds import Done, JobKind, Next, StepFailed
from cloudcore.jobs.queue import Job
from cloudcore.jobs.runs import NewRun, Run, run_kind
from cloudcore.objects import rewrapping as steps
from cloudcore.objects.rewrapping import COUNTS, UsePage, changed_meanwhile
from cloudcore.storage import bucket_rows
from cloudcore.storage.bucket import Bucket
from cloudcore.storage.needs import StorageNeeds, StoredPiece
from cloudcore.storage.pieces import keys
from cloudcore.storage.tables import BUCKET_ROWS
from cloudcore.wire import RFC3339, ResponseBody, rfc3339

KIND: Final = "storage.rewrap"
KEPT_SECONDS: Final = 90 * 24 * 3600
PORTION: Final = 200
"""Maximum pieces per step."""

_log = logging.getLogger(__name__)


class Cursor(msgspec.Struct, frozen=True):
    """The position of a run: its target KMS key, and the last piece that it has processed."""

    kms_key_id: str
    of_objects: bool = False
    """True among the pieces of objects, False among the parts of uploads."""
    after: str = ""
    """The key of the object, or the id of the upload."""
    number: int = 0


class Rewrap(ResponseBody):
    """A run that moves the pieces of a bucket to its key."""

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


def rewrap_kind(needs: StorageNeeds) -> JobKind:
    """Return the kind of job that rewraps buckets."""
    return run_kind(
        KIND,
        partial(run_step, needs),
        database=needs.database,
        clock=needs.clock,
        on_end_committed=_log_end,
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
    """Start to rewrap a bucket, which the caller has locked; or return the unfinished run."""
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
    """Return the last rewrap of a bucket, or None if it was never rewrapped."""
    found = runs.list_runs(tx, KIND, bucket_id, "", 1)
    return found[0] if found else None


def rewrap_record(run: Run | None) -> Rewrap | None:
    """Convert a run for a response; None stays None."""
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
    """Wrap the data keys of the next pieces; return the change that records the wraps."""
    read, write = partial(_read, needs), partial(_write, needs)
    return await steps.run_step(
        needs.database, needs.bytes.rewrap, run, job, read, write, _unusable
    )


def _read(needs: StorageNeeds, tx: Connection, run: Run, cursor: object) -> UsePage[StoredPiece]:
    target = _target(tx, needs, BUCKET_ROWS.find(tx, run.account_id, run.scope_id))
    at = Cursor(target) if cursor is None else msgspec.convert(cursor, Cursor)
    if at.kms_key_id != target:
        at = Cursor(target)
    of, after = (run.account_id, run.scope_id), (at.after, at.number)
    found = keys.list_pieces(tx, *of, after, PORTION, of_objects=at.of_objects)
    if len(found) == PORTION:
        following: Cursor | None = Cursor(target, at.of_objects, *found[-1][0])
    else:
        following = None if at.of_objects else Cursor(target, of_objects=True)
    others = [piece for _, piece in found if piece.kms_key_id != target]
    return UsePage(target, others, len(found), following and msgspec.to_builtins(following))


def _target(tx: Connection, needs: StorageNeeds, bucket: Bucket | None) -> str:
    """Return the id of the KMS key that a bucket is bound to, or of the account's platform key.

    Raise `StepFailed` if the bucket was deleted, or there is no platform key.
    """
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
    tx: Connection,
    run: Run,
    target: str,
    pieces: Sequence[StoredPiece],
    wraps: Mapping[str, bytes],
) -> int:
    """Record the wraps; return the number of pieces moved.

    Raise `StepFailed` if the bucket was deleted, or if the step must be repeated because the
    bucket's KMS key or the KMS key of a piece was changed.
    """
    bucket = bucket_rows.keep_bucket(tx, run.account_id, run.scope_id)
    used = {target, *(piece.kms_key_id for piece in pieces if piece.kms_key_id is not None)}
    is_usable = not pieces or needs.bytes.hold_keys(tx, run.account_id, used)
    if _target(tx, needs, bucket) != target or not is_usable:
        raise changed_meanwhile()
    return sum(keys.rewrap(tx, run.account_id, each, target, wraps[each.id]) for each in pieces)


def _unusable() -> StepFailed:
    words = "the key that the bucket is bound to cannot be used"
    return StepFailed("KEY_NOT_USABLE", words, is_permanent=True)


def _log_end(run: Run) -> None:
    _log.info("the rewrap of the bucket %s %s: %s", run.scope_id, run.state, dict(run.counts))
