"""Copy the objects that a database names from one folder of objects to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from blake3 import blake3

from cloudcore.db.base import Connection
from cloudcore.objects.book import Book, NamedObject
from cloudcore.storage.piece_book import PIECE_BOOK
from registry.backup.files import copy_file, sha256_of, size_of
from registry.backup.manifest import Damage
from registry.blobstore.disk_io import flush_folder
from registry.blobstore.folders import SHARDS, object_path
from registry.blobstore.staging import is_canonical_id
from registry.metadata.blobs.book import BLOB_BOOK
from registry.metadata.blobs.inline import InlineObject, inline_objects
from registry.oci.digest import digest_of

_PAGE: Final = 500


class Progress(NamedTuple):
    """How far the copying is: what is copied, how many of how many, and the bytes written."""

    stage: str
    done: int
    total: int
    copied_bytes: int = 0


class Copied(NamedTuple):
    """The objects of a finished copy."""

    objects: int
    object_bytes: int
    new_objects: int
    new_bytes: int
    damaged: list[Damage]


Tell = Callable[[Progress], None]


class Names(NamedTuple):
    """The objects of one store that a database names."""

    stage: str
    """What the progress calls them."""
    book: Book


BLOBS: Final = Names("blobs", BLOB_BOOK)
PIECES: Final = Names("pieces of buckets", PIECE_BOOK)


def copy_objects(
    tx: Connection,
    source: Path,
    target: Path,
    tell: Tell,
    names: Names,
    *,
    suspects: frozenset[str] = frozenset(),
    links: bool = False,
    verifies: bool = False,
    prepare: Callable[[NamedObject], None] = lambda _: None,
) -> Copied:
    """Copy what `target` lacks; return what it has then. Durable.

    An object that is there with its size is not copied again, except the `suspects`: bytes that are
    written anew get a new id. With `verifies`, hash all that `target` has; copy what is damaged
    once more.
    Call `prepare` before an object is copied.
    """
    total, total_bytes = names.book.count_stored(tx)
    damaged: list[Damage] = []
    new_objects = new_bytes = 0
    for done, row in enumerate(_named(tx, names), 1):
        path = object_path(row.stored_id)
        is_there = row.stored_id not in suspects and size_of(target / path) == row.stored_size
        problem = _problem(target / path, row, verifies=verifies) if is_there else "not copied yet"
        if problem:
            prepare(row)
            problem = _copy(source / path, target / path, row, links=links, verifies=verifies)
            if not problem:
                new_objects, new_bytes = new_objects + 1, new_bytes + row.stored_size
        if problem:
            damaged.append(Damage(row.stored_id, row.digest, problem))
        tell(Progress(names.stage, done, total, new_bytes))
    for shard in SHARDS:
        flush_folder(str(target / shard))
    return Copied(total, total_bytes, new_objects, new_bytes, damaged)


def damaged_inline(tx: Connection, *, verifies: bool) -> list[Damage]:
    """Return the inline objects of a copied database that are damaged; with `verifies`, hash all.

    Their bytes are in the database, and so in its copy.
    """
    damaged: list[Damage] = []
    after = ""
    while rows := inline_objects(tx, after, _PAGE):
        for row in rows:
            problem = _inline_problem(row, verifies=verifies)
            if problem:
                damaged.append(Damage(row.stored_id, row.digest, problem))
        after = rows[-1].stored_id
    return damaged


def _inline_problem(row: InlineObject, *, verifies: bool) -> str:
    """Return what is wrong with an inline object, or an empty string."""
    if row.body is None:
        return "its bytes are gone"
    if len(row.body) != row.stored_size:
        return f"{len(row.body)} bytes instead of {row.stored_size}"
    if verifies and row.checksum is None and digest_of(row.body) != row.digest:
        return f"its bytes hash to {digest_of(row.body)}"
    if verifies and row.checksum not in (None, blake3(row.body).hexdigest()):
        return "its stored bytes do not have their checksum"
    return ""


def remove_others(tx: Connection, objects: Path, kind: Names) -> int:
    """Delete the files of objects that the database does not name; return how many."""
    count = 0
    for shard in SHARDS:
        names = [each.name for each in (objects / shard).iterdir()]
        for start in range(0, len(names), _PAGE):
            batch = names[start : start + _PAGE]
            named = kind.book.find_stored(tx, [name for name in batch if is_canonical_id(name)])
            for name in batch:
                if name not in named:
                    (objects / shard / name).unlink()
                    count += 1
    return count


def _named(tx: Connection, names: Names) -> Iterator[NamedObject]:
    after = ""
    while rows := names.book.list_stored(tx, after, _PAGE):
        yield from rows
        after = rows[-1].stored_id


def _copy(source: Path, target: Path, row: NamedObject, *, links: bool, verifies: bool) -> str:
    """Copy an object; return what is wrong with the copy, or an empty string."""
    try:
        copy_file(source, target, links=links)
    except FileNotFoundError:
        with suppress(FileNotFoundError):  # no damaged bytes of before
            target.unlink()
        return "its bytes are gone"
    return _problem(target, row, verifies=verifies)


def _problem(path: Path, row: NamedObject, *, verifies: bool) -> str:
    """Return what is wrong with the file of an object, or an empty string."""
    size = size_of(path)
    if size != row.stored_size:
        return f"{size} bytes instead of {row.stored_size}"
    if verifies and row.encoding == "plain":
        actual = f"sha256:{sha256_of(path)}"
        if actual != row.digest:
            return f"its bytes hash to {actual}"
    return ""
