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
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

THREADS: Final = 4
TIMEOUT_SECONDS: Final = 10
_PORTS: Final = {"smtp": 25, "smtps": 465}
_PERMANENT: Final = 500


class SmtpUrlError(ValueError):
    """A URL names no smarthost; the message says why, without the password."""


class Smarthost(NamedTuple):
    """Where mail is handed over."""

    scheme: Literal["smtp", "smtps"]
    host: str
    port: int
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"Smarthost({self.scheme}://{self.host}:{self.port})"


class SmtpRefused(Exception):
    """The smarthost did not take a message; the text says why, without credentials."""

    def __init__(self, message: str, *, is_permanent: bool) -> None:
        super().__init__(message)
        self.is_permanent = is_permanent
        """True if the smarthost will not take it later either."""


def parse_smarthost(url: str) -> Smarthost:
    """Return the smarthost of ``smtp://[USER:PASSWORD@]HOST[:PORT]``, or ``smtps://…``.

    Raises:
        SmtpUrlError

    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise SmtpUrlError("write it as smtp://USER:PASSWORD@HOST:PORT") from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.path not in ("", "/"):
        raise SmtpUrlError("write it as smtp://USER:PASSWORD@HOST:PORT, or smtps://…")
    if parts.query or parts.fragment:
        raise SmtpUrlError("it has a query or a fragment")
    return Smarthost(
        "smtps" if parts.scheme == "smtps" else "smtp",
        parts.hostname,
        port or _PORTS[parts.scheme],
        unquote(parts.username or ""),
        unquote(parts.password or ""),
    )


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
