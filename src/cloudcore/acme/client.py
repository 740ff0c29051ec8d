"""Order and revoke certificates at an ACME authority, in a child process.

The ACME library takes 11 MiB and blocks, so servers do not load it. The child asks its parent to
publish the proofs, waits until they are published, and finally writes the result for the parent.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Final, NamedTuple, TypeVar

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec

from cloudcore.key_pairs import key_pem


class DomainProblem(NamedTuple):
    """Why an authority could not validate one domain."""

    domain: str
    """The requested domain; a wildcard has its star."""
    code: str
    """The problem's type without its prefix (RFC 8555 §6.7), such as ``connection``."""
    detail: str


class AcmeRefused(Exception):
    """The authority refused; the message has the reason."""

    def __init__(self, code: str, message: str, domains: tuple[DomainProblem, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        """The problem's type without its prefix; see `DomainProblem.code`."""
        self.domains = domains


class AcmeUnreachable(Exception):
    """The authority did not answer, or cannot serve the request now; the message has the reason."""


MOST_SECONDS: Final = 300.0
"""Seconds after which a child that has not ended is killed."""
_T = TypeVar("_T")
MOST_AT_ONCE: Final = 3
"""Maximum concurrent sessions of a process for certificates of accounts; a child takes 40 MiB."""
_THREADS: Final = ThreadPoolExecutor(MOST_AT_ONCE + 1, "acme")
"""Separate from the event loop's few threads, which are for short calls. One more than
`MOST_AT_ONCE`, for the server's own certificate."""
PUBLISHED: Final = "published"
_CHILD: Final = (sys.executable, "-m", "cloudcore.acme.session")


class Directory(NamedTuple):
    """The directory of an ACME authority (RFC 8555, 7.1.1), as configured by the operator."""

    url: str
    setting: str
    """The environment variable that sets `url`, for error messages."""
    roots: str = ""
    """PEM file of the roots to trust for the directory's TLS certificate; "" for the public
    roots."""


class ChallengeProof(NamedTuple):
    """A proof to publish for one domain before the authority checks it."""

    domain: str
    """The requested domain; a wildcard has its star."""
    token: str
    value: str
    """The value of the TXT record (dns-01), or else the key authorization."""


Publish = Callable[[Sequence[ChallengeProof]], None]
"""Publishes all proofs of an order at the same moment; called in a thread."""


class AcmeAccount(NamedTuple):
    """An account at an ACME authority, with its key."""

    directory: Directory
    key: ec.EllipticCurvePrivateKey
    email: str = ""


class AcmeTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """The child's task: an order (`csr`, `kind`) or a revocation (`certificate`, `reason`).

    It contains a private key.
    """

    directory: Directory
    key: bytes
    email: str
    csr: bytes = b""
    kind: str = ""
    certificate: bytes = b""
    reason: int = 0

    def __repr__(self) -> str:
        """Omit the key."""
        return f"Task({self.directory})"


class ChildMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line that the child writes; one field is set."""

    proofs: tuple[ChallengeProof, ...] | None = None
    """Proofs to publish; the child then waits for a line. A message without proofs is the last."""
    chain: str | None = None
    refused: tuple[str, str, tuple[DomainProblem, ...]] | None = None
    unreachable: str | None = None


async def order(account: AcmeAccount, csr_der: bytes, kind: str, publish: Publish) -> str:
    """Return the new certificate and its chain, in PEM, for a signing request.

    `kind` is the type of challenge whose proofs `publish` can publish, such as ``dns-01``.

    Raise `AcmeRefused` if the authority will not sign, or could not validate a domain,
    `AcmeUnreachable` if it did not answer in time.
    """
    return await _converse(AcmeTask(*_who(account), csr=csr_der, kind=kind), publish)


async def revoke(account: AcmeAccount, certificate_der: bytes, reason: int) -> None:
    """Revoke a certificate that this account ordered; accept one that is already revoked.

    `reason` is a code of RFC 5280 §5.3.1.

    Raise `AcmeRefused` if the authority will not revoke it, `AcmeUnreachable` if it did not answer.
    """
    task = AcmeTask(*_who(account), certificate=certificate_der, reason=reason)
    await _converse(task, _publish_nothing)


def _who(account: AcmeAccount) -> tuple[Directory, bytes, str]:
    return account.directory, key_pem(account.key), account.email


def _publish_nothing(_proofs: Sequence[ChallengeProof]) -> None:
    raise AssertionError("who revokes proves nothing")


async def _converse(task: AcmeTask, publish: Publish) -> str:
    child = subprocess.Popen(_CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603, ASYNC220 - our own; a thread waits for it
    try:
        async with asyncio.timeout(MOST_SECONDS):
            loop = asyncio.get_running_loop()
            said = await loop.run_in_executor(_THREADS, _talk, child, task, publish)
    except TimeoutError:
        raise AcmeUnreachable(f"it did not end within {MOST_SECONDS:g} seconds") from None
    finally:
        child.kill()  # no effect, if it has ended; else the thread ends too
        child.wait()
    if said.refused is not None:
        raise AcmeRefused(*said.refused)
    if said.chain is None:
        raise AcmeUnreachable(said.unreachable or f"{task.directory.url} was not asked")
    return said.chain


def _talk(child: subprocess.Popen[bytes], task: AcmeTask, publish: Publish) -> ChildMessage:
    """Send the child its task, publish the proofs that it sends, and return its last message."""
    assert child.stdin is not None
    assert child.stdout is not None
    # Closing a pipe to an ended child raises too, if an unsent line is still buffered.
    try:
        with child.stdin as telling, child.stdout as hearing:
            write_message(telling, task)
            while (said := read_message(hearing, ChildMessage)).proofs is not None:
                publish(said.proofs)
                write_message(telling, PUBLISHED)
            return said
    except (BrokenPipeError, EOFError):
        return ChildMessage(unreachable="the process that asks ended in the middle")


def write_message(pipe: IO[bytes], message: object) -> None:
    """Write a message as one line of JSON."""
    pipe.write(msgspec.json.encode(message) + b"\n")
    pipe.flush()


def read_message(pipe: IO[bytes], kind: type[_T]) -> _T:
    """Read a message of type `kind` from one line of JSON; raise `EOFError` if the pipe ended."""
    line = pipe.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return msgspec.json.decode(line, type=kind)
