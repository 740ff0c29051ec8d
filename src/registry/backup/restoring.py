"""Restore a backup into an empty data folder, and a PostgreSQL dump into an empty database."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

from cloudcore.db.opening import is_postgresql, sqlite_path
from cloudcore.db.sqlite_connection import reading
from cloudcore.identity.tokens.signing_keys import list_signing_keys, opens_all
from cloudcore.keyring import KeyringError, load_keyring
from cloudcore.nodes.rows import forget_nodes
from registry.backup.files import copy_file, locked, sha256_of
from registry.backup.manifest import (
    LOCK,
    NAME,
    OBJECTS,
    PIECES_FOLDER,
    ROOT_KEY,
    BackupManifest,
    BackupUnusable,
    read_manifest,
)
from registry.backup.objects import BLOBS, PIECES, CopyProgress, Report, copy_objects
from registry.backup.stores import open_object_stores
from registry.blobstore.disk.disk_io import flush_folder, make_folder
from registry.composition.main import Registry, prepare
from registry.composition.unfinished_restoration import UNDER_WAY
from registry.gc.database_rollback import renew_generation
from registry.metadata.collector.generations import forget_unfinished
from registry.settings.settings import Settings

_ENDED: Final = " ended"
"""Appended to the mark of a restoration that is complete except for removing its marks."""


class RestoreRefused(Exception):
    """The backup cannot be restored here, or not with these options."""


def restore_backup(
    settings: Settings, source: Path, root_key: Path | None, report: Report
) -> BackupManifest:
    """Restore the backup in `source` into the data folder, which must be absent or empty. Blocks.

    With a bucket in the settings, the objects go there, even if they were on disk before.

    An interrupted restoration is continued. The database comes last, so an unfinished one is not
    taken for a registry. Upload sessions and the quarantine are not restored: a backup does not
    have their bytes. The root key is taken from `root_key`, or from the backup, or is already where
    the settings say.

    Raises:
        BackupUnusable: there is no backup, or its database is damaged.
        DumpRefused: the database of PostgreSQL has tables, or cannot take the dump.
        FolderBusy: a backup to `source` is under way.
        ProgramFailed: ``pg_restore`` is missing or too old, or it failed.
        RestoreRefused: the data folder has files, or the bucket objects; or the root key is missing
            or another one; or the backup is of the other kind of database.

    """
    if not source.is_dir():
        raise BackupUnusable(f"there is no folder {source}")
    with locked(source / LOCK, is_read=True):
        manifest = read_manifest(source)
        if manifest is None:
            raise BackupUnusable(
                f"{source} holds no complete backup: {NAME}, which is written last, is not there"
            )
        if _has_ended(settings, manifest):
            _end(settings, manifest)
            return manifest
        is_continued = _check_empty(settings, manifest)
        copy = source / manifest.database.readable
        report(CopyProgress("database", 0, 1))
        for name, sha256 in manifest.database.files.items():
            if sha256_of(source / name) != sha256:
                raise BackupUnusable(
                    f"{source / name} is damaged: its SHA-256 is not the one of the manifest"
                )
        key = _root_key(settings, source, manifest, root_key)
        _check_root_key(copy, key)
        with open_object_stores(settings) as stores, reading(copy) as tx:
            if not is_continued and any(each.is_used() for each in stores):
                raise RestoreRefused(
                    f"there are objects in {place_of(settings)} already: name another"
                    " store_s3_prefix, or a bucket that is empty"
                )
            make_folder(settings.data)
            _write_mark(settings, _mark(settings, manifest))
            if is_postgresql(settings.database):
                from registry.backup.postgresql import mark_database  # noqa: PLC0415 - the driver

                mark_database(settings.database, manifest)
            copy_objects(tx, stores.blobs.copier_from(source / OBJECTS), report, BLOBS)
            if (source / PIECES_FOLDER).is_dir():
                copy_objects(tx, stores.pieces.copier_from(source / PIECES_FOLDER), report, PIECES)
            stores.blobs.forget_generation()  # of an interrupted restoration
        if key is not None and key != settings.root_key:
            copy_file(key, settings.root_key)
            flush_folder(str(settings.root_key.parent))
        _restore_database(settings, source, manifest, report)
    prepare(settings, is_restoration=True)
    asyncio.run(_forget_unrestored(settings))
    _end(settings, manifest)
    return manifest


def _end(settings: Settings, manifest: BackupManifest) -> None:
    """Remove the marks of a finished restoration."""
    if is_postgresql(settings.database):
        from registry.backup.postgresql import forget_mark  # noqa: PLC0415 - the driver

        _write_mark(settings, _mark(settings, manifest) + _ENDED)
        forget_mark(settings.database)
    (settings.data / UNDER_WAY).unlink()
    flush_folder(str(settings.data))


def _has_ended(settings: Settings, manifest: BackupManifest) -> bool:
    """Return True if this restoration is complete except for removing its marks."""
    with suppress(FileNotFoundError):
        return (settings.data / UNDER_WAY).read_text() == _mark(settings, manifest) + _ENDED
    return False


def _restore_database(
    settings: Settings, source: Path, manifest: BackupManifest, report: Report
) -> None:
    """Restore the database durably, without migrating it."""
    if is_postgresql(settings.database):
        from registry.backup.postgresql import restore_dump  # noqa: PLC0415 - the driver

        restore_dump(settings.database, source, manifest, report)
        return
    database = sqlite_path(settings.database)
    for suffix in ("-wal", "-shm"):  # of an interrupted restoration
        database.with_name(f"{database.name}{suffix}").unlink(missing_ok=True)
    copy_file(source / manifest.database.file, database)
    flush_folder(str(database.parent))


async def _forget_unrestored(settings: Settings) -> None:
    """Delete rows whose bytes no backup has; begin a new generation in database and store."""
    async with Registry(settings).open() as process:
        await process.ctx.database.write(forget_unfinished)
        await process.ctx.database.write(forget_nodes)
        await renew_generation(process.ctx, process.store)


def place_of(settings: Settings) -> str:
    """Return, in words, where the configured store keeps its objects."""
    store = settings.store
    if not store.store_s3_bucket:
        return str(settings.data)
    below = f" below {store.key_prefix}" if store.key_prefix else ""
    return f"the bucket {store.store_s3_bucket}{below}"


def _check_empty(settings: Settings, manifest: BackupManifest) -> bool:
    """Check that data folder and database are absent, empty, or partly filled by this restoration.

    Return True if this restoration is to be continued. Raise `RestoreRefused` or `DumpRefused` if
    they are anything else.
    """
    data, is_continued = settings.data, False
    if is_postgresql(settings.database) != (manifest.database.dump is not None):
        raise RestoreRefused(
            "the backup is of SQLite, and ENTREPOT_DATABASE_URL names another database: unset it"
            if manifest.database.dump is None
            else "the backup is of PostgreSQL: name an empty database with ENTREPOT_DATABASE_URL"
        )
    if data.exists() and any(data.iterdir()):
        with suppress(FileNotFoundError):
            is_continued = (data / UNDER_WAY).read_text() == _mark(settings, manifest)
        if not is_continued:
            raise RestoreRefused(
                f"{data} is not empty; name a folder that is, with --data, or move this one away"
            )
    elif manifest.database.dump is None and sqlite_path(settings.database).exists():
        raise RestoreRefused(f"there is a database already: {sqlite_path(settings.database)}")
    if manifest.database.dump is not None:
        from registry.backup.postgresql import check_empty  # noqa: PLC0415 - the driver

        check_empty(settings.database, manifest, is_continued=is_continued)
    return is_continued


def _root_key(
    settings: Settings, source: Path, manifest: BackupManifest, given: Path | None
) -> Path | None:
    """Return the file of the root key, or None if the registry has none.

    Raise `RestoreRefused` if the root key is neither passed, nor in the backup, nor where the
    settings say; or if the file there, which is never replaced, has another key.
    """
    found = given or (source / ROOT_KEY if manifest.root_key == "included" else None)
    if found is not None:
        if settings.root_key.exists() and settings.root_key.read_bytes() != found.read_bytes():
            raise RestoreRefused(
                f"{settings.root_key} is another root key than {found}; move it away, or name"
                " another place with ENTREPOT_ROOT_KEY_FILE"
            )
        return found
    if settings.root_key.exists():
        return settings.root_key
    if manifest.root_key == "none":
        return None
    raise RestoreRefused(
        "the backup has no root key, and without it no secret can be read: give the copy that you"
        " keep elsewhere with --root-key FILE"
    )


def _check_root_key(copy: Path, key: Path | None) -> None:
    """Check that the root key opens the signing keys of the database.

    Raise `RestoreRefused` if it does not, `BackupUnusable` if the database cannot be read.
    """
    if key is None:
        return
    try:
        with reading(copy) as tx:
            kept = list_signing_keys(tx)
        is_right = opens_all(load_keyring(key), kept)
    except sqlite3.DatabaseError as error:
        raise BackupUnusable(f"{copy} cannot be read: {error}") from error
    except KeyringError as error:
        raise RestoreRefused(str(error)) from None
    if not is_right:
        raise RestoreRefused(f"{key} is not the root key of this backup")


def _mark(settings: Settings, manifest: BackupManifest) -> str:
    """Return the text that marks the data folder as being restored from this backup."""
    if not settings.store.store_s3_bucket:
        return manifest.id
    return f"{manifest.id} {place_of(settings)} {settings.store.store_s3_endpoint}"


def _write_mark(settings: Settings, mark: str) -> None:
    with (settings.data / UNDER_WAY).open("w") as file:
        file.write(mark)
        file.flush()
        os.fsync(file.fileno())
    flush_folder(str(settings.data))
