"""A server whose blobs are in a bucket is killed between the chunks of an upload: it goes on."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin

import httpx

from registry.oci.digest import digest_of
from tests.live import LiveRegistry, start_registry
from tests.loaded import ENTREPOT, program_environment, run_loaded
from tests.s3_servers import settings_for, variables_of

MIB = 1 << 20
DATA = random.Random(5).randbytes(20 * MIB)
ENDS = (9 * MIB, 10 * MIB, len(DATA))
"""Of the chunks; some end in the middle of a part."""
NAME = "dev/app"


@contextmanager
def serving(data: Path, env: Mapping[str, str]) -> Iterator[LiveRegistry]:
    """Serve, and die as with the power, unless it was ended before."""
    registry = start_registry(data, env=env)
    try:
        yield registry
    finally:
        registry.process.kill()
        registry.stop(signal.SIGKILL)


def client_of(registry: LiveRegistry) -> httpx.Client:
    """Return a client of a server."""
    return httpx.Client(base_url=registry.url, timeout=60)


def place_of(answer: httpx.Response) -> str:
    """Return the path of an upload: the next server has another port."""
    return httpx.URL(urljoin(str(answer.url), answer.headers["location"])).raw_path.decode()


def test_an_upload_in_chunks_goes_on_whenever_its_server_is_killed(tmp_path: Path) -> None:
    env = variables_of(settings_for("seaweedfs"))
    digest, place, start = digest_of(DATA), "", 0
    for end in ENDS:
        with serving(tmp_path / "data", env) as registry, client_of(registry) as client:
            if not place:
                place = place_of(client.post(f"/v2/{NAME}/blobs/uploads/"))
            answer = client.patch(
                place,
                content=DATA[start:end],
                headers={"Content-Range": f"{start}-{end - 1}"},
            )
            assert answer.status_code == 202, answer.text
            assert answer.headers["range"] == f"0-{end - 1}"
            place, start = place_of(answer), end
    with serving(tmp_path / "data", env) as registry, client_of(registry) as client:
        answer = client.put(f"{place}{'&' if '?' in place else '?'}digest={digest}")
        assert answer.status_code == 201, answer.text
        assert client.get(f"/v2/{NAME}/blobs/{digest}").content == DATA
        middle = {"Range": f"bytes={9 * MIB - 5}-{9 * MIB + 4}"}
        answer = client.get(f"/v2/{NAME}/blobs/{digest}", headers=middle)
        assert answer.content == DATA[9 * MIB - 5 : 9 * MIB + 5]
        assert registry.stop() == 0
    words = ("fsck", "--data", str(tmp_path / "data"))
    checked = run_loaded(ENTREPOT, words, {**program_environment(), **env})
    assert "0 violations, 0 orphans" in checked.stdout, checked.stderr
