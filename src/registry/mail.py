"""Part of the composition root: the mail of families leaves by the operator's smarthost."""

from __future__ import annotations

import email.policy  # noqa: F401 - each mail needs it: loaded before the fork, workers share it
from email.message import EmailMessage

from cloudcore.outbound.mail import MailRefused
from cloudcore.outbound.smtp import SmtpClient, SmtpRefused


class SmarthostMail:
    """Sends mail by a smarthost."""

    def __init__(self, client: SmtpClient, sender: str) -> None:
        self._client = client
        self.sender = sender

    async def send(self, message: EmailMessage) -> None:
        """Hand a message over.

        Raises:
            MailRefused

        """
        try:
            await self._client.send(message)
        except SmtpRefused as error:
            raise MailRefused(str(error), is_permanent=error.is_permanent) from None
