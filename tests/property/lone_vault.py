"""A vault for coroutines that are driven without an event loop."""

from __future__ import annotations

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cloudcore.kms.providers import VersionRef
from cloudcore.kms.rows import KeyVersion
from cloudcore.kms.vault import Vault


class LoneVault(Vault):
    """A vault in which nobody waits for what another opens: there is no event loop."""

    async def _cipher(self, ref: VersionRef, row: KeyVersion | None) -> AESGCM:
        return await super()._cipher(ref, row) if row is None else await self._open(ref, row)
