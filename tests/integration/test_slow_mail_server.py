"""Smarthosts: slow ones are left, errors do not name them, and only TLS carries credentials."""

from __future__ import annotations

import asyncio
import ssl
from email.message import EmailMessage
from pathlib import Path

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from cloudcore.outbound.mail import MailRefused, Smarthost
from cloudcore.outbound.mail_transfer import CONNECTIONS, SmarthostSender, smarthost_mail
from cloudcore.outbound.mail_transfer import Envelope as MailEnvelope
from tests.certificates import self_signed

SECONDS = 2.0
"""What a message may take, also one that is taken at once on a busy machine."""


class FirstHang:
    """Never answers to the first messages, as many as a client sends at once."""

    def __init__(self) -> None:
        self.came_at: list[float] = []
        self.never = asyncio.Event()

    async def handle_DATA(  # noqa: N802 - aiosmtpd's name
        self, _server: SMTP, _session: Session, _envelope: Envelope
    ) -> str:
        self.came_at.append(asyncio.get_running_loop().time())
        if len(self.came_at) <= CONNECTIONS:
            await self.never.wait()
        return "250 taken"


async def test_a_message_that_has_waited_for_others_has_all_its_time() -> None:
    handler = FirstHang()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(handler), "127.0.0.1", 0)
    where = Smarthost("smtp", "127.0.0.1", server.sockets[0].getsockname()[1])
    mail = smarthost_mail(where, "registry.test", "a@registry.test", SECONDS)
    async with server:
        began = loop.time()
        answers = await asyncio.gather(
            *(mail.send(_message()) for _ in range(2 * CONNECTIONS)), return_exceptions=True
        )
        handler.never.set()
    # No more than that are under way at once: others come when the first have been given up.
    assert handler.came_at[CONNECTIONS] - began >= SECONDS
    refused = [each for each in answers if isinstance(each, MailRefused)]
    assert len(refused) == CONNECTIONS
    assert {(str(each), each.is_permanent) for each in refused} == {
        ("the smarthost took too long", False)
    }
    assert answers.count(None) == CONNECTIONS


@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        (None, "it cannot be reached: Connection refused"),
        (b"554 relay.internal is full\r\n", "it answered 554"),
    ],
)
async def test_only_the_log_knows_which_host_the_smarthost_is(
    greeting: bytes | None, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Tenants see the error, as a fault of what the mail was for."""

    def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting or b"")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if greeting is None:
        server.close()
        await server.wait_closed()
    mail = smarthost_mail(Smarthost("smtp", "localhost", port), "registry.test", "a@registry.test")
    async with server:
        with pytest.raises(MailRefused) as refused:
            await mail.send(_message())
    assert str(refused.value) == f"the smarthost: {words}"
    assert ("localhost" if greeting is None else "relay.internal") in caplog.text


class Relay:
    """Takes mail, and notes how; the user is ada, her password right."""

    def __init__(self) -> None:
        self.passwords: list[bytes] = []
        self.came_by_tls: list[bool] = []

    def authenticate(
        self, _server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, data: object
    ) -> AuthResult:
        """Check a password."""
        assert isinstance(data, LoginPassword)
        self.passwords.append(data.password)
        return AuthResult(success=data == LoginPassword(b"ada", b"right"), handled=False)

    async def handle_DATA(  # noqa: N802 - aiosmtpd's name
        self, _server: SMTP, session: Session, _envelope: Envelope
    ) -> str:
        """Take a message."""
        self.came_by_tls.append(session.ssl is not None)
        return "250 taken"


ENVELOPE = MailEnvelope("a@registry.test", "b@example.org", b"Subject: hello\r\n\r\nhello\r\n")


@pytest.mark.parametrize(
    ("password", "offers_tls", "is_trusted", "refusal"),
    [
        ("right", True, True, None),
        ("wrong", True, True, "it refused the sign-in with 535"),
        ("right", True, False, "TLS failed: CERTIFICATE_VERIFY_FAILED"),
        ("right", False, True, "it offers no TLS, and credentials go over TLS only"),
        ("", True, False, None),
    ],
)
async def test_a_password_goes_over_tls_to_a_smarthost_with_a_trusted_certificate_alone(
    tmp_path: Path, password: str, offers_tls: bool, is_trusted: bool, refusal: str | None
) -> None:
    certificate = self_signed(tmp_path, "relay.test")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)
    relay, loop = Relay(), asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SMTP(
            relay,
            tls_context=tls if offers_tls else None,
            authenticator=relay.authenticate,
            auth_require_tls=False,
        ),
        "127.0.0.1",
        0,
    )
    port = server.sockets[0].getsockname()[1]
    where = Smarthost("smtp", "localhost", port, "ada" if password else "", password)
    trusted = ssl.create_default_context(cafile=certificate[0]) if is_trusted else None
    sender = SmarthostSender(where, "registry.test", trusted=trusted)
    async with server:
        if refusal is None:
            await sender.send(ENVELOPE)
        else:
            with pytest.raises(MailRefused) as refused:
                await sender.send(ENVELOPE)
            assert str(refused.value) == f"the smarthost: {refusal}"
    may_sign_in = password and offers_tls and is_trusted
    assert set(relay.passwords) == ({password.encode()} if may_sign_in else set())
    assert relay.came_by_tls == ([] if refusal else [True])


async def test_a_smarthost_that_knows_no_ehlo_is_greeted_with_helo() -> None:
    said: list[bytes] = []
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 old\r\n")
        while line := await reader.readline():
            said.append(line[:4])
            replies = {b"EHLO": b"502 unknown\r\n", b"DATA": b"354 go on\r\n", b"QUIT": b""}
            if not said[-1].isupper():  # the message
                line = await reader.readuntil(b"\r\n.\r\n")
            writer.write(replies.get(said[-1], b"250 fine\r\n"))
        writer.close()
        ended.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    where = Smarthost("smtp", "127.0.0.1", server.sockets[0].getsockname()[1])
    async with server:
        await SmarthostSender(where, "registry.test").send(ENVELOPE)
        await ended.wait()
    assert said[:2] == [b"EHLO", b"HELO"]
    assert b"DATA" in said


def _message() -> EmailMessage:
    made = EmailMessage()
    made["From"], made["To"], made["Subject"] = "a@registry.test", "b@example.org", "hello"
    made.set_content("hello")
    return made
