"""Carry out ``entrepot backup`` and ``entrepot restore``."""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Callable
from pathlib import Path
from shlex import quote

from cloudcore.command_failures import CommandFailure, Misuse
from cloudcore.commands.progress import progress
from cloudcore.commands.records import size_text, write_now
from cloudcore.db.opening import is_postgresql, sqlite_path
from cloudcore.db.refusals import DiskFull, is_full
from cloudcore.db.sqlite_connection import unusable
from registry.backup.errors import DumpRefused, ProgramFailed
from registry.backup.files import FolderBusy
from registry.backup.manifest import NAME as MANIFEST
from registry.backup.manifest import OBJECTS, BackupManifest, BackupUnusable, Damage
from registry.backup.objects import CopyProgress, Report
from registry.backup.restoring import RestoreRefused, place_of, restore_backup
from registry.backup.stores import HoldLost
from registry.backup.taking import BackupOptions, BackupRefused, take_backup
from registry.blobstore.backups import HeldByAnother
from registry.cli.server.existing_data import no_account
from registry.cli.server.fsck import CheckResult, check_data
from registry.cli.server.options import DEFAULT_DATA, settings_of
from registry.composition.unfinished_restoration import check_is_whole
from registry.metadata.database import has_tables
from registry.settings.settings import Settings


def run_backup(options: argparse.Namespace) -> int:
    """Take a backup; return the exit status, 1 if blobs are missing or damaged."""
    settings, target = settings_of(options), options.target
    check_is_whole(settings)
    if not settings.data.exists() or not _has_database(settings):
        raise no_account(settings)
    wanted = BackupOptions(options.link, options.verify, options.include_root_key)
    try:
        with progress() as show:
            manifest, copied = take_backup(settings, target, _reporter(show), wanted)
    except (BackupRefused, BackupUnusable, DumpRefused) as error:
        raise Misuse(str(error)) from None
    except (FolderBusy, HoldLost, ProgramFailed) as error:
        raise CommandFailure(str(error)) from None
    except HeldByAnother:
        raise CommandFailure("another backup of this registry is under way") from None
    except OSError as error:
        raise _named(error, target) from None
    except sqlite3.Error as error:
        is_dumped = is_postgresql(settings.database)
        database = target if is_dumped else sqlite_path(settings.database)
        for path in (target / MANIFEST, database):
            if is_full(path, error):
                raise DiskFull(path) from None
        raise CommandFailure(str(unusable(database, error, "copy"))) from None
    write_now(
        f"Backup {manifest.id} of {manifest.finished_at} is complete in {target}:"
        f" {copied.objects} blobs, {size_text(copied.object_bytes)};"
        f" {copied.new_objects} of them new, {size_text(copied.new_bytes)}\n"
    )
    if manifest.root_key == "kept elsewhere":
        write_now(
            f"It has no root key. Keep a copy of {settings.root_key} elsewhere: without it, the"
            " backup's secrets cannot be read\n"
        )
    _write_damaged(manifest.damaged)
    return 1 if manifest.damaged else 0


def run_restore(options: argparse.Namespace) -> int:
    """Restore a backup, check it, and print the next step; return 1 if there is damage."""
    settings = settings_of(options)
    try:
        with progress() as show:
            manifest = restore_backup(settings, options.source, options.root_key, _reporter(show))
    except (BackupUnusable, DumpRefused, RestoreRefused) as error:
        raise Misuse(str(error)) from None
    except (FolderBusy, ProgramFailed) as error:
        raise CommandFailure(str(error)) from None
    except OSError as error:
        raise _named(error, settings.data) from None
    where = "" if settings.data == DEFAULT_DATA else f" --data {quote(str(settings.data))}"
    in_bucket = settings.store.store_s3_bucket != ""
    objects = f"{place_of(settings)}, objects/" if in_bucket else settings.blobs / OBJECTS
    also = f", its blobs in {place_of(settings)}" if in_bucket else ""
    write_now(f"The backup of {manifest.finished_at} is restored in {settings.data}{also}\n")
    for each in manifest.damaged:
        write_now(f"blob {each.digest}, as the backup was taken: {each.problem}\n")
    checked = check_data(settings, read_objects=not options.quick)
    damage = _damage_of(checked, manifest)
    if damage:
        write_now(
            f"The restored registry is damaged ({damage}), as named above. Do one of these:\n"
            "  restore a backup that is whole into another folder (--data)\n"
            f"  or bring the blobs from another backup to {objects}, then\n"
            f"    entrepot fsck{where}\n"
            "  or serve it and push the named images again, which heals their blobs:\n"
            f"    entrepot serve{where}\n"
        )
    else:
        write_now(f"Next:\n  entrepot serve{where}\n")
    write_now("What was deleted or revoked after the backup, also access keys, is there again\n")
    return 1 if damage else 0


def _damage_of(checked: CheckResult, manifest: BackupManifest) -> str:
    """Describe the damage of a restored registry; return an empty string if there is none."""
    report = checked.report
    blobs = max(report.damaged_count, len(manifest.damaged))  # ``--quick`` sees only sizes
    others = len(report.violations) - report.damaged_count
    found = []
    if blobs:
        images = len(report.damaged_images)
        found.append(f"damaged blobs: {blobs}, images that need them: {images}")
    if others:
        found.append(f"wrong entries of the database, which only another backup mends: {others}")
    if checked.warning:
        found.append("its database and blobs do not belong together")
    return "; ".join(found)


def _named(error: OSError, written: Path) -> Exception:
    """Return `DiskFull` if the error means that the disk of `written` is full, else `error`."""
    return DiskFull(written) if is_full(written, error) else error


def _has_database(settings: Settings) -> bool:
    if is_postgresql(settings.database):
        return has_tables(settings.database)
    return sqlite_path(settings.database).exists()


def _reporter(show: Callable[[str], None]) -> Report:
    def report(done: CopyProgress) -> None:
        copied = f", {size_text(done.copied_bytes)} copied" if done.copied_bytes else ""
        show(f"{done.stage} {done.done} of {done.total}{copied}")

    return report


def _write_damaged(damaged: list[Damage]) -> None:
    for each in damaged:
        write_now(f"blob {each.digest}: {each.problem}\n")
    if damaged:
        write_now(
            f"{len(damaged)} blobs are not in the backup, or damaged: 'entrepot fsck' names the"
            " images that need them, and a push of the same image heals them\n"
        )
