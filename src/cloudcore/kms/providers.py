"""Providers, which wrap the material of keys, so that the database never has it in plain text.

The provider for AWS KMS uses boto3, which finds credentials in its usual places (environment,
files, role of the machine).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from threading import Lock
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from cloudcore.errors import Unavailable
from cloudcore.keyring import Keyring, KeyringError


class VersionRef(NamedTuple):
    """A version of a key. Wrapped material is bound to its version."""

    account_id: str
    key_id: str
    version: int

    def encryption_context(self) -> Mapping[str, str]:
        """Return the version as an AWS KMS encryption context."""
        return {
            "account": self.account_id,
            "key": self.key_id,
            "version": str(self.version),
        }


class Provider(Protocol):
    """Wraps and unwraps the material of keys."""

    @property
    def name(self) -> str:
        """Return the provider's name, which is stored with each version."""

    async def wrap(self, material: bytes, ref: VersionRef) -> bytes:
        """Wrap the material of a version.

        Raise `Unavailable` if the provider cannot be reached, or refuses.
        """

    async def unwrap(self, wrapped: bytes, ref: VersionRef) -> bytes:
        """Return the material that was wrapped for this version.

        Raise `Unavailable` if the provider cannot be reached, refuses, or did not wrap the material
        for this version.
        """


class MaterialBroken(Unavailable):
    """Material cannot be opened: its row was changed, or another root key is in use."""

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
    """The providers of an install: `current` wraps new material, each unwraps what it wrapped."""

    def __init__(self, current: Provider, *others: Provider) -> None:
        self.current: Final = current
        self._by_name: Final = {each.name: each for each in (current, *others)}

    async def unwrap(self, provider: str, wrapped: bytes, ref: VersionRef) -> bytes:
        """Return the material of a version, using the provider that wrapped it.

        Raise `Unavailable` if the provider cannot be used, or is not configured in this process.
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


CONNECT_SECONDS: Final = 3
READ_SECONDS: Final = 5
_ATTEMPTS: Final = 3
_THREADS: Final = 10
"""Concurrent calls; boto3 has the same number of connections. The threads are separate from those
of the event loop, which open files: if AWS does not answer, a call blocks its thread for some 20
seconds."""
_ARN_PARTS: Final = 6

_log = logging.getLogger(__name__)


class AwsMissing(Exception):
    """The package boto3 is not installed."""

    def __init__(self) -> None:
        super().__init__("AWS KMS needs the package boto3: pip install 'entrepot[aws]'")


class AwsProvider:
    """Wraps with Encrypt and Decrypt of AWS KMS; account, key and version are the context."""

    name: Final = "aws"

    def __init__(self, key: str, endpoint: str = "") -> None:
        """Use the symmetric AWS key with this ARN, id or alias; `endpoint` replaces the AWS URL.

        Raise `AwsMissing` if boto3 is not installed.
        """
        if find_spec("boto3") is None:
            raise AwsMissing
        self._key = key
        self._endpoint = endpoint
        self._making = Lock()
        self._threads = ThreadPoolExecutor(_THREADS, "aws-kms")

    async def wrap(self, material: bytes, ref: VersionRef) -> bytes:
        """Wrap the material of a version."""

        def encrypt() -> bytes:
            answer = self._client.encrypt(
                KeyId=self._key, Plaintext=material, EncryptionContext=ref.encryption_context()
            )
            return bytes(answer["CiphertextBlob"])

        return await self._asked("encrypt", encrypt)

    async def unwrap(self, wrapped: bytes, ref: VersionRef) -> bytes:
        """Return the material of a version."""

        def decrypt() -> bytes:
            # KeyId is passed so that a tampered row cannot make AWS use another key.
            answer = self._client.decrypt(
                KeyId=self._key, CiphertextBlob=wrapped, EncryptionContext=ref.encryption_context()
            )
            return bytes(answer["Plaintext"])

        return await self._asked("decrypt", decrypt)

    @property
    def _client(self) -> Any:  # noqa: ANN401 - boto3 makes the class
        with self._making:  # sessions are not safe for threads, clients are
            return self._made

    @cached_property
    def _made(self) -> Any:  # noqa: ANN401 - boto3 makes the class
        import boto3  # noqa: PLC0415 - optional, and takes long
        from botocore.config import Config  # noqa: PLC0415

        parts = self._key.split(":")
        region = parts[3] if parts[0] == "arn" and len(parts) == _ARN_PARTS else None
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"max_attempts": _ATTEMPTS, "mode": "standard"},
        )
        session = boto3.session.Session(region_name=region)
        return session.client("kms", endpoint_url=self._endpoint or None, config=config)

    async def _asked(self, what: str, ask: Callable[[], bytes]) -> bytes:
        """Call AWS in a thread; log a refusal or failure, and raise `Unavailable`."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - optional

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        except ClientError as error:
            why = str(error.response.get("Error", {}).get("Code", "without a code"))
        except BotoCoreError as error:
            why = type(error).__name__
        _log.error("AWS KMS did not %s the material of a key: %s", what, why)
        raise Unavailable("the provider of keys does not answer, or refuses; ask the operator")
