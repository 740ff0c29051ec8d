"""Copy the objects that a database names from one store to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from blake3 import blake3

from cloudcore.db.base import Connection
from cloudcore.objects.stored_rows import NamedObject, StoredRows
from cloudcore.resource_names import is_canonical_uuid
from cloudcore.storage.pieces.rows import PIECE_ROWS
from registry.backup.copying import Copier, Unreadable
from registry.backup.manifest import Damage
from registry.blobstore.disk.folders import SHARDS
from registry.metadata.blobs.inline import InlineObject, inline_objects
from registry.metadata.blobs.objects import BLOB_ROWS
from registry.oci.digest import digest_of

_PAGE: Final = 500
_UNREADABLE: Final = "its bytes cannot be read"


class CopyProgress(NamedTuple):
    """Progress of the copying: kind of objects, objects done, objects in total, bytes written."""

    stage: str
    done: int
    total: int
    copied_bytes: int = 0


class Copied(NamedTuple):
    """The totals of a finished copy, and its damaged objects."""

    objects: int
    object_bytes: int
    new_objects: int
    new_bytes: int
    damaged: list[Damage]


Report = Callable[[CopyProgress], None]


class Names(NamedTuple):
    """The objects of one store that a database names: their kind, and their rows."""

    stage: str
    """The kind of the objects, for `CopyProgress`."""
    rows: StoredRows


BLOBS: Final = Names("blobs", BLOB_ROWS)
PIECES: Final = Names("pieces of buckets", PIECE_ROWS)


def copy_objects(
    tx: Connection,
    copier: Copier,
    report: Report,
    names: Names,
    *,
    suspects: frozenset[str] = frozenset(),
    verifies: bool = False,
) -> Copied:
    """Copy the objects that the target lacks, durably; return the totals of the target.

    An object of the right size is not copied again, unless its id is in `suspects`: bytes never
    change under an id. With `verifies`, hash the objects in the target; copy damaged ones again.
    """
    total, total_bytes = names.rows.count_stored(tx)
    damaged: list[Damage] = []
    new_objects = new_bytes = done = 0

    threads = ThreadPoolExecutor(copier.at_once, "copying")
    try:
        for page in _pages(tx, names):
            hashes = _hashes(tx, names, page) if verifies else {}
            copy_one = partial(_copy_missing, copier, suspects=suspects, hashes=hashes)
            found = threads.map(copy_one, page) if copier.at_once > 1 else map(copy_one, page)
            for row, (problem, is_new) in zip(page, found, strict=True):
                done += 1
                if is_new:
                    new_objects, new_bytes = new_objects + 1, new_bytes + row.stored_size
                if problem:
                    damaged.append(Damage(row.stored_id, row.digest, problem))
                report(CopyProgress(names.stage, done, total, new_bytes))
    finally:
        threads.shutdown(cancel_futures=True)
    copier.flush()
    return Copied(total, total_bytes, new_objects, new_bytes, damaged)


def _hashes(tx: Connection, names: Names, page: Sequence[NamedObject]) -> dict[str, str]:
    """Return the hashes of the stored bytes of objects, by stored id: ``ALGORITHM:HEX``."""
    digests = {row.stored_id: row.digest for row in page}
    checksums = names.rows.checksums(tx, list(digests))
    return digests | {at: f"blake3:{checksum}" for at, checksum in checksums.items() if checksum}


def _copy_missing(
    copier: Copier, row: NamedObject, suspects: frozenset[str], hashes: Mapping[str, str]
) -> tuple[str, bool]:
    """Copy an object unless the target has it; return (its damage or "", True if it was copied).

    If it is not in `hashes`, only its size is compared.
    """
    wanted = hashes.get(row.stored_id)
    is_there = row.stored_id not in suspects and copier.size(row.stored_id) == row.stored_size
    if is_there and not _problem(copier, row, row.stored_size, wanted):
        return "", False
    try:
        size = copier.copy(row)
    except FileNotFoundError:
        copier.remove(row.stored_id)  # the target may have damaged bytes of an earlier backup
        return "its bytes are gone", False
    except Unreadable:
        copier.remove(row.stored_id)
        return _UNREADABLE, False
    problem = _problem(copier, row, size, wanted)
    return problem, not problem


def damaged_inline(tx: Connection, *, verifies: bool) -> list[Damage]:
    """Return the damaged inline objects of a copied database; with `verifies`, hash all of them.

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
    """Return the damage of an inline object, or "" if it is intact."""
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
    """Delete the files of objects that the database does not name; return their number."""
    count = 0
    for shard in SHARDS:
        names = [each.name for each in (objects / shard).iterdir()]
        for start in range(0, len(names), _PAGE):
            batch = names[start : start + _PAGE]
            named = kind.rows.find_stored(tx, [name for name in batch if is_canonical_uuid(name)])
            for name in batch:
                if name not in named:
                    (objects / shard / name).unlink()
                    count += 1
    return count


def _pages(tx: Connection, names: Names) -> Iterator[Sequence[NamedObject]]:
    after = ""
    while rows := names.rows.list_stored(tx, after, _PAGE):
        yield rows
        after = rows[-1].stored_id


def _problem(copier: Copier, row: NamedObject, size: int, wanted: str | None) -> str:
    """Return the damage of a copied object, which has `size` bytes, or "" if it is intact."""
    if size != row.stored_size:
        return f"{size} bytes instead of {row.stored_size}"
    if wanted is None:
        return ""
    algorithm = wanted.partition(":")[0]
    try:
        actual = f"{algorithm}:{copier.hash(row.stored_id, algorithm)}"
    except Unreadable:
        return _UNREADABLE
    return "" if actual == wanted else f"its bytes hash to {actual}"
