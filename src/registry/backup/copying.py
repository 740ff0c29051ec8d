"""Copy objects between a backup folder and a store, which is a folder or a bucket."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from cloudcore.objects.stored_rows import NamedObject
from registry.backup.files import copy_file, hash_of, size_of, write_file
from registry.blobstore.base import ObjectUnknown, StageBusy
from registry.blobstore.disk.disk_io import flush_folder
from registry.blobstore.disk.folders import SHARDS, object_path
from registry.blobstore.s3.bucket_layout import GENERATION, object_key
from registry.blobstore.s3.files import S3Files
from registry.blobstore.s3.objects import S3Object
from registry.errors import StoreUnavailable

T = TypeVar("T")

_AT_ONCE: Final = 8
_PAUSES: Final = (1, 2, 4, 8, 15)
"""Seconds between attempts if a bucket fails."""
_CHUNK: Final = 1 << 20

_log = logging.getLogger(__name__)


class Unreadable(Exception):
    """An object cannot be read, although its store responds."""


class _ToFolder:
    """Copies objects to a folder whose shard folders already exist."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def size(self, stored_id: str) -> int | None:
        """Return the size of a file, or None if it does not exist."""
        return size_of(self._path(stored_id))

    def hash(self, stored_id: str, algorithm: str) -> str:
        """Return the hash of a file, in hex."""
        path = self._path(stored_id)
        with _raising_unreadable(path):
            return hash_of(path, algorithm)

    def remove(self, stored_id: str) -> None:
        """Delete a file; do nothing if it does not exist."""
        with suppress(FileNotFoundError):
            self._path(stored_id).unlink()

    def flush(self) -> None:
        """Flush all folders."""
        for shard in SHARDS:
            flush_folder(str(self._target / shard))

    def _path(self, stored_id: str) -> Path:
        return self._target / object_path(stored_id)


class FolderToFolder(_ToFolder):
    """Copies from one folder of objects to another."""

    at_once = 1

    def __init__(
        self,
        source: Path,
        target: Path,
        *,
        links: bool = False,
        prepare: Callable[[NamedObject], None] = lambda _: None,
    ) -> None:
        """With `links`, hard-link files instead of copying; call `prepare` before each file."""
        super().__init__(target)
        self._source = source
        self._links = links
        self._prepare = prepare

    def copy(self, row: NamedObject) -> int:
        """Copy an object's file; return the number of bytes written."""
        source, path = self._source / object_path(row.stored_id), self._path(row.stored_id)
        with _raising_unreadable(source):
            self._prepare(row)
            copy_file(source, path, links=self._links)
        return size_of(path) or 0


class BucketToFolder(_ToFolder):
    """Copies from a bucket to a folder of objects."""

    at_once = _AT_ONCE

    def __init__(self, files: S3Files, target: Path) -> None:
        super().__init__(target)
        self._bucket = files.bucket

    def copy(self, row: NamedObject) -> int:
        """Copy an object to a file; return the number of bytes written."""
        try:
            return _with_retries(lambda: self._copy(row.stored_id))
        except StoreUnavailable as error:
            _with_retries(lambda: self._bucket.find(GENERATION))  # raises if the bucket is away
            raise Unreadable(row.stored_id) from error

    def _copy(self, stored_id: str) -> int:
        try:
            opened = S3Object.open(self._bucket, object_key(stored_id), stored_id)
        except ObjectUnknown:
            raise FileNotFoundError(stored_id) from None
        with closing(opened):
            write_file(opened.chunks(), self._path(stored_id))
            return opened.length


class FolderToBucket:
    """Copies from a folder of objects to a bucket."""

    at_once = _AT_ONCE

    def __init__(self, source: Path, files: S3Files) -> None:
        self._source = source
        self._files = files

    def size(self, stored_id: str) -> int | None:
        """Return the size of an object, or None if it does not exist."""
        head = _with_retries(lambda: self._files.bucket.find(object_key(stored_id)))
        return None if head is None else head.size

    def copy(self, row: NamedObject) -> int:
        """Store a file as an object, replacing any other; return the number of bytes written."""
        with _raising_unreadable(self._source / object_path(row.stored_id)):
            try:
                return _with_retries(lambda: self._copy(row.stored_id))
            except StageBusy:
                self.remove(row.stored_id)
                return _with_retries(lambda: self._copy(row.stored_id))

    def _copy(self, stored_id: str) -> int:
        with (self._source / object_path(stored_id)).open("rb") as file:
            staged = self._files.stage(stored_id, is_fresh=True)
            try:
                while chunk := file.read(_CHUNK):
                    staged.write(memoryview(chunk))
                return staged.commit(None).stored_size
            except BaseException:
                staged.discard()
                raise
            finally:
                staged.close()

    def hash(self, stored_id: str, algorithm: str) -> str:
        """Raise `NotImplementedError`: a restoration does not verify objects; ``fsck`` does."""
        raise NotImplementedError(stored_id)

    def remove(self, stored_id: str) -> None:
        """Delete an object."""
        _with_retries(lambda: self._files.delete(stored_id))

    def flush(self) -> None:
        """Do nothing: a bucket's objects are durable at once."""


Copier = FolderToFolder | BucketToFolder | FolderToBucket
"""Copies objects from one store to another; threads may share it if `at_once` is above 1.

`copy` writes an object durably, except for its folder's entry, which `flush` makes durable; it
returns the size. It raises `FileNotFoundError` if the source has no such object. `size`, `hash`
and `remove` act on the target. `copy` and `hash` raise `Unreadable` if only this object cannot be
read; any other exception ends the copying.
"""


@contextmanager
def _raising_unreadable(path: Path) -> Iterator[None]:
    """Raise `Unreadable` if the block fails and the file exists, but cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, StoreUnavailable) as error:
        if _is_unreadable(path):
            raise Unreadable(path.name) from error
        raise


def _is_unreadable(path: Path) -> bool:
    """Return True if a file cannot be read; raise `OSError` if its folder cannot be read either."""
    try:
        with path.open("rb") as file:
            while file.read(_CHUNK):
                pass
    except OSError:
        for _ in path.parent.iterdir():
            pass
        return True
    return False


def _with_retries(call: Callable[[], T]) -> T:
    """Call the bucket, with retries after pauses, and return the result."""
    for pause in _PAUSES:
        try:
            return call()
        except StoreUnavailable as error:
            _log.warning("copying goes on in %d s: %s", pause, error.message)
            time.sleep(pause)
    return call()
