"""A worker to be killed: ``python -m tests.fault.message_worker URL PORT PLACE``.

It sends messages to the mail server at a port of this machine. At a place of that name it says so,
and waits for death; without a name it only works.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from cloudcore.clock import system_clock, uuid7
from cloudcore.db.base import Database
from cloudcore.db.opening import open_database
from cloudcore.email.messages.delivery import Postman
from cloudcore.email.needs import EmailNeeds, SendingTerms
from cloudcore.events import NO_EVENTS
from cloudcore.jobs.worker import JobWorker
from cloudcore.keyring import Keyring
from cloudcore.outbound.dns_resolver import DnsResolver
from cloudcore.outbound.mail import Smarthost
from cloudcore.outbound.mail_transfer import Envelope, SmarthostSender
from tests.dying import DyingDatabase
from tests.fault.certificate_worker import LEASE, PACE, Death

KEYRING: Final = Keyring(bytes(32))
ASKED: Final = "the mail server is asked"
END: Final = "end of email.send"
PLACES: Final = (LEASE, ASKED, END)
"""Before the job is taken; before the mail server has the message; before that is recorded."""


class DyingSender(SmarthostSender):
    """Hands mail over; the process may die before."""

    death = Death("")

    async def send(self, envelope: Envelope) -> None:
        await self.death.come_to(ASKED)
        await super().send(envelope)


def worker(database: Database, port: int, place: str = "") -> JobWorker:
    """Return a worker that waits for death at a place; at none, it works."""
    death = Death(place)
    dying = DyingDatabase(database, death.come_to_write)
    sender = DyingSender(Smarthost("smtp", "127.0.0.1", port), "mail.platform.test")
    object.__setattr__(sender, "death", death)
    needs = EmailNeeds(
        database=dying,
        clock=system_clock,
        new_id=uuid7,
        keyring=KEYRING,
        events=NO_EVENTS,
        url="http://registry.test",
        resolver=DnsResolver(),
        sending=SendingTerms(sender),
    )
    return JobWorker(dying, [Postman(needs=needs).job_kind()], pace=PACE)


async def main(url: str, port: str, place: str) -> None:
    """Work until killed."""
    await worker(open_database(url), int(port), place).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
