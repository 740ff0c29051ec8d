"""``entrepot gc``: list and restore files without a row, and blobs in quarantine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cloudcore.command_failures import CommandFailure, Missing, Misuse
from cloudcore.commands.nouns import Cell
from cloudcore.commands.records import (
    duration_text,
    utc_text,
    write_now,
    write_records,
)
from cloudcore.errors import NotFound
from registry.blobstore.base import Orphan
from registry.blobstore.store import BlobSweeper
from registry.cli.client.api import Record
from registry.cli.server.existing_data import find_data_keys, on_data
from registry.cli.server.options import settings_of
from registry.composition.stores import RegistryStores
from registry.errors import BlobUnknown, DigestMismatch
from registry.gc.database_rollback import accept_database
from registry.gc.orphans import list_orphans, take_back_owned
from registry.gc.recovery import recover_blob
from registry.oci.digest import Digest
from registry.oci.reference import parse_name
from registry.services.repositories.names import get_named_repository

_COLUMNS: Final = (
    "id",
    Cell("WAS", "kind"),
    Cell("BYTES", "bytes", "size"),
    "set_aside_at",
    Cell("KEPT UNTIL", "kept_until", "time"),
)
_NOT_THERE: Final = (
    "it was not swept yet (then a push of the same bytes takes it back), it was recovered or"
    " pushed again, or its bytes are gone"
)


def run_listing(options: argparse.Namespace) -> None:
    """Print all orphans, the next to be deleted first."""
    settings = settings_of(options)
    orphans = on_data(settings, lambda stores: list_orphans(stores.store))
    write_records(
        [_record(orphan, settings.delays.orphan) for orphan in orphans], _COLUMNS, options.output
    )


def run_restoration(options: argparse.Namespace) -> None:
    """Put the orphans with the given ids, or all, back into the store, with or without a row."""
    if bool(options.ids) == options.are_all:
        raise Misuse("name the orphans by their ids or give --all, not both")
    ids = None if options.are_all else options.ids
    count = on_data(settings_of(options), lambda stores: _restore(stores.store, ids))
    rest = "those that no row owns are set aside anew by the next scan"
    write_now(f"{count} files put back; {rest}\n")


def run_acceptance(options: argparse.Namespace) -> None:
    """Accept the current database as the one that belongs to the store."""
    settings = settings_of(options)

    async def accept(stores: RegistryStores) -> None:
        await take_back_owned(stores.ctx, stores.store)
        await accept_database(stores.ctx, stores.store)

    on_data(settings, accept)
    write_now(
        "The database is accepted: collection and the scan for orphans go on. Blobs that it does"
        " not know are set aside, and can be put back for some days ('entrepot gc orphans')\n"
    )


async def _restore(sweeper: BlobSweeper, ids: Sequence[str] | None) -> int:
    known = {orphan.object_id for orphan in await list_orphans(sweeper)}
    unknown = [each for each in ids or () if each not in known]
    if unknown:
        raise Missing(f"no orphan has the id {unknown[0]}; 'entrepot gc orphans' lists them")
    count = 0
    for each in sorted(known) if ids is None else dict.fromkeys(ids):
        count += await sweeper.take_back(each)
    return count


def _record(orphan: Orphan, kept: int) -> Record:
    return {
        "id": orphan.object_id,
        "kind": "object" if orphan.is_object else "staged",
        "bytes": orphan.stored_size,
        "set_aside_at": utc_text(orphan.set_aside_at),
        "kept_until": utc_text(orphan.set_aside_at + kept),
    }


def run_recovery(options: argparse.Namespace) -> None:
    """Recover a blob, by its digest, from the quarantine into a repository (``ACCOUNT/NAME``)."""
    settings = settings_of(options)
    name, wanted = parse_name(options.repository), Digest.parse(options.digest)
    if wanted.algorithm != "sha256":
        raise Misuse("the quarantine knows blobs by their sha256")

    async def recover(stores: RegistryStores) -> None:
        ctx = replace(stores.ctx, data_keys=find_data_keys(settings, stores.ctx))
        found = await ctx.database.read(get_named_repository, name)
        await recover_blob(ctx, found.account_id, found.id, wanted)

    try:
        on_data(settings, recover)
    except BlobUnknown as error:
        raise Missing(f"{error}: {_NOT_THERE}") from None
    except NotFound as error:
        raise Missing(str(error)) from None
    except DigestMismatch as error:
        raise CommandFailure(f"{wanted} is damaged and stays in quarantine: {error}") from None
    grace = duration_text(settings.delays.gc_grace_seconds)
    write_now(
        f"Recovered {wanted}: {name} keeps it for {grace}, and while a manifest references it\n"
    )
