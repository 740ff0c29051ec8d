"""S5: a copy that takes long keeps its connection alive, and its document says how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, Final
from xml.etree.ElementTree import fromstring

import pytest

from cloudcore.storage.s3.answers import Answer, is_copy, refusal, send_when_copied, text, xml
from cloudcore.storage.s3.errors import S3Error

COPY: Final[dict[str, Any]] = {"method": "PUT", "headers": [(b"x-amz-copy-source", b"/a/b")]}
DONE: Final = xml("CopyObjectResult", [text("ETag", "e")])


class Client:
    """What a client gets; the copy ends when it has got some spaces."""

    def __init__(self, spaces: int) -> None:
        self.messages: list[MutableMapping[str, Any]] = []
        self._spaces = spaces
        self.may_end = asyncio.Event()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.messages.append(message)
        if self.body.count(b" ") > self._spaces:
            self.may_end.set()

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.messages)

    async def copy(self, answer: Answer) -> Answer:
        await self.may_end.wait()
        return answer


@pytest.mark.parametrize("answer", [DONE, refusal(S3Error("NoSuchKey", "none"), "/a", "1")])
async def test_spaces_come_until_the_copy_ends(answer: Answer) -> None:
    client = Client(10)
    await send_when_copied(COPY, client.send, client.copy(answer), "id", 0.0001)
    start, *_, last = client.messages
    assert (start["status"], last.get("more_body", False)) == (200, False)
    assert b"content-length" not in dict(start["headers"])
    assert isinstance(answer.body, bytes)
    assert client.body.startswith(b"<?xml")
    assert b"      <" in client.body
    assert fromstring(client.body).tag == fromstring(answer.body).tag


async def test_a_fast_copy_is_answered_as_ever() -> None:
    client = Client(0)
    client.may_end.set()
    await send_when_copied(COPY, client.send, client.copy(DONE), "id")
    assert client.body == DONE.body
    assert dict(client.messages[0]["headers"])[b"content-length"]


async def test_a_copy_ends_when_its_client_has_left() -> None:
    ended = asyncio.Event()

    async def copy() -> Answer:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async def send(_: MutableMapping[str, Any]) -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await send_when_copied(COPY, send, copy(), "id", 0.0001)
    assert ended.is_set()


def test_only_copies_are_kept_waiting() -> None:
    assert is_copy(COPY)
    assert not is_copy({**COPY, "headers": []})
    assert not is_copy({**COPY, "method": "GET"})
