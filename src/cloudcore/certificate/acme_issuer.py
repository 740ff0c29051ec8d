"""Issue certificates through an authority that speaks ACME, by DNS records alone (dns-01).

The owner of a domain sets a CNAME once; what the authority wants to read is published where that
leads (`cloudcore.certificate.certificate`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from cloudcore.acme.conversing import MOST_AT_ONCE, Account, Directory, Proof, order, revoke
from cloudcore.acme.refusals import AcmeRefused, AcmeUnreachable, DomainProblem
from cloudcore.certificate.issuer import (
    CA_REFUSED,
    CNAME_MISMATCH,
    CNAME_MISSING,
    Chain,
    DomainRefused,
    PublishTxt,
    Reason,
    Refused,
    Unreachable,
)
from cloudcore.keyring import Keyring

_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Number of the curve's points (NIST SP 800-186)."""
_PUBLISH_SECONDS: Final = 60.0
_CODES: Final[dict[str, Reason]] = {
    "dns": CNAME_MISSING,
    "unauthorized": CNAME_MISMATCH,
    "incorrectResponse": CNAME_MISMATCH,
}
"""Of a domain whose record has not what the authority wants; others are refusals of its own."""
_MISSING: Final = ("no txt record", "nxdomain", "error retrieving txt")
"""What the text of an ``unauthorized`` says if the record is missing, not wrong."""
_REASONS: Final = {
    "unspecified": 0,
    "keyCompromise": 1,
    "affiliationChanged": 3,
    "superseded": 4,
    "cessationOfOperation": 5,
}
"""Those of RFC 5280 §5.3.1 that the owner of a server's certificate can give."""


def account_key(keyring: Keyring, directory: str) -> ec.EllipticCurvePrivateKey:
    """Return the key of the install's account at an authority.

    It is derived from the root key, so every node has the same, and none is stored.
    """
    seed = int.from_bytes(keyring.derive(f"acme account {directory}"))
    return ec.derive_private_key(1 + seed % (_P256_ORDER - 1), ec.SECP256R1())


class AcmeIssuer:
    """An authority that the operator names; its account agrees to the authority's terms."""

    def __init__(
        self, directory: Directory, key: ec.EllipticCurvePrivateKey, email: str = ""
    ) -> None:
        """Use the account of `key`, which is registered when it is first used."""
        self._account = Account(directory, key, email)
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    @property
    def name(self) -> str:
        """Return its word."""
        return "acme"

    @property
    def checks_dns(self) -> bool:
        """Return True: it reads a TXT record for each domain."""
        return True

    async def issue(
        self,
        csr_der: bytes,
        domains: Sequence[str],  # noqa: ARG002 - the request names them
        txt: PublishTxt,
    ) -> Chain:
        """Return a certificate for exactly `domains`; see `Issuer`."""
        loop = asyncio.get_running_loop()

        def publish(proofs: Sequence[Proof]) -> None:
            """Publish from the thread of the conversation."""
            made = txt.publish({each.domain: each.value for each in proofs})
            _wait(made, loop)

        try:
            async with self._turns:
                chain = await order(self._account, csr_der, "dns-01", publish)
        except AcmeRefused as refusal:
            raise _refused(refusal) from None
        except AcmeUnreachable as error:
            raise Unreachable(str(error)) from None
        finally:
            await txt.withdraw()
        return _parsed(chain)

    async def revoke(self, certificate_der: bytes, reason: str | None) -> None:
        """Revoke a certificate that it issued; see `Issuer`."""
        try:
            async with self._turns:
                code = _REASONS.get(reason or "unspecified", 0)
                await revoke(self._account, certificate_der, code)
        except AcmeRefused as refusal:
            raise _refused(refusal) from None
        except AcmeUnreachable as error:
            raise Unreachable(str(error)) from None


def _wait(made: Coroutine[None, None, None], loop: asyncio.AbstractEventLoop) -> None:
    asyncio.run_coroutine_threadsafe(made, loop).result(_PUBLISH_SECONDS)


def _refused(refusal: AcmeRefused) -> Refused:
    domains = tuple(
        DomainRefused(each.domain, _code(each), each.detail) for each in refusal.domains
    )
    code = domains[0].code if domains else CA_REFUSED
    return Refused(code, str(refusal), domains)


def _code(problem: DomainProblem) -> Reason:
    if any(words in problem.detail.lower() for words in _MISSING):
        return CNAME_MISSING
    return _CODES.get(problem.code, CA_REFUSED)


def _parsed(chain: str) -> Chain:
    try:
        certificate, *issuers = x509.load_pem_x509_certificates(chain.encode())
    except ValueError:
        raise Unreachable("it answered with no certificate") from None
    return Chain(
        certificate.public_bytes(Encoding.DER),
        tuple(each.public_bytes(Encoding.DER) for each in issuers if each.subject != each.issuer),
    )
