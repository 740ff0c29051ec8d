"""Pushes of whole small bodies to places that are known: all is proved by the one transaction."""

from __future__ import annotations

from cloudcore.db.base import Connection, OutcomeUnknown
from registry.blobstore.inline import store_inline
from registry.errors import DigestMismatch, KmsKeyDeleted, KmsKeyDisabled
from registry.metadata.blobs.uploads import Ending
from registry.metadata.blobs.writing_places import begin_there as begin_row
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.blobs.recording import NewBytes, PlaceChangedError, record_blob
from registry.services.blobs.sealing import UploadKeys, key_of, new_seal
from registry.services.blobs.small_uploads import room_for_few, seal_received
from registry.services.blobs.upload_bodies import Chunk
from registry.services.blobs.upload_leases import UploadLeaseLost
from registry.services.blobs.upload_sessions import (
    Session,
    has_room,
    place_of,
    room_of,
    unwritten_session,
)
from registry.services.blobs.writing_places import KnownPlace
from registry.services.context import ServiceContext


def place_for(ctx: ServiceContext, name: Name, chunk: Chunk) -> KnownPlace | None:
    """Return where the body of a request may be written as a whole, or None if that is not known.

    Others look first, so that they are refused before they are received.
    """
    has_few = 0 < (chunk.declared_bytes or 0) <= ctx.limits.inline_max_bytes
    if not has_few or chunk.give_back is None:
        return None
    return ctx.places.find(ctx, name)


def find_unwritten(
    tx: Connection, ctx: ServiceContext, known: KnownPlace, upload_id: str, now: int
) -> tuple[Session, UploadKeys] | None:
    """Return a session that has no row and may get one, and the keys to seal its bytes with.

    Return None if that is not so, or not known: look at each.
    """
    session = unwritten_session(ctx, place_of(known.place), upload_id, now)
    if session is None or room_for_few(ctx, session) < 0:
        return None
    if not has_room(tx, ctx, known.place, now, upload_id):
        return None
    return session, UploadKeys(known.writing, None)


async def begin_there(
    ctx: ServiceContext, name: Name, known: KnownPlace, upload_id: str, chunk: Chunk
) -> int | None:
    """Keep a whole small body in the row of a session that gets it now; return how long it is.

    Return None if nothing was written, as `push_there`; the body is given back then.

    Raises:
        SizeInvalid: the body is not as long as its span.
        OutcomeUnknown: the session may have the body or not.

    """
    place, writing = known
    now = ctx.clock()
    session = unwritten_session(ctx, place_of(place), upload_id, now)
    room = room_of(ctx, now)
    if session is None or room is None or chunk.give_back is None:
        return None
    few = await chunk.few(room_for_few(ctx, session))
    if few is None:
        return None
    if few.is_complete and len(few.data) <= ctx.limits.max_blob_bytes:
        upload, expires_at = session.upload, now + ctx.limits.upload_idle
        try:
            received = await seal_received(ctx, upload, writing, few.data)
            row = place, room, upload, received, expires_at
            try:
                is_begun = await ctx.database.write(begin_row, *row)
            except OutcomeUnknown:
                is_begun = await ctx.database.write(begin_row, *row)
                if not is_begun:
                    raise  # the session may have this body already, and must not get it twice
            if is_begun:
                return len(few.data)
        except (KmsKeyDeleted, KmsKeyDisabled):
            ctx.places.forget(name)
    chunk.give_back(few)
    return None


async def push_there(
    ctx: ServiceContext,
    name: Name,
    known: KnownPlace,
    chunk: Chunk,
    expected: Digest,
    ending: Ending | None = None,
) -> bool:
    """Make a whole small body a blob, and end its session; return False if nothing was written.

    That is so if the place or the session is not as assumed, or the body not whole, too large, or
    of another digest: whoever looks at each tells why. The body is given back then.

    Raises:
        SizeInvalid: the body is not as long as its span.
        OutcomeUnknown: see `record_blob`.

    """
    few = await chunk.few(ctx.limits.inline_max_bytes)
    if few is None:
        return False
    is_fit = few.is_complete and len(few.data) <= ctx.limits.max_blob_bytes
    if is_fit and await _push(ctx, name, known, few.data, expected, ending):
        return True
    assert chunk.give_back is not None
    chunk.give_back(few)
    return False


async def _push(
    ctx: ServiceContext,
    name: Name,
    known: KnownPlace,
    data: bytes,
    expected: Digest,
    ending: Ending | None,
) -> bool:
    place, writing = known
    stage_id = ctx.new_id()
    try:
        seal = await new_seal(ctx, place.account_id, writing, stage_id)
        stored = store_inline(data, expected, stage_id, key_of(seal))
        new = NewBytes(place.repository_id, place.account_id, stored, seal, place=place)
        await record_blob(ctx, new, ending)
    except (PlaceChangedError, KmsKeyDeleted, KmsKeyDisabled):
        ctx.places.forget(name)
        return False
    except (DigestMismatch, UploadLeaseLost):
        return False
    return True
