"""What issues certificates: the install's own authority, or one that speaks ACME."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

from cloudcore.certificate import rows
from cloudcore.certificate.certificate import Certificate, values_by_record
from cloudcore.certificate.resolving import Seen
from cloudcore.db.base import Database

Reason = Literal["CNAME_MISSING", "CNAME_MISMATCH", "CA_REFUSED"]
"""Codes of faults that the owner of a certificate can do something about."""

CNAME_MISSING: Final = "CNAME_MISSING"
CNAME_MISMATCH: Final = "CNAME_MISMATCH"
CA_REFUSED: Final = "CA_REFUSED"


class Chain(NamedTuple):
    """What an authority issued, in DER."""

    certificate: bytes
    """The certificate itself."""
    issuers: tuple[bytes, ...]
    """Those above it, in order, without the root."""


class Refused(Exception):
    """An authority refuses for a reason that its caller can read; a repeat would not help now.

    `message` contains no secret.
    """

    def __init__(self, code: Reason, message: str, domains: Sequence[Seen] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.domains = tuple(domains)
        """The domains that were refused; empty if the reason is of none."""


class Unreachable(Exception):
    """An authority did not answer, or was overloaded; a repeat may help.

    Its text contains no secret.
    """


@dataclass(frozen=True, slots=True)
class Texts:
    """The TXT records of one certificate, below the platform's zone, where its challenges lead.

    All values stand there at the same moment: a wildcard and the domain that it is below need two.
    """

    database: Database
    certificate: Certificate

    async def publish(self, values: Mapping[str, str]) -> None:
        """Publish the value for each domain, in place of all values before.

        `values` has the domains as they were asked for. On return every responder that reads the
        install's database answers with them.
        """
        chosen = [each for each in self.certificate.challenges if each.domain in values]
        texts = values_by_record(chosen, [values[each.domain] for each in chosen])
        for each in chosen:
            if each.our_dns:  # there is no CNAME: we answer for the domain itself
                texts[each.cname_record_name] = texts[each.expected_cname]
        await self.database.write(rows.put_texts, self.certificate.id, texts.items())

    async def withdraw(self) -> None:
        """Publish nothing any more; no error if nothing was."""
        await self.database.write(rows.put_texts, self.certificate.id, ())


class Issuer(Protocol):
    """An authority.

    Both methods may be called again for the same thing after a process died in them. They are
    called on the event loop, without a transaction.
    """

    @property
    def name(self) -> str:
        """Return a word for it, kept with each certificate, such as ``embedded`` or ``acme``."""
        ...

    @property
    def checks_dns(self) -> bool:
        """Return True if it reads a TXT record for each domain before it issues.

        The owner of each domain must then have set the challenge's CNAME; `publish` is used.
        """
        ...

    async def issue(self, csr_der: bytes, domains: Sequence[str], txt: Texts) -> Chain:
        """Return a certificate for exactly `domains`, with the key of a signing request.

        `domains` are as `check_domains` returns them, and those of the request.

        Raise `Refused` if it will not, at least not before somebody changes something,
        `Unreachable` if it did not answer.
        """
        ...

    async def revoke(self, certificate_der: bytes, reason: str | None) -> None:
        """Revoke a certificate that it issued; no error if it was revoked before.

        `reason` is a word of RFC 5280 such as ``keyCompromise``, or None.

        Raise `Refused` if it does not know the certificate, or will not, `Unreachable` if it did
        not answer.
        """
        ...


class Issuers(NamedTuple):
    """The authorities of an install."""

    current: Issuer
    """Issues new certificates, and renewed ones too."""
    others: tuple[Issuer, ...] = ()
    """They only revoke what they have issued."""

    def named(self, name: str) -> Issuer | None:
        """Return the authority of a name, or None if the operator has taken it away."""
        return next((each for each in (self.current, *self.others) if each.name == name), None)
