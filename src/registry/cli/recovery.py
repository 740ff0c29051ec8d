"""``entrepot gc recover``: bring a blob back from the quarantine."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from typing import Final

from cloudcore.errors import NotFound
from registry.cli.existing_data import prepare_existing
from registry.cli.failure import CommandFailure, Missing, Misuse
from registry.cli.output import duration_text, write_now
from registry.cli.own_keys import find_data_keys
from registry.cli.server_options import settings_of
from registry.errors import BlobUnknown, DigestMismatch
from registry.gc.recovery import recover_blob
from registry.main import Registry
from registry.oci.digest import Digest
from registry.oci.reference import Name, parse_name
from registry.services.repositories.names import get_named_repository
from registry.settings import Settings

_NOT_THERE: Final = (
    "it was not swept yet (then a push of the same bytes takes it back), it was recovered or"
    " pushed again, or its bytes are gone"
)


def run_recovery(options: argparse.Namespace) -> int:
    """Recover the blob of this digest into a repository, ``ACCOUNT/NAME``."""
    settings = settings_of(options)
    name, wanted = parse_name(options.repository), Digest.parse(options.digest)
    if wanted.algorithm != "sha256":
        raise Misuse("the quarantine knows blobs by their sha256")
    prepare_existing(settings)
    try:
        asyncio.run(_recover(settings, name, wanted))
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
    return 0


async def _recover(settings: Settings, name: Name, digest: Digest) -> None:
    async with Registry(settings).open() as process:
        ctx = replace(process.ctx, data_keys=find_data_keys(settings, process.ctx))
        found = await ctx.database.read(get_named_repository, name)
        await recover_blob(ctx, found.account_id, found.id, digest)
