"""Hand mail over to the operator's smarthost, by SMTP.

The operator names the smarthost, so its address is not vetted. Credentials go only over TLS whose
certificate is verified; without them, TLS is used if it is offered, whatever its certificate.
"""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from concurrent.futures import ThreadPoolExecutor
from email.message import EmailMessage
from typing import Final

from cloudcore.outbound.smarthosts import Smarthost

THREADS: Final = 4
TIMEOUT_SECONDS: Final = 10
_PERMANENT: Final = 500


class SmtpRefused(Exception):
    """The smarthost did not take a message; the text says why, without credentials."""

    def __init__(self, message: str, *, is_permanent: bool) -> None:
        super().__init__(message)
        self.is_permanent = is_permanent
        """True if the smarthost will not take it later either."""


class SmtpClient:
    """Hands mail over, each message on a connection of its own."""

    def __init__(self, smarthost: Smarthost, tls: ssl.SSLContext | None = None) -> None:
        """Use a smarthost; `tls` replaces the machine's roots."""
        self._smarthost = smarthost
        self._tls = tls or ssl.create_default_context()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="smtp")

    async def send(self, message: EmailMessage) -> None:
        """Hand a message over.

        Raises:
            SmtpRefused

        """
        await asyncio.get_running_loop().run_in_executor(self._threads, self._send, message)

    def close(self) -> None:
        """End, without waiting for messages under way."""
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
        where = self._smarthost
        if where.scheme == "smtps":
            connection: smtplib.SMTP = smtplib.SMTP_SSL(
                where.host, where.port, timeout=TIMEOUT_SECONDS, context=self._tls
            )
            is_tls = True
        else:
            connection = smtplib.SMTP(where.host, where.port, timeout=TIMEOUT_SECONDS)
            connection.ehlo_or_helo_if_needed()
            is_tls = connection.has_extn("starttls")
            if is_tls:
                # As mail servers do among themselves: what would else go in plain text.
                connection.starttls(context=self._tls if where.user else _unverified())
        if where.user:
            if not is_tls:
                connection.close()
                raise SmtpRefused(
                    "the mail server offers no TLS, and credentials go over TLS only",
                    is_permanent=False,
                )
            connection.login(where.user, where.password)
        return connection


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
