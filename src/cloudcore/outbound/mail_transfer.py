"""Send one message for one recipient to a mail server, by SMTP (RFC 5321).

The server is either that of the recipient's domain, whose addresses are checked, or the operator's
smarthost. Each delivery is a separate SMTP transaction, so that recipients are refused one by one.
"""

from __future__ import annotations

import asyncio
import email.policy  # noqa: F401 - each mail needs it: loaded before the fork, workers share it
import logging
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from email.message import EmailMessage
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from cloudcore.outbound.destinations import (
    Address,
    Allowed,
    Destination,
    NotAllowed,
    check_addresses,
    literal_address,
)
from cloudcore.outbound.dns_resolver import DnsFailed, DnsResolver
from cloudcore.outbound.mail import MailRefused, Smarthost

if TYPE_CHECKING:
    from aiosmtplib import SMTP

_log = logging.getLogger(__name__)

SMTP_PORT: Final = 25
_MOST_HOSTS: Final = 5
"""Mail servers of a domain that one attempt tries; RFC 5321 §5.1 asks for two at least."""
_CONNECT_SECONDS: Final = 30.0
_COMMAND_SECONDS: Final = 60.0
_DATA_SECONDS: Final = 300.0
"""Seconds for the reply to a whole message, which a server may inspect before it replies."""
ATTEMPT_SECONDS: Final = 480.0
"""Maximum seconds of one attempt, over all mail servers."""
_MOST_REASON: Final = 400
_PERMANENT: Final = 500
_OF_SENDER: Final = ("5.1.7", "5.1.8", "5.7.")
"""Codes about the sender's address, or about a policy that refuses the sender (RFC 3463 §3.2 and
§3.8). Many servers reply with these codes only to ``RCPT``."""


class Envelope(NamedTuple):
    """A message with its sender and recipient."""

    sender: str
    """The address to which the message is returned (``MAIL FROM``)."""
    recipient: str
    message: bytes
    source: str | None = None
    """Address of this machine from which to send; None for any."""


class _TryNext(Exception):
    """The server failed, but another host or address of the same domain may accept the message."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code
        """Code of the server's reply; 0 if there was none."""


class MailSender(Protocol):
    """Sends mail."""

    def destination_of(self, recipient: str) -> str:
        """Return a key that all deliveries to the same servers share."""

    async def send(self, envelope: Envelope) -> None:
        """Send a message.

        Even a failed call may have sent the message, if the connection broke before the server's
        reply.

        Raise `MailRefused` if no mail server has confirmed that it accepts the message.
        """


@dataclass(frozen=True)  # no slots: cached properties
class DirectSender:
    """Sends mail to the mail servers of the recipients' domains."""

    resolver: DnsResolver
    allowed: Allowed
    """Addresses that may be called besides public ones."""
    host_name: str
    """Name by which this machine introduces itself (``EHLO``)."""
    port: int = SMTP_PORT

    def destination_of(self, recipient: str) -> str:
        """Return the recipient's domain."""
        return recipient.rpartition("@")[2].lower()

    async def send(self, envelope: Envelope) -> None:
        """Send a message to the first mail server of the domain that can be reached.

        TLS is used if the server offers it, with any certificate, as the expected one is unknown.

        Raise `MailRefused` if no server can be reached in time, or the reached one refuses.
        """
        domain = self.destination_of(envelope.recipient)
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                await self._send(domain, envelope)
        except TimeoutError:
            raise MailRefused(
                f"the mail servers of {domain} took more than {ATTEMPT_SECONDS:.0f} seconds"
            ) from None

    async def _send(self, domain: str, envelope: Envelope) -> None:
        failures: list[MailRefused] = []
        for host in await self._hosts(domain):
            try:
                addresses, source = _reachable(await self._addresses(domain, host), envelope.source)
            except MailRefused as error:
                failures.append(error)
                continue
            for address in addresses:
                try:
                    await self._send_to(host, address, envelope._replace(source=source))
                except _TryNext as error:
                    failures.append(MailRefused(f"{host}: {error}"))
                else:
                    return
        # A later attempt may find what this one could not reach.
        raise next((each for each in failures if not each.is_permanent), failures[0])

    async def _hosts(self, domain: str) -> list[str]:
        """Return the mail servers of a domain, best first; without MX, the domain itself."""
        try:
            found = await self.resolver.mail_exchangers(domain)
        except DnsFailed as error:
            raise MailRefused(str(error)) from None
        if found and all(not host for _, host in found):
            raise MailRefused(
                f"{domain} takes no mail (RFC 7505)", is_permanent=True, refuses_address=True
            )
        return [host for _, host in found if host][:_MOST_HOSTS] or [domain]

    async def _addresses(self, domain: str, host: str) -> list[Address]:
        literal = literal_address(host)
        try:
            found = await self.resolver.addresses(host) if literal is None else [literal]
        except DnsFailed as error:
            raise MailRefused(str(error)) from None
        if not found:
            raise MailRefused(
                f"{host} has no address", is_permanent=True, refuses_address=host == domain
            )
        try:
            check_addresses(
                Destination("smtp", host, self.port, "", is_listed=False), found, self.allowed
            )
        except NotAllowed as error:
            raise MailRefused(str(error), is_permanent=True) from None
        return found

    async def _send_to(self, host: str, address: Address, envelope: Envelope) -> None:
        for offers_tls in (True, False):
            async with _connected(str(address), self.port, envelope.source, self.host_name) as smtp:
                if offers_tls and smtp.supports_extension("starttls"):
                    try:
                        await _start_tls(smtp, host, self._tls)
                    except _TryNext:
                        continue  # as mail servers do among themselves: plain rather than never
                await _hand_over(smtp, envelope)
                return

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return _unverified_tls()


@dataclass(frozen=True)  # no slots: cached properties
class SmarthostSender:
    """Sends mail to the operator's smarthost, whose address is not checked.

    Credentials are sent only over TLS with a verified certificate; without credentials, TLS is used
    if it is offered, with any certificate.
    """

    smarthost: Smarthost
    host_name: str
    seconds: float = ATTEMPT_SECONDS
    """Seconds for one message, from the connection to the reply."""
    trusted: ssl.SSLContext | None = None
    """TLS context to use in place of one with the machine's roots."""
    shows_answers: bool = True
    """False if errors have only the code of a reply, whose words are logged."""

    def destination_of(self, recipient: str) -> str:  # noqa: ARG002 - as the protocol has it
        """Return the same key for all recipients."""
        return ""

    async def send(self, envelope: Envelope) -> None:
        """Send a message.

        Raise `MailRefused` if the smarthost cannot be reached in time, or refuses.
        """
        where = self.smarthost
        is_tls = where.scheme == "smtps"
        tls = self._tls if is_tls or where.user else None
        try:
            async with (
                asyncio.timeout(self.seconds),
                _connected(
                    where.host,
                    where.port,
                    envelope.source,
                    self.host_name,
                    tls if is_tls else None,
                ) as smtp,
            ):
                if not is_tls and smtp.supports_extension("starttls"):
                    await _start_tls(smtp, where.host, tls or _unverified_tls())
                    is_tls = True
                if where.user:
                    await self._sign_in(smtp, is_tls=is_tls)
                await _hand_over(smtp, envelope)
        except TimeoutError:
            raise MailRefused("the smarthost took too long") from None
        except _TryNext as error:
            # Only the log names the host, and has its words: tenants see the error.
            _log.warning("the smarthost: %s", error.__cause__ or error)
            words = f"it answered {error.code}" if error.code else error
            raise MailRefused(f"the smarthost: {words}") from None
        except MailRefused as error:
            if self.shows_answers or not error.code:
                raise
            _log.warning("%s", error)
            raise MailRefused(
                f"the mail server answered {error.code}",
                is_permanent=error.is_permanent,
                refuses_address=error.refuses_address,
                code=error.code,
            ) from None

    async def _sign_in(self, smtp: SMTP, *, is_tls: bool) -> None:
        from aiosmtplib import SMTPException, SMTPResponseException  # noqa: PLC0415

        if not is_tls:
            raise _TryNext("it offers no TLS, and credentials go over TLS only")
        try:
            await smtp.login(self.smarthost.user, self.smarthost.password)
        except SMTPResponseException as error:
            raise _TryNext(f"it refused the sign-in with {error.code}") from None
        except SMTPException as error:
            raise _TryNext(_words(error)) from error

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self.trusted or ssl.create_default_context()


def _reachable(addresses: list[Address], source: str | None) -> tuple[list[Address], str | None]:
    """Return the addresses with the IP version of `source`, and `source`.

    If there are none, return all addresses, and None as the source.
    """
    of = None if source is None else literal_address(source)
    same = [each for each in addresses if of is not None and each.version == of.version]
    return (same, source) if same else (addresses, None)


@asynccontextmanager
async def _connected(
    host: str, port: int, source: str | None, name: str, tls: ssl.SSLContext | None = None
) -> AsyncIterator[SMTP]:
    """Connect and greet; raise `_TryNext` if the server cannot be reached or rejects us."""
    from aiosmtplib import SMTP, SMTPException, SMTPResponseException  # noqa: PLC0415 - 3 MiB

    smtp = SMTP(
        hostname=host,
        port=port,
        source_address=None if source is None else (source, 0),
        local_hostname=name,
        timeout=_CONNECT_SECONDS,
        use_tls=tls is not None,
        tls_context=tls,
        start_tls=False,
    )
    try:
        try:
            await smtp.connect()
            smtp.timeout = _COMMAND_SECONDS
            await _greet(smtp)
        except SMTPResponseException as error:
            raise _TryNext(_answered(error.code, error.message), error.code) from None
        except (SMTPException, OSError) as error:
            raise _TryNext(_words(error)) from error
        yield smtp
    finally:
        smtp.close()


async def _greet(smtp: SMTP) -> None:
    from aiosmtplib import SMTPHeloError  # noqa: PLC0415 - as above

    try:
        await smtp.ehlo()
    except SMTPHeloError:
        await smtp.helo()


async def _start_tls(smtp: SMTP, host: str, tls: ssl.SSLContext) -> None:
    """Switch to TLS; raise `_TryNext` if that fails."""
    from aiosmtplib import SMTPException  # noqa: PLC0415 - as above

    try:
        await smtp.starttls(server_hostname=host, tls_context=tls)
        await smtp.ehlo()
    except ssl.SSLError as error:
        raise _TryNext(f"TLS failed: {error.reason}") from error
    except (SMTPException, OSError) as error:
        raise _TryNext(f"TLS failed: {_words(error)}") from error


_Stage = Literal["sender", "recipient", "message"]


async def _hand_over(smtp: SMTP, envelope: Envelope) -> None:
    """Send one message; return as soon as the server has accepted it.

    Raise `MailRefused` if the server does not accept it.
    """
    from aiosmtplib import SMTPException, SMTPResponseException  # noqa: PLC0415 - as above

    stage: _Stage = "sender"
    size = [f"SIZE={len(envelope.message)}"] if smtp.supports_extension("size") else []
    try:
        await smtp.mail(envelope.sender, options=size)
        stage = "recipient"
        await smtp.rcpt(envelope.recipient)
        stage = "message"
        await smtp.data(envelope.message, timeout=_DATA_SECONDS)
    except SMTPResponseException as error:
        is_permanent = error.code >= _PERMANENT
        raise MailRefused(
            f"the mail server refused the {stage}: {_answered(error.code, error.message)}",
            is_permanent=is_permanent,
            refuses_address=is_permanent
            and not error.message.startswith(_OF_SENDER)
            and (stage == "recipient" or error.message.startswith("5.1.")),
            code=error.code,
        ) from None
    except (SMTPException, OSError) as error:
        raise MailRefused(f"the mail server failed at the {stage}: {_words(error)}") from None
    if smtp.transport is not None:  # a farewell whose answer nobody waits for
        smtp.transport.write(b"QUIT\r\n")  # type: ignore[attr-defined]


def _answered(code: int, message: str) -> str:
    """Return an SMTP reply as one line."""
    words = " ".join("".join(c if c.isprintable() else " " for c in message).split())
    return f"{code} {words}"[:_MOST_REASON]


def _words(error: BaseException) -> str:
    """Return why there was no reply, without the server's name and address."""
    from aiosmtplib import SMTPConnectError, SMTPTimeoutError  # noqa: PLC0415 - as above

    cause = error.__cause__ if isinstance(error, SMTPConnectError) and error.__cause__ else error
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {cause.reason}"
    if isinstance(cause, TimeoutError | SMTPTimeoutError):
        return "it took too long"
    if isinstance(cause, OSError):
        number = cause.errno or 0  # below 0 of a name that is not resolved
        why = os.strerror(number) if number > 0 else type(cause).__name__
        return f"it cannot be reached: {why}"
    return (" ".join(str(cause).split()) or type(cause).__name__)[:_MOST_REASON]


def _unverified_tls() -> ssl.SSLContext:
    """Return a context that accepts any certificate; for use in place of plain text."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


CONNECTIONS: Final = 4
"""Maximum number of messages that are sent to the smarthost at once; others wait."""
SMARTHOST_SECONDS: Final = 30.0
"""Seconds for one message, without the wait for its turn."""


@dataclass(eq=False, slots=True)
class PlatformMail:
    """Sends the platform's own mail, each message to one recipient.

    Suppressions and rate limits of accounts do not apply to it.
    """

    through: MailSender
    sender: str
    turn: AbstractAsyncContextManager[object] = field(default_factory=nullcontext)
    """Context in which each message is sent, such as a semaphore."""

    async def send(self, message: EmailMessage) -> None:
        """Send a message.

        Raise `MailRefused` if the sender does not deliver it.
        """
        (recipient,) = message["To"].addresses
        data = message.as_bytes(policy=message.policy.clone(cte_type="7bit", linesep="\r\n"))
        async with self.turn:
            await self.through.send(Envelope(self.sender, recipient.addr_spec, data))


def smarthost_mail(
    smarthost: Smarthost, host_name: str, sender: str, seconds: float = SMARTHOST_SECONDS
) -> PlatformMail:
    """Return the platform's mail through a smarthost; each message may take `seconds`."""
    through = SmarthostSender(smarthost, host_name, seconds, shows_answers=False)
    return PlatformMail(through, sender, asyncio.Semaphore(CONNECTIONS))
