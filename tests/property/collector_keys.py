"""The KMS keys of the collector's world: made, bound, disabled and deleted while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.keyring import Keyring
from cloudcore.kms import services
from cloudcore.kms.key import Key
from cloudcore.kms.providers import EmbeddedProvider, Providers
from cloudcore.kms.services import KeyMaker
from registry.metadata.collector.erasure import (
    erase_quarantined_wraps,
    erase_wraps,
    keys_to_erase,
)
from registry.metadata.encryption_bindings import add_binding, end_binding
from registry.metadata.repositories.repository import find_repository
from registry.services.data_keys import DataKeys
from tests.property.interleaving import drive
from tests.property.lone_vault import LoneVault

if TYPE_CHECKING:
    from tests.property.collector_world import Yard

KEYRING: Final = Keyring(bytes(range(32)))
NAMES: Final = ("first", "second")


@dataclass
class YardKeys:
    """The keys of a run."""

    yard: Yard
    customers: Sequence[Key] = ()
    are_changed: bool = False
    """Some key was disabled or deleted in this run, so that pulls and pushes may be refused."""

    def data_keys(self) -> DataKeys:
        """Return the data keys of the run's account."""
        yard = self.yard
        return DataKeys(LoneVault(yard.database, Providers(EmbeddedProvider(KEYRING)), yard.clock))

    def make(self) -> None:
        """Add the platform key of the account, and two others."""
        yard = self.yard
        maker = KeyMaker(Providers(EmbeddedProvider(KEYRING)), "local", yard.ctx.new_id)
        write = yard.database.write
        drive(write(drive(maker.prepare_platform_key(yard.account_id, yard.clock()))))
        made = [drive(maker.new_key(yard.account_id, name, yard.clock())) for name in NAMES]
        self.customers = [drive(write(services.create_key, *each)) for each in made]
        self.are_changed = False

    def bind(self, repository: str, key: Key | None) -> None:
        """Let a repository write under a key, or under the platform key."""
        drive(self.yard.database.write(self._bind, repository, key))

    def _bind(self, tx: Connection, repository: str, key: Key | None) -> None:
        found, now = find_repository(tx, "dev", repository), self.yard.clock()
        if found is None:
            return
        end_binding(tx, found.account_id, found.id, now)
        if key is not None:
            new_id = self.yard.ctx.new_id()
            add_binding(tx, new_id, found.account_id, found.id, key.id, now)

    def disable(self, key: Key) -> None:
        """Disable a key."""
        self.are_changed = True
        self._change(services.disable_key, key)

    def enable(self, key: Key) -> None:
        """Enable a key, if it is disabled."""
        self._change(services.enable_key, key)

    def delete(self, key: Key) -> None:
        """Delete a key, as if its time had come."""
        self.are_changed = True
        if self._change(services.schedule_deletion, key, 7):
            due = self.yard.clock() + 8 * 24 * 3600 * MICROSECONDS
            drive(self.yard.database.write(_delete, key, due))

    def _change(self, change: Callable[..., object], key: Key, *options: int) -> bool:
        try:
            drive(self.yard.database.write(_apply, change, key, [*options, self.yard.clock()]))
        except Conflict:
            return False
        return True

    def shred(self) -> None:
        """Erase what deleted keys have wrapped, of one blob after the other."""
        read, write = self.yard.database.read, self.yard.database.write
        for key in drive(read(keys_to_erase, "", 10)):
            while (done := drive(write(erase_wraps, key, 1))).objects:
                self.yard.tally["shredded"] += done.shredded
            while drive(write(erase_quarantined_wraps, key, 1)):
                pass


def _apply(tx: Connection, change: Callable[..., object], key: Key, options: list[int]) -> None:
    change(tx, key, *options)


def _delete(tx: Connection, key: Key, due: int) -> None:
    services.delete_due_key(tx, key.account_id, key.id, due)
