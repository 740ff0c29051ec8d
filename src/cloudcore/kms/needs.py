"""The dependencies of the key routes, and the ports to make keys and to encrypt under them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cloudcore.clock import Clock
from cloudcore.db.base import Database
from cloudcore.iam.audit import AUDITOR, Auditor
from cloudcore.kms.providers import Providers
from cloudcore.kms.services import KeyMaker
from cloudcore.kms.vault import PlatformKeys, Vault
from cloudcore.ports import Opening, Port, offer

PROVIDERS: Final[Port[Providers]] = Port("kms.providers")
"""The providers that wrap the material of keys."""
KEY_MAKER: Final[Port[KeyMaker]] = Port("kms.key_maker")
VAULT: Final[Port[Vault]] = Port("kms.vault")
PLATFORM_KEYS: Final[Port[PlatformKeys]] = Port("kms.platform_keys")


@dataclass(frozen=True, slots=True, kw_only=True)
class KmsNeeds:
    """The dependencies of the routes and the timer of keys."""

    database: Database
    clock: Clock
    new_id: Callable[[], str]
    maker: KeyMaker
    vault: Vault
    auditor: Auditor
    """Records the deletion of keys."""


async def open_needs(opening: Opening) -> KmsNeeds:
    """Return the KMS dependencies of this process."""
    install = opening.install
    return KmsNeeds(
        database=install.database,
        clock=install.clock,
        new_id=install.new_id,
        maker=await opening.get(KEY_MAKER),
        vault=await opening.get(VAULT),
        auditor=await opening.get(AUDITOR),
    )


async def _open_maker(opening: Opening) -> KeyMaker:
    install = opening.install
    return KeyMaker(await opening.get(PROVIDERS), install.region, install.new_id)


async def _open_vault(opening: Opening) -> Vault:
    install = opening.install
    return Vault(install.database, await opening.get(PROVIDERS), install.clock)


async def _open_platform_keys(opening: Opening) -> PlatformKeys:
    return PlatformKeys(opening.install.database, await opening.get(VAULT))


OFFERS: Final = (
    offer(KEY_MAKER, _open_maker),
    offer(VAULT, _open_vault),
    offer(PLATFORM_KEYS, _open_platform_keys),
)
