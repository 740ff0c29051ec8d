"""Take a backup beside a running server: first the database, then the blobs that it names.

Deletions are held from before the database is copied until the last blob is copied, so every blob
that the copied database names is still there (`registry.blobstore.backups`; on PostgreSQL, the
deletions of all nodes: `registry.blobstore.locks`). Pushes and pulls continue.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Final, Literal

from cloudcore.clock import uuid7
from cloudcore.db.opening import is_postgresql, sqlite_path
from cloudcore.db.sqlite_connection import copy_database, reading, reading_live
from cloudcore.resource_names import UUID_PATTERN
from cloudcore.storage.pieces.rows import is_needed
from registry.backup import files, objects
from registry.backup.manifest import (
    FORMAT,
    LOCK,
    NAME,
    OBJECTS,
    PIECES_FOLDER,
    ROOT_KEY,
    BackupManifest,
    BackupUnusable,
    Damage,
    DatabaseFile,
    read_manifest,
    write_manifest,
)
from registry.backup.stores import deletions_stopped, open_object_stores
from registry.blobstore.backups import PATIENCE_SECONDS, recorded_backup
from registry.blobstore.disk.disk_io import flush_folder, make_folder
from registry.blobstore.disk.folders import SHARDS
from registry.blobstore.opening import backup_times_folder
from registry.metadata.collector.generations import first_account
from registry.settings.settings import Settings

_COPY: Final = re.compile(
    rf"((?:metadata|catalog)-{UUID_PATTERN}\.(?:db|dump))(-journal|-wal|-shm)?"
)
"""The name of a database copy, or of a file that SQLite writes beside it."""


class BackupRefused(Exception):
    """A backup to this folder would do harm, or is impossible with these options."""


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """Options of a backup."""

    links: bool = False
    """Hard-link blobs instead of copying them."""
    verifies: bool = False
    """Hash every blob in the backup, instead of only comparing its size."""
    includes_root_key: bool = False
    patience_seconds: float = PATIENCE_SECONDS
    """Time to wait for running deletions."""


def take_backup(
    settings: Settings, target: Path, report: objects.Report, options: BackupOptions
) -> tuple[BackupManifest, objects.Copied]:
    """Update the backup in `target`, or begin one; return its manifest and totals. Blocks.

    Blobs that the backup has are not copied again. The earlier backup stays intact until the new
    manifest is written; files that only the earlier backup needed are deleted after that.

    Raises:
        BackupRefused: `target` has other files, or the backup of another registry; or the data
            belongs to another user; or the options are impossible.
        BackupUnusable: `target` has a backup that this program cannot read.
        FolderBusy: another process uses `target`.
        HeldByAnother: another backup of this registry is under way.
        HoldLost: the connection that held the deletions of all nodes broke.

    """
    if options.links and settings.store.store_s3_bucket:
        raise BackupRefused("the blobs are in a bucket, where no link can lead: leave --link out")
    _check_place(settings, target)
    registry = _registry_of(settings)
    make_folder(target)
    with files.locked(target / LOCK), recorded_backup(backup_times_folder(settings)) as complete:
        before = read_manifest(target)
        if before is not None and before.registry != registry:
            raise BackupRefused(f"{target} has the backup of another registry; name another folder")
        _remove_strays(target, before)
        files.make_shards(target / OBJECTS, SHARDS)
        files.make_shards(target / PIECES_FOLDER, SHARDS)
        if options.links and not files.is_same_file_system(settings.blobs, target / OBJECTS):
            raise BackupRefused(
                f"{target} is on another file system than the blobs, where no link can lead: leave"
                " --link out"
            )
        suspects = frozenset(each.id for each in before.damaged) if before else frozenset[str]()
        backup_id, begun_at = uuid7(), _now()
        with _kept_if_complete(target):
            with (
                open_object_stores(settings) as stores,
                deletions_stopped(settings, options.patience_seconds) as check_held,
            ):
                generation = stores.blobs.generation()
                database, damaged = _copy_database(
                    settings, target, backup_id, report, verifies=options.verifies
                )
                with reading(target / database.readable) as tx:
                    copy = partial(
                        objects.copy_objects,
                        tx,
                        report=report,
                        suspects=suspects,
                        verifies=options.verifies,
                    )
                    blobs = stores.blobs.copier_to(target / OBJECTS, links=options.links)
                    copied = copy(blobs, names=objects.BLOBS)
                    copied.damaged.extend(damaged)
                    others = stores.pieces.copier_to(target / PIECES_FOLDER, links=options.links)
                    pieces = copy(others, names=objects.PIECES)
                    copied.damaged.extend(
                        each
                        for each in pieces.damaged
                        if database.dump is not None or is_needed(tx, each.id)
                    )
                check_held()
            manifest = BackupManifest(
                format=FORMAT,
                id=backup_id,
                registry=registry,
                begun_at=begun_at,
                finished_at=_now(),
                version=metadata.version("entrepot"),
                generation=generation,
                database=database,
                objects=copied.objects,
                object_bytes=copied.object_bytes,
                root_key=_keep_root_key(settings, target, is_asked=options.includes_root_key),
                is_verified=options.verifies,
                damaged=copied.damaged,
                pieces=pieces.objects,
                piece_bytes=pieces.object_bytes,
            )
            flush_folder(str(target))
            write_manifest(target, manifest)
            complete()
        _remove_rest(target, manifest)
    return manifest, copied


def _check_place(settings: Settings, target: Path) -> None:
    """Raise `BackupRefused` if a backup must not be written to `target`."""
    wanted = target.resolve()
    for place in (settings.data, settings.blobs, settings.buckets):  # two of them may be links
        own = place.resolve()
        if wanted == own or own in wanted.parents or wanted in own.parents:
            raise BackupRefused(
                f"{target} and the data folder {settings.data} are one inside the other: what"
                " destroys the data would destroy the backup"
            )
    if target.exists():
        names = {each.name for each in target.iterdir()}
        if names and not names & {NAME, LOCK}:
            raise BackupRefused(f"{target} has other files; name an empty folder, or a backup")


def _registry_of(settings: Settings) -> str:
    """Return the id of the first account, which identifies the registry in its backups.

    Raise `BackupRefused` if there is no account yet, or if another user owns the data: that user
    could not open the files that a backup creates there.
    """
    is_sqlite = not is_postgresql(settings.database)
    path = sqlite_path(settings.database) if is_sqlite else backup_times_folder(settings)
    owner = path.stat().st_uid
    if owner != os.geteuid():
        raise BackupRefused(
            f"{path} belongs to {_user_name(owner)}, and files that this creates beside it must"
            f" too: run this as that user, such as 'runuser -u {_user_name(owner)} -- entrepot"
            " backup …'"
        )
    if is_sqlite:
        with reading_live(path) as tx:
            account_id = first_account(tx)
    else:
        from registry.backup.postgresql import first_account_of  # noqa: PLC0415 - the driver

        account_id = first_account_of(settings.database)
    if account_id is None:
        raise BackupRefused("there is no account, so there is nothing to back up")
    return account_id


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"


def _copy_database(
    settings: Settings, target: Path, backup_id: str, report: objects.Report, *, verifies: bool
) -> tuple[DatabaseFile, list[Damage]]:
    """Copy the database to `target`; return the copy and its damaged inline objects."""
    if is_postgresql(settings.database):
        from registry.backup.postgresql import dump_database  # noqa: PLC0415 - the driver

        return dump_database(settings.database, target, backup_id, report, verifies=verifies)
    copy = target / f"metadata-{backup_id}.db"
    copy_database(
        sqlite_path(settings.database),
        copy,
        lambda done, total: report(objects.CopyProgress("database pages", done, total)),
    )
    with reading(copy) as tx:
        damaged = objects.damaged_inline(tx, verifies=verifies)
    return DatabaseFile(copy.name, files.size_of(copy) or 0, files.sha256_of(copy)), damaged


def _keep_root_key(
    settings: Settings, target: Path, *, is_asked: bool
) -> Literal["included", "kept elsewhere", "none"]:
    """Copy the root key to the backup if `is_asked`; return where the root key is."""
    if is_asked:
        files.copy_file(settings.root_key, target / ROOT_KEY)
        return "included"
    return "kept elsewhere" if settings.root_key.exists() else "none"


@contextmanager
def _kept_if_complete(target: Path) -> Iterator[None]:
    """If the block raises, delete the database copy, unless the manifest already names it."""
    try:
        yield
    except BaseException:
        with suppress(OSError, BackupUnusable):  # the next backup deletes it
            _remove_strays(target, read_manifest(target))
        raise


def _remove_strays(target: Path, manifest: BackupManifest | None) -> None:
    """Delete database copies and root keys that the manifest does not name.

    They were left by earlier or interrupted backups. Files with other names stay. The caller holds
    the lock of `target`.
    """
    databases = () if manifest is None else manifest.database.files
    keys = {ROOT_KEY, f"{ROOT_KEY}{files.PART}"}
    if manifest is not None and manifest.root_key == "included":
        keys.remove(ROOT_KEY)
    for path in target.iterdir():
        copy = _COPY.fullmatch(path.name)
        if path.name in keys or (copy and copy[1] not in databases and path.is_file()):
            path.unlink()


def _remove_rest(target: Path, manifest: BackupManifest) -> None:
    """Delete files that only earlier or interrupted backups needed."""
    _remove_strays(target, manifest)
    with reading(target / manifest.database.readable) as tx:
        objects.remove_others(tx, target / OBJECTS, objects.BLOBS)
        objects.remove_others(tx, target / PIECES_FOLDER, objects.PIECES)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
