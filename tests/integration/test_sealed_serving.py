"""A real ``entrepot serve`` seals what is pushed, and lets no changed byte out."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cloudcore.clock import system_clock
from cloudcore.db.opening import open_database
from cloudcore.keyring import load_keyring
from cloudcore.kms.providers import EmbeddedProvider, Providers
from cloudcore.kms.vault import Vault
from cloudcore.objects.wraps import WrappedKey
from registry.blobstore.sealed.frame_format import frame_offset
from registry.oci.digest import digest_of
from registry.services.data_keys import DataKeys
from tests.live import start_registry
from tests.live_signed_in import SignedIn, serving

CANARY = b"not to be found anywhere on the disk. "
LARGE = CANARY * 1000 + os.urandom(5_000_000) + CANARY
SMALL = CANARY * 3
_WRAPS = """
    SELECT w.account_id, w.kms_key_id, w.wrapped_data_key, o.stored_id
    FROM blob_object_keys w JOIN blob_objects o ON o.id = w.object_id
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sealed") / "data"


@pytest.fixture(scope="module")
def served(data: Path) -> Iterator[SignedIn]:
    """Return a real ``entrepot serve``, which a test may kill and start again at its port."""
    with serving(data) as signed_in:
        yield signed_in


@pytest.fixture
def docker(served: SignedIn) -> Iterator[httpx.Client]:
    """Return a client with a bearer for a repository."""
    answer = httpx.get(
        f"{served.registry.url}/v2/token",
        params={"scope": "repository:acme/app:pull,push"},
        auth=("token", served.acme.password),
    )
    headers = {"Authorization": f"Bearer {answer.json()['token']}"}
    with httpx.Client(base_url=served.registry.url, headers=headers, timeout=30) as client:
        yield client


def test_a_session_goes_on_after_a_kill(served: SignedIn, docker: httpx.Client, data: Path) -> None:
    body, registry = os.urandom(3_000_000), served.registry
    location = docker.post("/v2/acme/app/blobs/uploads/").headers["location"]
    location = docker.patch(location, content=body[:1_700_000]).headers["location"]
    registry.process.kill()
    registry.process.wait()
    assert registry.reader is not None
    registry.reader.join(30)  # until it has added the last lines
    again = start_registry(data, "--port", str(registry.port), command="serve")
    registry.process, registry.reader = again.process, again.reader
    again.lines[:0], registry.lines = registry.lines, again.lines
    answer = docker.put(f"{location}?digest={digest_of(body)}", content=body[1_700_000:])
    assert answer.status_code == 201, answer.text
    assert docker.get(f"/v2/acme/app/blobs/{digest_of(body)}").content == body


def push(docker: httpx.Client, body: bytes, step: int = 1_500_000) -> str:
    """Push a blob in chunks; return its path."""
    location = docker.post("/v2/acme/app/blobs/uploads/").headers["location"]
    for start in range(0, len(body), step):
        answer = docker.patch(location, content=body[start : start + step])
        assert answer.status_code == 202, answer.text
        location = answer.headers["location"]
    answer = docker.put(f"{location}?digest={digest_of(body)}")
    assert answer.status_code == 201, answer.text
    return f"/v2/acme/app/blobs/{digest_of(body)}"


def read_secrets(data: Path) -> list[bytes]:
    """Return the root key, and the data keys of all blobs."""

    async def read() -> list[bytes]:
        database = open_database(f"sqlite:///{data / 'metadata.db'}")
        try:
            providers = Providers(EmbeddedProvider(load_keyring(data / "root.key")))
            keys = DataKeys(Vault(database, providers, system_clock))
            return [
                (await keys.open_all(row[0], [WrappedKey(*row[1:])]))[0].plaintext for row in rows
            ]
        finally:
            await database.close()

    connection = sqlite3.connect(data / "metadata.db")
    rows = connection.execute(_WRAPS).fetchall()
    connection.close()
    assert rows
    return [(data / "root.key").read_bytes(), *asyncio.run(read())]


def test_nothing_is_found_on_the_disk_or_in_the_log(
    served: SignedIn, docker: httpx.Client, data: Path
) -> None:
    location = docker.post("/v2/acme/app/blobs/uploads/").headers["location"]
    docker.patch(location, content=LARGE[:1_700_000])  # left open
    for body in (LARGE, SMALL):
        path = push(docker, body)
        assert docker.get(path).content == body
    for start, stop in ((0, 10), (1_048_570, 2_097_160), (4_999_999, len(LARGE))):
        headers = {"Range": f"bytes={start}-{stop - 1}"}
        answer = docker.get(f"/v2/acme/app/blobs/{digest_of(LARGE)}", headers=headers)
        assert (answer.status_code, answer.content) == (206, LARGE[start:stop])
    secrets = [CANARY, LARGE[100_000:100_032], *read_secrets(data)]
    assert len(secrets) > 4
    texts = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert sum(len(text) for text in texts.values()) > len(LARGE)
    del texts[data / "root.key"]
    texts[Path("log")] = served.registry.log.encode()
    for secret in secrets:
        for form in (secret, secret.hex().encode()):
            assert [path for path, text in texts.items() if form in text] == []


@pytest.mark.parametrize("header", ["", "bytes=0-99999,3200000-3200009,4500000-"])
def test_a_changed_frame_ends_the_answer_and_a_push_heals_it(
    docker: httpx.Client, data: Path, header: str
) -> None:
    body = os.urandom(5_000_000)
    path = push(docker, body)
    connection = sqlite3.connect(data / "metadata.db")
    found = "SELECT stored_id FROM blob_objects WHERE digest = ?"
    (stored_id,) = connection.execute(found, [str(digest_of(body))]).fetchone()
    connection.close()
    (file,) = (data / "blobs").rglob(stored_id)
    with file.open("r+b") as opened:
        opened.seek(frame_offset(3) + 1000)
        changed = opened.read(1)[0] ^ 1
        opened.seek(-1, os.SEEK_CUR)
        opened.write(bytes([changed]))
    received: list[bytes] = []
    headers = {"Range": header} if header else {}
    with docker.stream("GET", path, headers=headers) as answer, pytest.raises(httpx.HTTPError):
        received.extend(answer.iter_bytes())
    whole = b"".join(received)
    if header:
        assert answer.status_code == 206
        assert body[3_200_000:3_200_010] not in whole
        assert body[4_500_000:4_500_010] not in whole
    else:
        assert body.startswith(whole)
        assert len(whole) <= 3 * 1024 * 1024
    assert docker.get(path).status_code == 404
    assert docker.head(path).status_code == 404
    push(docker, body)
    assert docker.get(path).content == body
