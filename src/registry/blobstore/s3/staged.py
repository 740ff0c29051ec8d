"""The staged bytes of an upload: parts that were sent, and bytes still in memory."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress

from blake3 import blake3

from registry.blobstore.base import DataKey, ObjectDamaged, ObjectUnknown, StageBusy, Stored
from registry.blobstore.s3.bucket_layout import Description, Tail, TailName, object_key
from registry.blobstore.s3.copying import prefix_of, read_tail, tail_for
from registry.blobstore.s3.encodings import Encoder, PlainEncoder, SealedEncoder
from registry.blobstore.s3.objects import S3Object
from registry.blobstore.s3.parts import PartWriter
from registry.blobstore.s3.responses import KeyExists
from registry.blobstore.s3.uploads import Shared, UploadState
from registry.blobstore.sealed.objects import unseal
from registry.blobstore.staging import (
    IDENTITY,
    RunningDigests,
    State,
    check_held,
    verified,
    wanted_algorithms,
)
from registry.errors import DigestMismatch, StoreUnavailable
from registry.oci.digest import Digest, new_hasher


class S3Staged:
    """Staged bytes of `S3Files`; see `Staged`.

    Resumed bytes count as sealed if a data key is passed to `rewind`.
    """

    def __init__(self, shared: Shared, upload_id: str, found: UploadState, state: State) -> None:
        self._shared = shared
        self._upload_id = upload_id
        self._key = object_key(upload_id)
        self._found = found
        self._state = state
        self._data_key: DataKey | None = None
        self._digests = RunningDigests({}, {})
        self._writer, self._encoder = self._new_encoder()
        self._last: TailName | None = None
        """The tail that has all bytes; None if no tail has them."""
        self._acknowledged = 0
        self._flushed: int | None = None
        self._is_whole = False
        """The bytes are an object, but are not verified yet."""
        self._is_let_go = False
        self._is_remembered = False
        """`_found` is what this process remembers; another process may have continued since."""
        shared.holds.set(upload_id, self)

    @classmethod
    def create(
        cls,
        shared: Shared,
        upload_id: str,
        algorithm: str | None,
        data_key: DataKey | None,
        *,
        is_fresh: bool,
    ) -> S3Staged:
        """Begin with no bytes; raise `StageBusy` if the id is already in use.

        If the id `is_fresh`, the bucket is not checked now; then the commit detects an id in use.
        """
        shared.holds.take(upload_id)
        try:
            staged = cls(shared, upload_id, UploadState(None, frozenset()), State.HELD)
            staged._data_key = data_key
            staged._begin_anew(algorithm)
            if not is_fresh:
                staged._claim()
        except BaseException:
            shared.holds.release(upload_id)
            raise
        return staged

    @classmethod
    def take_up(cls, shared: Shared, upload_id: str) -> S3Staged:
        """Hold the bytes of an upload in the bucket; raise `ObjectUnknown` if there are none.

        If this process remembers the upload's tails, the bucket is not asked.
        """
        shared.holds.take(upload_id)
        try:
            tails = shared.known_tails(upload_id)
            found = UploadState(None, tails) if tails else shared.find(upload_id)
            staged = cls(shared, upload_id, found, State.OPENED)
        except BaseException:
            shared.holds.release(upload_id)
            raise
        staged._is_remembered = bool(tails)
        return staged

    @property
    def offset(self) -> int:
        """Return the number of bytes; before `rewind`, the offset where the longest tail ends."""
        if self._state is State.OPENED:
            return max((each.offset for each in self._found.tails), default=0)
        return self._encoder.length

    @property
    def is_staged(self) -> bool:
        """Return True if the bytes are staged: they are not an object yet."""
        if self._state is State.OPENED:
            return not self._found.is_object
        return self._state is State.HELD

    @property
    def encoder(self) -> Encoder | None:
        """Return the encoder of the bytes; None if they are not held, or were committed."""
        return self._encoder if self._state is State.HELD else None

    @property
    def closes_slowly(self) -> bool:
        """Return True if some parts may not have arrived yet."""
        return not self._is_let_go and self._writer.upload is not None

    def rewind_is_immediate(self, offset: int, *, is_sealed: bool = False) -> bool:  # noqa: ARG002
        """Return False: a rewind may have to ask the bucket."""
        return False

    def rewind(
        self,
        offset: int,
        digests: Mapping[str, str] | None = None,
        algorithm: str | None = None,
        data_key: DataKey | None = None,
    ) -> None:
        """Go to the acknowledged `offset`, in the bytes in memory or by the tail that ends there.

        An object becomes staged bytes again. If no tail ends at the offset, the sent parts are read
        and sent again.
        """
        if offset < 0:
            raise ObjectUnknown(self._upload_id)
        if self._state is State.OPENED:
            self._data_key = data_key
            self._state = State.HELD
            try:
                self._go_to(offset, digests or {}, algorithm)
            except BaseException:
                self._state = State.OPENED
                raise
        else:
            check_held(self._state)
            if (self._data_key is None) != (data_key is None):
                raise ValueError("the data key of staged bytes cannot be taken away or added")
            if offset > self.offset:
                raise ObjectUnknown(self._upload_id)
            self._go_back(offset, digests or {}, algorithm)
        self._acknowledged, self._flushed = offset, None

    def write(self, view: memoryview, /) -> None:
        """Append bytes and hash them; send each full part."""
        check_held(self._state)
        self._unfold()
        with self._condemning():
            self._encoder.append(view)
        self._last = None
        self._digests.update(view)

    def flush(self) -> Mapping[str, str]:
        """Send full parts, and store the rest as a tail."""
        check_held(self._state)
        self._unfold()
        if self._flushed is not None:
            self._acknowledged = self._flushed
        if self._last is None:
            with self._condemning():
                self._store_tail()
        self._flushed = self.offset
        return self._digests.finished()

    def commit(self, expected: Digest | None) -> Stored:
        """Verify the bytes and make them an object.

        Bytes that were not hashed here and are no longer in memory become an object first, and are
        then read for verification: the object has no row yet, so no other code takes it for a blob.
        """
        check_held(self._state)
        algorithm = IDENTITY if expected is None else expected.algorithm
        size, digests = self.offset, self._known_digests(algorithm)
        if digests is not None:
            digest, alias = verified(digests, expected)
        checksum = self._encoder.checksum()
        if not self._is_whole:
            with self._condemning():
                self._encoder.finish()
                checksum = self._encoder.checksum()
                stored_size = self._writer.length
                self._complete()
            self._is_whole = True
            self._stored_size = stored_size
            self._shared.forget(self._upload_id)  # its tails name parts that have ended
        if digests is None or (checksum is None and self._data_key is not None):
            with self._condemning():
                digests, checksum = self._read_again(size, algorithm)
            digest, alias = verified(digests, expected)
        self._state = State.COMMITTED
        self._drop_tails()
        encoding = self._encoder.encoding
        return Stored(self._upload_id, digest, alias, size, self._stored_size, encoding, checksum)

    def discard(self) -> None:
        """Delete the staged bytes; do nothing if they are an object or no longer held."""
        if self._is_let_go or self._state is State.COMMITTED:
            return
        try:
            if self.is_staged or self._state is State.CONDEMNED:
                self._delete()
        finally:
            self._let_go()

    def close(self) -> None:
        """Release the upload; keep its flushed bytes, and its hash states for the next request."""
        if self._is_let_go:
            return
        if self._state is State.HELD and self._last is not None and self._digests.hashers:
            self._shared.hashers.put(self._upload_id, self._digests.hashers)
        if self._state is State.HELD and not self._found.tails and not self._is_whole:
            self._writer.abort()  # nothing of it was flushed
        self._let_go()

    def _new_encoder(self) -> tuple[PartWriter, Encoder]:
        shared = self._shared
        writer = PartWriter(shared.bucket, self._key, str(uuid.uuid4()), shared.senders)
        key = self._data_key
        if key is None:
            return writer, PlainEncoder(writer)
        return writer, SealedEncoder(writer, self._upload_id, key, compresses=shared.compresses)

    def _begin_anew(self, algorithm: str | None) -> None:
        self._writer.abort()
        self._writer, self._encoder = self._new_encoder()
        self._digests = RunningDigests.of_nothing(algorithm)
        self._last = None
        self._is_whole = False

    def _claim(self) -> None:
        """Store an empty tail, so that no other writer can begin with this id."""
        is_object = self._shared.bucket.find(self._key) is not None
        if is_object or any(True for _ in self._shared.tails_of(self._upload_id)):
            raise StageBusy(self._upload_id)
        name = TailName(self._upload_id, 0, 0, 0)
        empty = Tail(Description(0), b"").encoded()
        try:
            self._shared.bucket.put(name.key, empty, is_new=True, token=self._writer.token)
        except KeyExists as error:
            there = self._shared.bucket.find(name.key)
            if there is None or there.token != self._writer.token:  # else the response was lost
                raise StageBusy(self._upload_id) from error
        self._note_tails(frozenset({name}))
        self._last = name

    def _go_to(self, offset: int, known: Mapping[str, str], algorithm: str | None) -> None:
        """Prepare to write at `offset`, from a tail or from the object in the bucket."""
        if self._is_remembered:
            name = tail_for(self._found, offset)
            if offset and name is not None and name.offset == offset:
                with suppress(ObjectUnknown):
                    self._load(name, known)
                    return
            self._found = self._shared.find(self._upload_id)
        found = self._found
        if not offset:
            self._begin_anew(algorithm)
            if found.head is not None:  # a tail without bytes tells that the upload goes on
                self._store_tail(found.head.token)
                self._shared.bucket.delete_all([self._key])
                self._found = UploadState(None, self._found.tails)
            return
        name = tail_for(found, offset)
        if found.is_replaced:
            self._shared.bucket.delete_all([self._key])
            found = self._found = UploadState(None, found.tails)
        if found.head is None:
            if name is None:
                raise ObjectUnknown(self._upload_id)
            if name.offset == offset:
                self._load(name, known)
                return
            self._load(name, {})
            if self._encoder.cut(offset):
                self._last = None
                return
        self._restage(offset, algorithm)

    def _go_back(self, offset: int, known: Mapping[str, str], algorithm: str | None) -> None:
        """Go to an offset within the bytes that this writer holds.

        Raise `ObjectUnknown` if those bytes are in sent parts and no tail ends there.
        """
        if self._is_whole:
            self._unfold()
        if not offset:
            self._begin_anew(algorithm)
            return
        if offset == self.offset:
            return
        if not self._encoder.cut(offset):
            name = tail_for(self._found, offset)
            if name is None or name.offset != offset:
                raise ObjectUnknown(self._upload_id)
            self._writer.close()
            self._load(name, known)
            return
        self._last = None
        self._digests = RunningDigests({}, {})

    def _load(self, name: TailName, known: Mapping[str, str]) -> None:
        """Continue after a tail; `known` are the digests of the bytes up to its end."""
        with self._shared.senders.passing.taken(2 * (name.stored - name.sent)):
            try:
                tail = read_tail(self._shared.bucket, name)
            except ObjectUnknown:
                self._shared.forget(self._upload_id)
                raise
            self._writer, self._encoder = self._new_encoder()
            about = tail.about
            if about.upload is not None:
                self._writer.token = about.token
                self._writer.restore(about.upload, about.parts, name.sent)
            self._writer.refill(tail.stored)
            if not self._encoder.restore(tail):
                self._writer.close()
                raise ObjectUnknown(self._upload_id)
            hasher = self._shared.checksums.take_for(self._upload_id, tail)
            if hasher is not None and isinstance(self._encoder, SealedEncoder):
                self._encoder.hasher = hasher
        self._last = name
        hashers = self._shared.hashers.take_verified(self._upload_id, known)
        self._digests = RunningDigests(hashers, known)

    def _restage(self, offset: int, algorithm: str | None) -> None:
        """Stage the first `offset` bytes of the object, or of the sent parts, again.

        New parts and a new tail are stored before the old bytes are deleted.
        """
        shared, found = self._shared, self._found
        if found.head is None:
            # `prefix_of` makes the sent parts an object, to read them; it is deleted below.
            found = UploadState(None, frozenset(shared.tails_of(self._upload_id)))
        views = prefix_of(shared.bucket, self._upload_id, found, self._data_key, offset)
        self._writer.close()
        self._writer, self._encoder = self._new_encoder()  # no abort: the views read its parts
        self._begin_anew(algorithm)
        with closing(views), self._condemning():  # type: ignore[type-var]
            for view in views:
                self._encoder.append(view)
                self._digests.update(view)
            if self._encoder.length != offset:
                raise ObjectUnknown(self._upload_id)
            replaced = shared.bucket.find(self._key)
            self._store_tail("" if replaced is None else replaced.token)
            shared.bucket.delete_all([self._key])
        self._found = UploadState(None, self._found.tails)

    def _unfold(self) -> None:
        """Turn an object that is not verified yet back into staged bytes."""
        if self._is_whole:
            size = self.offset
            self._found = self._shared.look(self._upload_id)
            self._restage(size, None)
            self._digests = RunningDigests({}, {})

    def _store_tail(self, replaces: str = "") -> None:
        """Store a tail for all bytes; `replaces` is the token of an object about to be deleted."""
        sealed = self._encoder.sealed()
        self._writer.settle()
        about = Description(
            self.offset,
            self._writer.upload,
            self._writer.token,
            list(self._writer.parts),
            sealed.header,
            sealed.entries,
            len(sealed.partial),
        )
        name = TailName(self._upload_id, self.offset, self._writer.sent, self._writer.length)
        with self._shared.senders.passing.taken(2 * self._writer.unsent):
            tail = Tail(about, self._writer.tail(), sealed.partial)
            self._shared.bucket.put(name.key, tail.encoded(), replaces=replaces)
            if isinstance(self._encoder, SealedEncoder) and self._encoder.hasher is not None:
                self._shared.checksums.keep(self._upload_id, tail, self._encoder.hasher)
        self._last = name
        kept = {each for each in self._found.tails if each.offset == self._acknowledged}
        dropped = self._found.tails - kept - {name}
        self._note_tails(frozenset(kept | dropped | {name}))
        with suppress(StoreUnavailable):  # what is left is deleted after the next tail
            self._shared.bucket.delete_all([each.key for each in dropped])
            self._note_tails(frozenset(kept | {name}))

    def _note_tails(self, tails: frozenset[TailName]) -> None:
        self._found = UploadState(self._found.head, tails)
        self._shared.remember(self._upload_id, tails)

    def _drop_tails(self) -> None:
        self._shared.forget(self._upload_id)
        with suppress(StoreUnavailable):  # a listing finds them
            self._shared.bucket.delete_all([each.key for each in self._found.tails])

    def _complete(self) -> None:
        try:
            self._writer.complete()
        except StageBusy as error:
            if not self._found.tails:
                raise
            # Another process has committed what it had of this upload, and died.
            raise StoreUnavailable("the upload has become an object meanwhile") from error

    def _delete(self) -> None:
        is_remote = self._found.tails or self._found.uploads or self._state is not State.HELD
        self._writer.abort()
        if self._is_whole:
            self._shared.bucket.delete_all([self._key])
        if is_remote:
            self._shared.discard(self._upload_id)

    def _known_digests(self, algorithm: str) -> dict[str, str] | None:
        """Return hex digests by algorithm; None if the bytes to hash are no longer in memory."""
        missing = self._digests.missing(wanted_algorithms(algorithm))
        if not missing:
            return self._digests.finished()
        hashers = {name: new_hasher(name) for name in missing}
        if self._is_whole or not self._encoder.hash_into(hashers):
            return None
        return self._digests.finished() | {name: h.hexdigest() for name, h in hashers.items()}

    def _read_again(self, size: int, algorithm: str) -> tuple[dict[str, str], str | None]:
        """Read the object; return its digests by algorithm, and its BLAKE3 if sealed, else None."""
        hashers = {name: new_hasher(name) for name in wanted_algorithms(algorithm)}
        bucket, checksum = self._shared.bucket, None
        try:
            if self._data_key is not None:
                hasher = blake3()
                with closing(S3Object.open(bucket, self._key, self._upload_id)) as stored:
                    for chunk in stored.chunks():
                        hasher.update(chunk)
                checksum = hasher.hexdigest()
            opened = S3Object.open(bucket, self._key, self._upload_id)
            key = self._data_key
            bytes_ = opened if key is None else unseal(opened, self._upload_id, size, key)
            with closing(bytes_):
                for chunk in bytes_.chunks():
                    for each in hashers.values():
                        each.update(chunk)
        except (ObjectUnknown, ObjectDamaged) as error:
            raise StoreUnavailable("the staged bytes cannot be read again") from error
        return {name: each.hexdigest() for name, each in hashers.items()}, checksum

    @contextmanager
    def _condemning(self) -> Iterator[None]:
        """Return a context manager: after an error in its block, this writer can write no more.

        The next writer continues with the bytes that were acknowledged before.
        """
        try:
            yield
        except (DigestMismatch, StageBusy):
            raise
        except BaseException:
            self._state = State.CONDEMNED
            self._shared.forget(self._upload_id)
            raise

    def _let_go(self) -> None:
        self._is_let_go = True
        self._state = State.ENDED
        self._writer.close()
        self._shared.holds.release(self._upload_id)
