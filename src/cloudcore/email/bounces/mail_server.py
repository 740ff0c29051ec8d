"""The mail server of return paths: it accepts reports about sent mail, and no other mail.

It accepts mail to our return paths, and to ``complaints@``, to which mailbox providers send reports
that contain a return path. Mail is parsed at once; no mail is relayed or stored. Strangers can
connect, so sizes, connections and times are bounded, and only the start of a mail is kept in
memory. Sources: RFC 5321, RFC 3464 §2 (reports come from the null sender).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, cast

from aiosmtpd.smtp import SMTP, Envelope, Session

from cloudcore.email.bounces.reports import MOST_BYTES, DeliveryReport, read_report
from cloudcore.email.bounces.verp import ENCODED, PREFIX, Returned, read_return_path
from cloudcore.email.messages.rows import Recipient
from cloudcore.errors import Unavailable
from cloudcore.serving.clients import rate_subject, source_address
from cloudcore.threads import FairThread

MOST_CONNECTIONS: Final = 50
"""Connections of a worker process."""
MOST_OF_ONE: Final = 10
"""Connections of one source: an IPv4 address, or a /64 of IPv6."""
MOST_MAIL_BYTES: Final = 32 * 1024 * 1024
"""A report may hold all of the message that it is about."""
IDLE_SECONDS: Final = 60.0
"""The time limit between two commands, and for receiving a whole mail."""
LIFE_SECONDS: Final = 600.0
_MOST_COMMANDS: Final = 100
"""How many commands of each kind a connection may send."""
_LINE: Final = b"\r\n"
_NULL_SENDER: Final = "<>"
_COMPLAINTS: Final = "complaints"

_READING: Final = FairThread("return-mail", niceness=10)
"""The thread that parses mail. Strangers can write mail that takes a second to parse."""


Find = Callable[[Returned], Awaitable[Recipient | None]]
"""Returns the delivery that a return path names, or None if the message is deleted."""
Note = Callable[[Returned, DeliveryReport], Awaitable[bool]]
"""Stores a report about a delivery; returns False if nothing changes."""

_log = logging.getLogger(__name__)


class Reader:
    """aiosmtpd's handler of all connections: decides which mail is accepted, and parses it."""

    def __init__(self, domain: str, key: bytes, find: Find, note: Note) -> None:
        self._domain, self._key = domain, key
        self._find, self._note = find, note
        self._complaints = f"{_COMPLAINTS}@{domain.lower()}"
        self._return_path = re.compile(
            rb"%b[a-z2-7]{%d}@%b" % (PREFIX.encode(), ENCODED, re.escape(domain.encode())),
            re.IGNORECASE,
        )

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, _server: Server, _session: Session, envelope: Envelope, address: str, _options: object
    ) -> str:
        """Accept a single recipient: one of our return paths, or ``complaints@``."""
        if envelope.rcpt_tos:
            return "452 4.5.3 One recipient at a time"
        if self._read(address) is None and address.lower() != self._complaints:
            return "550 5.1.1 No such address here"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(  # noqa: N802 - aiosmtpd's name
        self, _server: Server, _session: Session, envelope: Envelope
    ) -> str:
        """Store the report that a mail contains; accept and drop a mail without a report.

        Answer 451 if the report could not be read or stored, 550 to a bounce that went to
        ``complaints@`` or is not from the null sender.
        """
        data, sender = envelope.content or b"", envelope.mail_from
        assert isinstance(data, bytes)
        own = self._read(envelope.rcpt_tos[0])
        may_bounce = own is not None and sender == _NULL_SENDER
        try:
            is_noted = await self._take(own or self._named_in(data), data, may_bounce=may_bounce)
        except Unavailable as error:
            _log.warning("mail that came back was not read: %s", error)
            return "451 4.3.0 Try again later"
        except Exception:  # noqa: BLE001 - its sender tries again
            _log.exception("mail that came back could not be noted")
            return "451 4.3.0 Try again later"
        if is_noted is None:
            return "550 5.7.1 A report of delivery comes from the null sender"
        return "250 2.0.0 Noted" if is_noted else "250 2.0.0 Nothing to note"

    async def handle_exception(self, error: Exception) -> str:
        """Answer 501 to a command that cannot be parsed."""
        _log.info("a command of mail that comes back could not be read: %s", type(error).__name__)
        return "501 5.5.2 Malformed command"

    async def _take(
        self, returned: Returned | None, data: bytes, *, may_bounce: bool
    ) -> bool | None:
        """Store the report about a delivery that a mail contains; return True if anything changes.

        Return False if there is no such delivery or no report. Return None, and store nothing, if
        the report is no complaint and `may_bounce` is False.
        """
        to = None if returned is None else await self._find(returned)
        if returned is None or to is None:
            return False
        report = await _READING.run(to.account_id, read_report, data, to.address)
        if report is None:
            _log.info("mail came back to a return path that is no report")
            return False
        if not may_bounce and report.kind != "complaint":
            return None
        return await self._note(returned, report)

    def _read(self, address: str) -> Returned | None:
        return read_return_path(self._domain, self._key, address)

    def _named_in(self, data: bytes) -> Returned | None:
        """Return the delivery whose return path a complaint contains (RFC 5965 §3.2), or None."""
        found = (self._read(each[0].decode()) for each in self._return_path.finditer(data))
        return next((each for each in found if each is not None), None)


class Server(SMTP):
    """The SMTP server for one connection."""

    def __init__(self, reader: Reader, host_name: str, connections: Connections) -> None:
        super().__init__(
            reader,
            hostname=host_name,
            ident="Entrepot",
            data_size_limit=MOST_MAIL_BYTES,
            timeout=IDLE_SECONDS,
            command_call_limit=_MOST_COMMANDS,
            auth_exclude_mechanism=("LOGIN", "PLAIN"),
            loop=asyncio.get_running_loop(),
        )
        self._connections = connections
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve a connection, or close it if there are too many."""
        super().connection_made(transport)
        ours = cast("asyncio.Transport", transport)  # uvloop's class is no subclass
        if not self._connections.admit(ours):
            assert self._handler_coroutine is not None
            self._handler_coroutine.cancel()  # it has not begun: it sends no greeting
            ours.write(b"421 4.7.0 Too many connections\r\n")
            ours.close()
        self._end = self.loop.call_later(LIFE_SECONDS, ours.abort)

    def connection_lost(self, error: Exception | None) -> None:
        """Uncount the connection, so that another one can be admitted."""
        self._connections.release(cast("asyncio.Transport | None", self.transport))
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(error)

    async def smtp_DATA(self, arg: str | None) -> None:  # noqa: N802 - aiosmtpd's name
        """Receive a mail, of which only the start is kept, and send the answer."""
        assert self.envelope is not None
        if arg or not self.envelope.rcpt_tos:
            await self.push("501 5.5.4 Syntax: DATA" if arg else "503 5.5.1 Need RCPT first")
            return
        await self.push("354 End data with <CR><LF>.<CR><LF>")
        self.envelope.content, count = await read_mail(self._reader)
        if count > MOST_MAIL_BYTES:
            answer = "552 5.3.4 Too much mail data"
        else:
            answer = await self.event_handler.handle_DATA(self, self.session, self.envelope)
        self.envelope = self._create_envelope()
        await self.push(answer)


async def read_mail(reader: asyncio.StreamReader) -> tuple[bytes, int]:
    """Read a mail to its end (RFC 5321 §4.5.2).

    Return (the first `MOST_BYTES` of the mail, its full length in bytes).
    """
    kept, count, is_new_line = bytearray(), 0, True
    while True:
        try:
            piece = await reader.readuntil(_LINE)
        except asyncio.LimitOverrunError as error:  # a part of a line that is too long
            piece = await reader.read(error.consumed)
        if is_new_line and piece == b".\r\n":
            return bytes(kept), count
        count += len(piece)
        if is_new_line:
            piece = piece.removeprefix(b".")
        is_new_line = piece.endswith(_LINE)
        kept += piece[: MOST_BYTES - len(kept)]


class Connections:
    """The open connections of this process, counted by source."""

    def __init__(self) -> None:
        self._sources: dict[asyncio.Transport, str] = {}
        self._of_source = Counter[str]()

    def admit(self, transport: asyncio.Transport) -> bool:
        """Count a connection; return False if there are too many, or it has already ended."""
        peer = transport.get_extra_info("peername")
        if peer is None:  # it has ended already
            return False
        source = rate_subject(source_address(peer[0], (), ()))
        if len(self._sources) >= MOST_CONNECTIONS or self._of_source[source] >= MOST_OF_ONE:
            return False
        self._sources[transport] = source
        self._of_source[source] += 1
        return True

    def release(self, transport: asyncio.Transport | None) -> None:
        """Uncount a connection, if it was counted."""
        if transport is not None and (source := self._sources.pop(transport, None)) is not None:
            self._of_source -= Counter({source: 1})

    def close(self) -> None:
        """Close all connections; the sending servers will resend mail that was not answered."""
        for transport in tuple(self._sources):
            with suppress(OSError):
                transport.abort()


@asynccontextmanager
async def taking_mail(reader: Reader, host_name: str, host: str, port: int) -> AsyncIterator[int]:
    """Accept mail at `host` and `port` in the ``async with`` block; yield the port.

    `host_name` is the server's name in SMTP. Several processes may share the port. Raise `OSError`
    if the address cannot be bound.
    """
    # This logger has a line for each command, with text that strangers write.
    logging.getLogger("mail.log").setLevel(logging.CRITICAL)
    loop, connections = asyncio.get_running_loop(), Connections()
    server = await loop.create_server(
        lambda: Server(reader, host_name, connections), host, port, reuse_port=True
    )
    async with server:
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            connections.close()
