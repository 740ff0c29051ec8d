"""Change an install's database by a command on its machine, and write audit events of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from cloudcore.audit.rows import add_event
from cloudcore.clock import uuid7
from cloudcore.command_failures import Missing
from cloudcore.db.base import Connection
from cloudcore.errors import NotFound
from cloudcore.iam.audit import AuditEvent
from cloudcore.keyring import Keyring
from registry.cli.server.existing_data import on_data
from registry.cli.server.serve import check_install
from registry.composition.stores import RegistryStores
from registry.settings.settings import Settings

T = TypeVar("T")


def write_on_host(settings: Settings, change: Callable[[Connection, Keyring, int], T]) -> T:
    """Call `change` with a transaction, the keyring and the time (microseconds); return its result.

    Raise `Missing` if `change` raises NotFound; `SettingsError` if the data folder has no install,
    or the root key cannot be used.
    """

    async def write(stores: RegistryStores) -> T:
        ctx = stores.ctx
        keyring = await check_install(settings, ctx)
        return await ctx.database.write(change, keyring, ctx.clock())

    try:
        return on_data(settings, write)
    except NotFound as error:
        raise Missing(str(error)) from None


def record_on_host(
    tx: Connection, action: str, owners: Sequence[str], resource: str, command: str, now: int
) -> None:
    """Write an audit event of a change by `command` for each owner, in the change's transaction."""
    for owner_id in owners:
        event = AuditEvent(
            id=uuid7(now),
            owner_id=owner_id,
            occurred_at=now,
            action=action,
            resources=(resource,),
            principal="",
            source=None,
            client=None,
            details={"command": command},
        )
        add_event(tx, event)
