"""Dependencies of email."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cloudcore.clock import Clock
from cloudcore.db.base import Database
from cloudcore.email.bounces.verp import return_path
from cloudcore.events import EVENTS, Events
from cloudcore.keyring import Keyring
from cloudcore.outbound.dns_resolver import DnsResolver
from cloudcore.outbound.mail_transfer import MailSender, PlatformMail
from cloudcore.ports import KEYRING, Opening, Port
from cloudcore.quotas.quota_checks import QuotaChecks

MAIL: Final[Port[PlatformMail | None]] = Port("email.mail")
"""Sends the platform's own mail."""
RESOLVER: Final[Port[tuple[str, int] | None]] = Port("email.resolver")
"""The address of the DNS resolver; None for the machine's resolvers."""


class ReturnMail(NamedTuple):
    """The domain of return paths, and where this install accepts mail to them."""

    domain: str = ""
    """The domain of our return paths. Empty: messages have no return path of ours, and no mail is
    accepted."""
    address: tuple[str, int] | None = None
    """The address and port of the mail server for return paths; None if this install runs none."""


NO_RETURN_MAIL: Final = ReturnMail()
RETURN_MAIL: Final[Port[ReturnMail]] = Port("email.return_mail")


class SendingTerms(NamedTuple):
    """The operator's terms for the mail of accounts."""

    sender: MailSender | None = None
    """Hands messages over to mail servers; None if the install sends no mail of accounts."""
    most_a_second: int = 10
    """How many messages of an identity are accepted in a second."""


NOT_SENT: Final = SendingTerms()
SENDING: Final[Port[SendingTerms]] = Port("email.sending")


DEDICATED_IPS: Final[Port[Sequence[str]]] = Port("email.dedicated_ips")
"""The operator's inventory of IP addresses that accounts may request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailNeeds:
    """The dependencies of the routes, the jobs and the timers of email."""

    database: Database
    clock: Clock
    new_id: Callable[[], str]
    keyring: Keyring
    events: Events
    url: str
    """Base URL in the links that recipients get."""
    resolver: DnsResolver
    sending: SendingTerms = NOT_SENT
    room: QuotaChecks = field(default_factory=QuotaChecks)
    """Accounts that had room for more unsent messages when they were last checked."""
    mail: PlatformMail | None = None
    """Sends the platform's own mail, or None if the install sends none."""
    return_mail: ReturnMail = NO_RETURN_MAIL
    dedicated_ips: Sequence[str] = ()
    """The operator's inventory of IP addresses that accounts may request."""

    def return_path(self, message_id: str, position: int) -> str:
        """Return the return path of a message to the recipient at a position.

        It is empty if the operator has configured no domain for return paths.
        """
        domain = self.return_mail.domain
        return domain and return_path(domain, self.return_key, message_id, position)

    @property
    def return_key(self) -> bytes:
        """Return the key that authenticates return paths (`cloudcore.email.bounces.verp`)."""
        return self.keyring.derive("email return path")


async def open_needs(opening: Opening) -> EmailNeeds:
    """Return what the email family needs in this process."""
    install = opening.install
    return EmailNeeds(
        database=install.database,
        clock=install.clock,
        new_id=install.new_id,
        keyring=await opening.get(KEYRING),
        events=await opening.get(EVENTS),
        url=install.url_of("email"),
        resolver=DnsResolver(await opening.get(RESOLVER)),
        mail=await opening.get(MAIL),
        return_mail=await opening.get(RETURN_MAIL),
        sending=await opening.get(SENDING),
        dedicated_ips=await opening.get(DEDICATED_IPS),
    )
