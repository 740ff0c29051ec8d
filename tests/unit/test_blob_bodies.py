"""How the bytes of a blob are handed to the server: as a region of a file, in bulk, or in parts."""

from __future__ import annotations

import uuid
from contextlib import aclosing, closing
from pathlib import Path
from typing import Final

import pytest

from cloudcore.serving.asgi import Message
from registry.blobstore.base import DataKey
from registry.blobstore.disk.store import FilesystemStore
from registry.blobstore.sealed.frame_format import FRAME_BYTES
from registry.distribution.response import BlobBody, Response, send_response
from registry.oci.digest import digest_of
from tests.small_frames import KEY

DATA: Final = bytes(range(256)) * (FRAME_BYTES // 256) + b"more than a frame"
OURS: Final = ("http.response.zerocopysend", "entrepot.send_parts")


async def sent(
    root: Path, key: DataKey | None, extensions: tuple[str, ...], start: int, stop: int
) -> tuple[str, bytes]:
    """Return the kind of the first message after the head, and the bytes of all."""
    messages: list[Message] = []
    found = b""

    async def send(message: Message) -> None:
        nonlocal found
        messages.append(message)
        if message["type"] == "entrepot.send_parts":
            parts = [bytes(part) for part in message["parts"](0)]
            again = b"".join(bytes(part) for part in message["parts"](message["count"] - 3))
            found = b"".join(parts)
            assert len(found) == message["count"]
            assert again == found[-3:]
        found += message.get("body", b"")

    with closing(FilesystemStore(root)) as store:
        async with aclosing(await store.stage(str(uuid.uuid4()), key)) as staged:
            staged.write(memoryview(DATA))
            object_id = staged.commit(digest_of(DATA)).object_id
        blob = await store.open(object_id, len(DATA), key)
        scope = {"method": "GET", "extensions": {name: {} for name in extensions}}
        await send_response(scope, send, Response(200, [], BlobBody(blob, start, stop)), b"id")
    return messages[1]["type"], found


@pytest.mark.parametrize(
    ("key", "extensions", "start", "kind"),
    [
        (None, OURS, 0, "http.response.zerocopysend"),
        (None, (), 0, "http.response.body"),
        (KEY, OURS, 0, "entrepot.send_parts"),
        (KEY, OURS, 17, "entrepot.send_parts"),
        (KEY, OURS, 18, "http.response.body"),
        (KEY, (), 0, "http.response.body"),
    ],
)
async def test_a_large_sealed_body_is_made_in_a_bulk_thread(
    tmp_path: Path, key: DataKey | None, extensions: tuple[str, ...], start: int, kind: str
) -> None:
    """A small one, and any on another server, is decrypted in a thread of the event loop's."""
    found = await sent(tmp_path, key, extensions, start, len(DATA))
    assert found == (kind, b"" if kind == "http.response.zerocopysend" else DATA[start:])
