"""A bridge to the install's S3 endpoint, for programs that speak only TLS."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from cloudcore.databases.archive import s3_bridge_program
from cloudcore.databases.archive.driver import BackupFailed

NAME: Final = "entrepot-bridge"
"""The name in the bridge's certificate."""
_AGAIN_SECONDS: Final = 1
_LIFE: Final = timedelta(days=3650)
"""Longer than any process lives; the key is in the memory of one bridge alone."""


class S3Address(NamedTuple):
    """The address of the install's S3 endpoint, as this machine reaches it."""

    host: str
    port: int
    name: str
    """The name of the endpoint, for the header ``Host``; buckets are named in paths."""
    certificate: Path | None
    """The file of the certificate that the endpoint presents; None if it speaks plain HTTP."""


class Bridge:
    """The bridge that all runs of this process share; the first run starts it."""

    def __init__(self, endpoint: S3Address) -> None:
        """Store the endpoint; start nothing yet."""
        self.endpoint = endpoint
        self.certificate = b""
        """The only certificate that clients trust, in PEM; empty until the bridge runs."""
        self._key = b""
        self._port = 0
        self._running: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None

    async def port(self) -> int:
        """Start the bridge if necessary; return its port on 127.0.0.1.

        Raise `BackupFailed` if it does not start, or nothing listens at the endpoint: pgBackRest
        would retry for minutes.
        """
        try:
            _, writer = await asyncio.open_connection(self.endpoint.host, self.endpoint.port)
        except OSError as error:
            raise BackupFailed(f"the S3 endpoint cannot be reached: {error}") from None
        writer.close()
        async with self._starting:
            if self._running is None or self._running.returncode is not None:
                self._running, self._port = await self._start()
            if self._following is None or self._following.done():
                self._following = asyncio.create_task(self._follow(), name="the bridge to S3")
            return self._port

    async def _follow(self) -> None:
        """If the bridge is killed, start another on the same port, so that runs continue.

        Otherwise pgBackRest would retry for hours.
        """
        while self._running is not None:
            await self._running.wait()
            await asyncio.sleep(_AGAIN_SECONDS)
            async with self._starting:
                if self._running.returncode is not None:
                    with suppress(BackupFailed):  # the log says why; it is tried again
                        self._running, self._port = await self._start()

    async def close(self) -> None:
        """Stop the bridge, if it runs."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        if self._running is not None:
            with suppress(ProcessLookupError):
                self._running.kill()
            await self._running.wait()

    async def _start(self) -> tuple[asyncio.subprocess.Process, int]:
        if not self._key:
            self.certificate, self._key = _certified()
        descriptor = os.memfd_create("bridge")
        try:
            os.write(descriptor, self.certificate + self._key)
            running = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", s3_bridge_program.__file__),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={},
                pass_fds=(descriptor,),
            )
        finally:
            os.close(descriptor)
        assert running.stdin is not None
        assert running.stdout is not None
        pinned = self.endpoint.certificate
        order = self.endpoint._asdict() | {
            "certificate": descriptor,
            "listens": self._port,  # the port of the previous bridge, which runs still use; 0: any
            "pinned": None if pinned is None else str(pinned),
        }
        running.stdin.write(json.dumps(order).encode() + b"\n")
        said = await running.stdout.readline()
        if not said:
            await running.wait()
            self._port = 0  # another program may have it now
            raise BackupFailed("the bridge to the S3 endpoint does not start; the log says why")
        return running, int(said)


def _certified() -> tuple[bytes, bytes]:
    """Return a new self-signed certificate for `NAME` and its key, both in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    begins = datetime.now(UTC) - timedelta(hours=1)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + _LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made.public_bytes(Encoding.PEM), secret
