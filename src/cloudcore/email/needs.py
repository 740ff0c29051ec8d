"""What email depends on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from cloudcore.clock import Clock
from cloudcore.db.base import Database
from cloudcore.events import EVENTS, Events
from cloudcore.keyring import Keyring
from cloudcore.outbound.dns_resolver import DnsResolver
from cloudcore.outbound.mail import Mail
from cloudcore.outbound.mail_transfer import MailSender
from cloudcore.ports import KEYRING, Opening, Port
from cloudcore.room_checks import RoomChecks

MAIL: Final[Port[Mail | None]] = Port("email.mail")
"""Sends the platform's own mail."""
RESOLVER: Final[Port[tuple[str, int] | None]] = Port("email.resolver")
"""Address of the DNS resolver; None for those of the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailNeeds:
    """The dependencies of the routes, the jobs and the timers of email."""

    database: Database
    clock: Clock
    keyring: Keyring
    events: Events
    url: str
    """Base URL in the links that recipients get."""
    resolver: DnsResolver
    sender: MailSender | None = None
    """Hands over the mail of accounts, or None if the install sends none of it."""
    most_a_second: int = 10
    """Messages that are accepted of an identity in a second."""
    room: RoomChecks = field(default_factory=RoomChecks)
    """Which accounts were found to have room for messages that wait."""
    mail: Mail | None = None
    """Sends the platform's own mail, or None if the install sends none."""


async def open_needs(opening: Opening) -> EmailNeeds:
    """Return the dependencies of one process."""
    install = opening.install
    return EmailNeeds(
        database=install.database,
        clock=install.clock,
        keyring=await opening.get(KEYRING),
        events=await opening.get(EVENTS),
        url=install.url_of("email"),
        resolver=DnsResolver(await opening.get(RESOLVER)),
        mail=await opening.get(MAIL),
    )
