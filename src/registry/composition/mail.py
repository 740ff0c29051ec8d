"""Send the platform's own mail: through the smarthost, or directly.

Suppressions and rates of accounts do not apply to it.
"""

from __future__ import annotations

import email.policy  # noqa: F401 - each mail needs it: loaded before the fork, workers share it
from email.message import EmailMessage

from cloudcore.outbound.mail import MailRefused
from cloudcore.outbound.mail_transfer import Envelope, MailSender, TransferFailed
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


class DirectMail:
    """Sends mail to the mail server of its recipient."""

    def __init__(self, through: MailSender, sender: str) -> None:
        self._through = through
        self.sender = sender

    async def send(self, message: EmailMessage) -> None:
        """Hand a message over; it has one recipient.

        Raises:
            MailRefused

        """
        (recipient,) = message["To"].addresses
        data = message.as_bytes(policy=message.policy.clone(cte_type="7bit", linesep="\r\n"))
        try:
            await self._through.send(Envelope(self.sender, recipient.addr_spec, data))
        except TransferFailed as error:
            raise MailRefused(str(error), is_permanent=error.is_permanent) from None
