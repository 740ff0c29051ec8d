"""Send the platform's own mail: through the smarthost, or directly.

Suppressions and rates of accounts do not apply to it.
"""

from __future__ import annotations

import asyncio
import email.policy  # noqa: F401 - each mail needs it: loaded before the fork, workers share it
from contextlib import AbstractAsyncContextManager, nullcontext
from email.message import EmailMessage
from typing import Final

from cloudcore.outbound.mail import Smarthost
from cloudcore.outbound.mail_transfer import Envelope, MailSender, SmarthostSender

CONNECTIONS: Final = 4
"""Messages that the smarthost is handed at once; further ones wait for one another."""
SMARTHOST_SECONDS: Final = 30.0
"""For one message; waiting for its turn does not count."""


class PlatformMail:
    """Sends mail, each message to one recipient."""

    def __init__(
        self,
        through: MailSender,
        sender: str,
        turn: AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        """Send `through` a sender, each message in a `turn` of its own if there is one."""
        self._through = through
        self.sender = sender
        self._turn = turn or nullcontext()

    async def send(self, message: EmailMessage) -> None:
        """Hand a message over.

        Raises:
            MailRefused

        """
        (recipient,) = message["To"].addresses
        data = message.as_bytes(policy=message.policy.clone(cte_type="7bit", linesep="\r\n"))
        async with self._turn:
            await self._through.send(Envelope(self.sender, recipient.addr_spec, data))


def smarthost_mail(
    smarthost: Smarthost, host_name: str, sender: str, seconds: float = SMARTHOST_SECONDS
) -> PlatformMail:
    """Return the platform's mail by a smarthost; `seconds` are for one message."""
    through = SmarthostSender(smarthost, host_name, seconds)
    return PlatformMail(through, sender, asyncio.Semaphore(CONNECTIONS))
