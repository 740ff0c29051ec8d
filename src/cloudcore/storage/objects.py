"""Find, record, tag and delete objects, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloudcore.db.base import Connection
from cloudcore.errors import PlatformError
from cloudcore.events import Events
from cloudcore.storage import object_rows as rows
from cloudcore.storage.bucket import (
    OBJECT_CREATED,
    OBJECT_DELETED,
    Bucket,
    check_tags,
    key_bytes,
    object_crn,
)
from cloudcore.storage.bucket_rows import BucketUsage, change_usage, check_room, emit_level
from cloudcore.storage.conditions import NO_CONDITIONS, RequestConditions, check_write
from cloudcore.storage.errors import ConditionFailed, NoSuchBucket, NoSuchKey
from cloudcore.storage.object_rows import StoredObject
from cloudcore.storage.pieces.rows import Piece, add_piece, condemn_object
from cloudcore.storage.tables import BUCKET_ROWS


def find_object(tx: Connection, bucket: Bucket, key: str, *, locks: bool = False) -> StoredObject:
    """Return the object with this key, or raise `NoSuchKey`; with `locks`, lock its row."""
    key_bytes(key)
    found = rows.find_object(tx, bucket, key, locks=locks)
    if found is None:
        raise NoSuchKey
    return found


def record_object(
    tx: Connection,
    bucket: Bucket,
    made: StoredObject,
    piece: Piece,
    most: int,
    events: Events,
    conditions: RequestConditions = NO_CONDITIONS,
) -> StoredObject:
    """Insert an object of one piece; it replaces the existing object with its key.

    The caller has called `hold` in `tx`. `most` is the account's default quota, in bytes.

    Raise `ConditionFailed` or `NoSuchKey` (see `conditions.check_write`), `BytesQuotaExceeded` if
    the account's quota leaves no room for the object.
    """
    before = put_in_place(tx, bucket, made, conditions)
    use = check_room(tx, bucket.account_id, made.size, most)
    add_piece(tx, bucket.account_id, piece, object_id=made.id)
    change = BucketUsage(1 - before.objects, made.size - before.object_bytes)
    change_usage(tx, bucket.account_id, bucket.id, made.id, change)
    emit_level(tx, bucket.account_id, use, made.size, made.created_at)
    emit_events(tx, events, OBJECT_CREATED, bucket, [made], made.created_at)
    return made


def hold(tx: Connection, bucket: Bucket) -> Bucket:
    """Return the bucket as it is now. Until `tx` ends, other transactions cannot delete it.

    Raise `NoSuchBucket` if the bucket was deleted meanwhile.
    """
    found = BUCKET_ROWS.hold(tx, bucket.account_id, bucket.id)
    if found is None:
        raise NoSuchBucket
    return found


def emit_events(
    tx: Connection,
    events: Events,
    event_type: str,
    bucket: Bucket,
    found: Sequence[StoredObject],
    now: int,
) -> None:
    """Publish an event for each object when `tx` commits; call it last in a transaction."""
    told = (_event_data(bucket, each) for each in found)
    events.emit(tx, bucket.account_id, event_type, told, now)


def put_in_place(
    tx: Connection, bucket: Bucket, made: StoredObject, conditions: RequestConditions
) -> BucketUsage:
    """Write the row of an object, and condemn the pieces of the object that it replaces.

    Return the usage of the replaced object; zeros if there was none. The caller has called `hold`
    in `tx`.

    Raise `ConditionFailed` or `NoSuchKey`, as `record_object`.
    """
    while True:
        before = rows.find_object(tx, bucket, made.key, locks=True)
        check_write(conditions, before and before.etag)
        if before is not None:
            condemn_object(tx, before.account_id, before.id, made.created_at)
            rows.replace_object(tx, before, made)
            return BucketUsage(1, before.size)
        if rows.add_object(tx, made):
            return BucketUsage()
        # Another writer has inserted the key since `find_object`.


def put_tags(tx: Connection, bucket: Bucket, key: str, tags: Mapping[str, str]) -> StoredObject:
    """Replace the tags of an object, and return the object.

    Raise `NoSuchKey` if there is no such object, `InvalidTag` if there are too many tags, or one is
    malformed.
    """
    check_tags(tags)
    found = find_object(tx, bucket, key, locks=True)
    rows.save_tags(tx, found, tags)
    return found._replace(attributes=found.attributes._replace(tags=tags))


def delete_object(
    tx: Connection,
    bucket: Bucket,
    key: str,
    now: int,
    events: Events,
    conditions: RequestConditions = NO_CONDITIONS,
) -> StoredObject | None:
    """Delete an object; return it, or None if there was none.

    Raise `ConditionFailed` or `NoSuchKey` (see `conditions.check_write`).
    """
    found = _take(tx, bucket, key, now, conditions)
    if found is not None:
        _emit_deleted(tx, bucket, [found], now, events)
    return found


def delete_objects(
    tx: Connection,
    bucket: Bucket,
    keys: Sequence[str],
    now: int,
    events: Events,
    etags: Mapping[str, str] = {},
) -> dict[str, PlatformError]:
    """Delete objects; return the error of each key that was refused.

    `etags` maps keys to the ETag that the object must have to be deleted.

    The rows are locked in the order of their keys, and then one row of the counts. So two
    deletions, or a deletion and a write, cannot deadlock.
    """
    gone: list[StoredObject] = []
    refused: dict[str, PlatformError] = {}
    for key in sorted(set(keys)):
        conditions = RequestConditions(if_match=(etags[key],)) if key in etags else NO_CONDITIONS
        try:
            found = _take(tx, bucket, key, now, conditions)
        except (ConditionFailed, NoSuchKey) as error:  # before anything was changed
            refused[key] = error
        else:
            if found is not None:
                gone.append(found)
    if gone:
        _emit_deleted(tx, bucket, gone, now, events)
    return refused


def _take(
    tx: Connection, bucket: Bucket, key: str, now: int, conditions: RequestConditions
) -> StoredObject | None:
    """Delete an object like `delete_object`, but update no counts and publish no event."""
    key_bytes(key)
    found = rows.find_object(tx, bucket, key, locks=True)
    check_write(conditions, found and found.etag)
    if found is not None:
        condemn_object(tx, found.account_id, found.id, now)
        rows.erase_object(tx, found)
    return found


def _emit_deleted(
    tx: Connection, bucket: Bucket, gone: Sequence[StoredObject], now: int, events: Events
) -> None:
    """Subtract deleted objects from the counts, and publish their events."""
    change = BucketUsage(-len(gone), -sum(found.size for found in gone))
    change_usage(tx, bucket.account_id, bucket.id, gone[0].id, change)
    emit_events(tx, events, OBJECT_DELETED, bucket, gone, now)


def _event_data(bucket: Bucket, found: StoredObject) -> dict[str, object]:
    return {
        "bucket": {"id": bucket.id, "crn": bucket.crn, "name": bucket.name},
        "crn": object_crn(bucket.crn, found.key),
        "key": found.key,
        "size": found.size,
        "etag": found.etag,
        "content_type": found.attributes.content_type,
    }
