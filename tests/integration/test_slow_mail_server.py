"""A smarthost that does not answer is left after a while, and errors do not name it."""

from __future__ import annotations

import asyncio
from email.message import EmailMessage

import pytest
from aiosmtpd.smtp import SMTP, Envelope, Session

from cloudcore.outbound.mail import MailRefused, Smarthost
from cloudcore.outbound.mail_transfer import CONNECTIONS, smarthost_mail

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


def _message() -> EmailMessage:
    made = EmailMessage()
    made["From"], made["To"], made["Subject"] = "a@registry.test", "b@example.org", "hello"
    made.set_content("hello")
    return made
