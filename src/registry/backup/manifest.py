"""The manifest of a backup: its contents, written last and atomically.

A folder is a backup if and only if it has a manifest::

    backup.json                 the manifest
    metadata-<backup id>.db     the database of SQLite
    metadata-<backup id>.dump   or of PostgreSQL
    catalog-<backup id>.db      the objects that the dump names (`registry.backup.catalog`)
    objects/<xx>/<stored id>    the blobs, filed as in the registry's data folder
    pieces/<xx>/<stored id>     the bytes of buckets, filed likewise
    root.key                    the root key, only if requested
    backup.lock                 locked while a backup is taken or restored
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

import msgspec

from registry.blobstore.disk.disk_io import flush_folder

FORMAT: Final = 1
NAME: Final = "backup.json"
LOCK: Final = "backup.lock"
ROOT_KEY: Final = "root.key"
OBJECTS: Final = "objects"
PIECES_FOLDER: Final = "pieces"


class BackupUnusable(Exception):
    """The folder has no complete backup, or one that this program cannot read."""


class Dump(msgspec.Struct, frozen=True):
    """A dump of PostgreSQL."""

    catalog: str
    catalog_sha256: str
    schema: str
    functions: list[str]
    """The names of the functions that the tables' triggers call."""
    server: int
    """The major version of the server."""
    program: int
    """The major version of ``pg_dump``."""


class DatabaseFile(msgspec.Struct, frozen=True):
    """The copy of the database in a backup."""

    file: str
    bytes: int
    sha256: str
    dump: Dump | None = None
    """None if the copy is a file of SQLite."""

    @property
    def readable(self) -> str:
        """Return the name of the SQLite file that lists the objects: the database or catalog."""
        return self.file if self.dump is None else self.dump.catalog

    @property
    def files(self) -> dict[str, str]:
        """Map the name of each database file to its SHA-256."""
        of_dump = {self.dump.catalog: self.dump.catalog_sha256} if self.dump else {}
        return {self.file: self.sha256} | of_dump


class Damage(msgspec.Struct, frozen=True):
    """A blob or piece that the database names, but that could not be copied intact."""

    id: str
    digest: str
    problem: str


class BackupManifest(msgspec.Struct, frozen=True):
    """The contents of a backup."""

    format: int
    id: str
    registry: str
    """The id of the first account: a folder takes the backups of one registry only."""
    begun_at: str
    finished_at: str
    version: str
    """The version of the program that took the backup."""
    generation: str | None
    """The generation that the blob store had saved (`registry.gc.database_rollback`), or None."""
    database: DatabaseFile
    objects: int
    object_bytes: int
    root_key: Literal["included", "kept elsewhere", "none"]
    """"none": the registry has no root key, since ``entrepot dev`` runs it."""
    is_verified: bool
    """True if every blob was hashed in the backup, False if only its size was compared."""
    damaged: list[Damage]
    pieces: int
    """Number of pieces of buckets, except those in the database."""
    piece_bytes: int


class _Format(msgspec.Struct):
    format: int


def read_manifest(folder: Path) -> BackupManifest | None:
    """Return the manifest of a backup, or None if the folder has none.

    Raise `BackupUnusable` if it is damaged, or of a later version of the program.
    """
    try:
        document = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return None
    try:
        found = msgspec.json.decode(document, type=_Format).format
        if found != FORMAT:
            raise BackupUnusable(
                f"{folder} has the format {found}, and this program reads {FORMAT}: use the"
                " version that took the backup, or a later one"
            )
        return msgspec.json.decode(document, type=BackupManifest)
    except msgspec.DecodeError as error:
        raise BackupUnusable(f"{folder / NAME} is damaged: {error}") from None


def write_manifest(folder: Path, manifest: BackupManifest) -> None:
    """Replace the manifest atomically and durably; all files that it names are already durable."""
    new = folder / f"{NAME}.new"
    with new.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    new.rename(folder / NAME)
    flush_folder(str(folder))
