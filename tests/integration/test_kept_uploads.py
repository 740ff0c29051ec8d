"""A small session's sealed bytes become a blob as they are, if nothing speaks against it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
import pytest
from sqlalchemy import bindparam, select

from cloudcore.clock import uuid7
from cloudcore.db.statement import Statement
from registry.metadata.tables import inline_bytes, uploads
from registry.oci.digest import digest_of
from registry.settings.groups import Limits
from tests.databases import on_both_databases
from tests.inprocess import Answer
from tests.keyed_registry import KeyedRegistry, open_keyed_registry
from tests.memory_store import MemoryStore

DATA: Final = os.urandom(600)
DIGEST: Final = digest_of(DATA)
UPLOADS: Final = "/v2/dev/app/blobs/uploads/"
_u = uploads.c
_KEPT: Final = Statement(select(_u.body, _u.wrapped_data_key, _u.digests))
_STORED: Final = Statement(select(inline_bytes.c.body))
_CHANGE: Final = {
    name: Statement(uploads.update().values({name: bindparam("content")}))
    for name in ("body", "wrapped_data_key", "digests", "stage_id", "received_bytes")
}


@pytest.fixture
async def keyed(metadata_url: str) -> AsyncIterator[KeyedRegistry]:
    limits = Limits(inline_max_bytes=1000)
    async with open_keyed_registry(metadata_url, MemoryStore(), limits) as keyed:
        yield keyed


async def patched(keyed: KeyedRegistry, *parts: bytes, algorithm: str | None = None) -> str:
    """Open a session and send it `parts`; return its location."""
    query = "" if algorithm is None else f"?digest-algorithm={algorithm}"
    location = (await keyed.client.request("POST", UPLOADS + query)).headers["location"]
    for part in parts:
        assert (await keyed.client.request("PATCH", location, part)).status == 202
    return location


async def put(keyed: KeyedRegistry, location: str, digest: str = DIGEST) -> Answer:
    """Finish a session by a request that says that it has no body."""
    empty = {"content-length": "0"}
    return await keyed.client.request("PUT", f"{location}?digest={digest}", b"", empty)


async def row(keyed: KeyedRegistry, statement: Statement) -> tuple[Any, ...]:
    (found,) = await keyed.database.read(lambda tx: tx.rows(statement))
    return tuple(found)


async def change(keyed: KeyedRegistry, column: str, content: object) -> None:
    statement = _CHANGE[column]
    assert await keyed.database.write(lambda tx: tx.execute(statement, content=content)) == 1


def flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@on_both_databases
async def test_what_was_kept_becomes_the_blob_byte_for_byte(keyed: KeyedRegistry) -> None:
    location = await patched(keyed, DATA[:100], DATA[100:])
    body, *_ = await row(keyed, _KEPT)
    assert (await put(keyed, location)).status == 201
    assert bytes((await row(keyed, _STORED))[0]) == bytes(body)
    assert await keyed.pull(DIGEST) == (200, DATA)
    assert (await put(keyed, location)).status == 404


@pytest.mark.parametrize("announced", [None, "sha512"])
async def test_another_algorithm_is_verified(keyed: KeyedRegistry, announced: str | None) -> None:
    sha512 = digest_of(DATA, "sha512")
    location = await patched(keyed, DATA, algorithm=announced)
    wrong = digest_of(DATA + b".", "sha512")
    assert (await put(keyed, await patched(keyed, DATA, algorithm=announced), wrong)).status == 400
    assert (await put(keyed, location, sha512)).status == 201
    assert await keyed.pull(sha512) == await keyed.pull(DIGEST) == (200, DATA)


async def test_a_wrong_digest_ends_the_session(keyed: KeyedRegistry) -> None:
    location = await patched(keyed, DATA)
    answer = await put(keyed, location, digest_of(b"other"))
    assert (answer.status, answer.codes) == (400, ["DIGEST_INVALID"])
    assert (await put(keyed, location)).status == 404


async def test_a_damaged_row_never_becomes_a_blob(keyed: KeyedRegistry) -> None:
    for column in ("body", "wrapped_data_key", "stage_id", "received_bytes"):
        location = await patched(keyed, DATA)
        body, wrapped, _ = await row(keyed, _KEPT)
        damaged = {
            "body": flipped(bytes(body)),
            "wrapped_data_key": flipped(bytes(wrapped)),
            "stage_id": uuid7(),
            "received_bytes": len(DATA) - 1,
        }
        await change(keyed, column, damaged[column])
        answer = await put(keyed, location)
        assert (answer.status, answer.codes) == (404, ["BLOB_UPLOAD_UNKNOWN"]), column
        assert (await keyed.pull(DIGEST))[0] == 404


@pytest.mark.parametrize("digests", [None, "sha256", "kept"])
async def test_without_proof_the_bytes_are_opened(
    keyed: KeyedRegistry, digests: str | None
) -> None:
    location = await patched(keyed, DATA)
    known = msgspec.json.decode((await row(keyed, _KEPT))[2], type=dict[str, str])
    if digests is not None:
        known[digests] = digest_of(b"other").partition(":")[2]
    content = None if digests is None else msgspec.json.encode(known).decode()
    await change(keyed, "digests", content)
    assert (await put(keyed, location)).status == 201
    assert await keyed.pull(DIGEST) == (200, DATA)


@on_both_databases
async def test_it_is_read_through_the_key_that_is_bound_by_then(keyed: KeyedRegistry) -> None:
    location = await patched(keyed, DATA)
    new = await keyed.make_key("new")
    await keyed.bind(new)
    assert (await put(keyed, location)).status == 201
    assert await keyed.wraps_of(DIGEST) == [new.id]
    assert await keyed.pull(DIGEST) == (200, DATA)


async def test_it_is_refused_if_its_key_was_disabled(keyed: KeyedRegistry) -> None:
    key = await keyed.make_key("new")
    await keyed.make_repository("app")
    await keyed.bind(key)
    location = await patched(keyed, DATA)
    await keyed.kms.disable(key)
    assert (await put(keyed, location)).status == 403


async def test_it_heals_a_blob_that_others_read_through_another_key(keyed: KeyedRegistry) -> None:
    pushing = f"/v2/dev/other/blobs/uploads/?digest={DIGEST}"
    await keyed.make_repository("other")
    new = await keyed.make_key("new")
    await keyed.bind(new, "other")
    assert (await keyed.client.request("POST", pushing, DATA)).status == 201
    await keyed.mark_damaged(DIGEST)
    assert (await put(keyed, await patched(keyed, DATA))).status == 201
    assert set(await keyed.wraps_of(DIGEST)) == {new.id, (await keyed.platform_key()).id}
    for repository in ("app", "other"):
        assert await keyed.pull(DIGEST, repository) == (200, DATA)
