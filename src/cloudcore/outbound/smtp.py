"""Send the platform's own mail to the operator's smarthost, by SMTP.

The operator names the smarthost, so its address is not vetted. Credentials go only over TLS whose
certificate is verified; without them, TLS is used if it is offered, whatever its certificate.
"""

from __future__ import annotations

import asyncio
import errno
import smtplib
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from email.message import EmailMessage
from typing import Any, Final

from cloudcore.outbound.mail import Smarthost
from cloudcore.outbound.mail_transfer import unverified_tls

CONNECTIONS: Final = 4
"""Messages that are handed over at once; those who send more wait for one another."""
TIMEOUT_SECONDS: Final = 30
"""For one message, from the connection to the answer; waiting for its turn does not count."""
_PERMANENT: Final = 500


class SmtpRefused(Exception):
    """The smarthost did not take a message; the text has the reason, without credentials."""

    def __init__(self, message: str, *, is_permanent: bool) -> None:
        super().__init__(message)
        self.is_permanent = is_permanent
        """True if the smarthost will not take it later either."""


class SmtpClient:
    """Sends mail, each message on a connection of its own."""

    def __init__(self, smarthost: Smarthost, seconds: float = TIMEOUT_SECONDS) -> None:
        """Use a smarthost; `seconds` are for one message."""
        self._smarthost = smarthost
        self._seconds = seconds
        self._tls = ssl.create_default_context()
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="smtp")

    async def send(self, message: EmailMessage) -> None:
        """Send a message.

        Raises:
            SmtpRefused

        """
        await asyncio.get_running_loop().run_in_executor(self._threads, self._send, message)

    def close(self) -> None:
        """Close without waiting for messages under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _send(self, message: EmailMessage) -> None:
        try:
            with self._connect() as connection:
                connection.send_message(message)
        except smtplib.SMTPRecipientsRefused as error:
            code, _ = next(iter(error.recipients.values()))
            raise SmtpRefused(
                f"the mail server refused the recipient with {code}",
                is_permanent=code >= _PERMANENT,
            ) from None
        except smtplib.SMTPAuthenticationError as error:
            raise SmtpRefused(
                f"the mail server refused the sign-in with {error.smtp_code}", is_permanent=False
            ) from None
        except smtplib.SMTPResponseException as error:
            raise SmtpRefused(
                f"the mail server answered {error.smtp_code}",
                is_permanent=error.smtp_code >= _PERMANENT,
            ) from None
        except ssl.SSLError as error:
            raise SmtpRefused(
                f"TLS with the mail server failed: {error.reason}", is_permanent=False
            ) from None
        except (OSError, smtplib.SMTPException) as error:
            words = getattr(error, "strerror", None) or type(error).__name__
            raise SmtpRefused(
                f"the mail server cannot be reached: {words}", is_permanent=False
            ) from None

    def _connect(self) -> smtplib.SMTP:
        where, end = self._smarthost, time.monotonic() + self._seconds
        if where.scheme == "smtps":
            connection: smtplib.SMTP = _TimedOverTls(
                where.host, where.port, end=end, timeout=self._seconds, context=self._tls
            )
            is_tls = True
        else:
            connection = _Timed(where.host, where.port, end=end, timeout=self._seconds)
            connection.ehlo_or_helo_if_needed()
            is_tls = connection.has_extn("starttls")
            if is_tls:
                # As mail servers do among themselves: what would else go in plain text.
                connection.starttls(context=self._tls if where.user else unverified_tls())
        if where.user:
            if not is_tls:
                connection.close()
                raise SmtpRefused(
                    "the mail server offers no TLS, and credentials go over TLS only",
                    is_permanent=False,
                )
            connection.login(where.user, where.password)
        return connection


class _Timed(smtplib.SMTP):
    """An SMTP session with one deadline; smtplib limits only each single answer."""

    def __init__(self, *args: Any, end: float, **options: Any) -> None:  # noqa: ANN401
        self._end = end
        super().__init__(*args, **options)

    def getreply(self) -> tuple[int, bytes]:
        """Return the server's next answer."""
        left = self._end - time.monotonic()
        if left > 0 and self.sock is not None:
            self.sock.settimeout(left)
        try:
            return super().getreply()
        except smtplib.SMTPServerDisconnected:
            if time.monotonic() < self._end:
                raise
            raise TimeoutError(errno.ETIMEDOUT, "it took too long") from None


class _TimedOverTls(_Timed, smtplib.SMTP_SSL):
    """The same over TLS from the first byte."""
