"""Providers: who wraps the material of keys, so that no row holds it in the open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, Protocol

from cloudcore.errors import Unavailable
from cloudcore.keyring import Keyring, KeyringError


class VersionRef(NamedTuple):
    """The version of a key that material belongs to; wraps are bound to it."""

    account_id: str
    key_id: str
    version: int

    def words(self) -> Mapping[str, str]:
        """Return it as an encryption context of AWS KMS."""
        return {
            "account": self.account_id,
            "key": self.key_id,
            "version": str(self.version),
        }


class Provider(Protocol):
    """Wraps and unwraps the material of keys."""

    @property
    def name(self) -> str:
        """Return the name that versions record."""
        ...

    async def wrap(self, material: bytes, ref: VersionRef) -> bytes:
        """Wrap the material of a version.

        Raise `Unavailable` if the provider cannot be reached, or refuses.
        """
        ...

    async def unwrap(self, wrapped: bytes, ref: VersionRef) -> bytes:
        """Return the material that was wrapped for this version.

        Raise `Unavailable` if the provider cannot be reached, refuses, or did not wrap it for this
        version.
        """
        ...


class MaterialBroken(Unavailable):
    """Material does not open: its row was changed, or another root key is in use."""

    def __init__(self) -> None:
        super().__init__(
            "the key's material does not open: its row was changed, or another root key is in use; "
            "ask the operator"
        )


@dataclass(eq=False)
class EmbeddedProvider:
    """Wraps under the root key of this install: AES-256-GCM, bound to account, key and version."""

    name: ClassVar[str] = "embedded"

    keyring: Keyring

    async def wrap(self, material: bytes, ref: VersionRef) -> bytes:
        """Wrap the material of a version."""
        return self.keyring.seal(material, _context(ref))

    async def unwrap(self, wrapped: bytes, ref: VersionRef) -> bytes:
        """Return the material of a version; raise `MaterialBroken` if it does not open."""
        try:
            return self.keyring.open(wrapped, _context(ref))
        except KeyringError:
            raise MaterialBroken from None


class Providers:
    """The providers of an install: one wraps what is new, each unwraps what it has wrapped."""

    def __init__(self, current: Provider, *others: Provider) -> None:
        self.current: Final = current
        self._by_name: Final = {each.name: each for each in (current, *others)}

    async def unwrap(self, provider: str, wrapped: bytes, ref: VersionRef) -> bytes:
        """Return the material of a version by the provider that wrapped it.

        Raise `Unavailable` if it cannot, or this process has no such provider.
        """
        found = self._by_name.get(provider)
        if found is None:
            raise Unavailable(
                f"the key's material is wrapped by the provider '{provider}', which is not set up "
                "here; ask the operator"
            )
        return await found.unwrap(wrapped, ref)


def _context(ref: VersionRef) -> str:
    return f"kms key version:{ref.account_id}:{ref.key_id}:{ref.version}"
