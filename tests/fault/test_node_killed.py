"""A node is killed in the middle of an upload, and the other goes on from what was acknowledged.

Two processes of ``entrepot serve`` with one PostgreSQL and one store, each with a data folder of
its own, as two machines have: neither can tell whether the other's process lives.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

import httpx
import psycopg
import pytest

from tests.nodes import NODES, LiveFleet, digest_of, initialized_fleet, place_of, with_query
from tests.s3_servers import credentials, settings_for

pytestmark = [pytest.mark.postgresql, pytest.mark.timeout(300)]

REPOSITORY: Final = "acme/app"
LAYER: Final = bytes(range(256)) * 40_000
FIRST: Final = 9_000_000
"""More than a part of S3."""
SENT: Final = 9_500_000


@pytest.fixture(params=["folder", "bucket"])
def fleet(
    request: pytest.FixtureRequest, postgresql_url: str, migrated_template: str, tmp_path: Path
) -> Iterator[LiveFleet]:
    """Run two nodes with one folder of blobs, then with one bucket of SeaweedFS."""
    store = {}
    if request.param == "bucket":
        given = asdict(settings_for("seaweedfs"))
        store = {f"ENTREPOT_{name.upper()}": str(value) for name, value in given.items()}
    with (
        credentials(),
        initialized_fleet(tmp_path, postgresql_url, migrated_template, **store) as made,
    ):
        made.start_all(*NODES)
        yield made


def end_leases(fleet: LiveFleet) -> None:
    """Let the leases of uploads have ended, as those of a dead node do after 20 seconds."""
    with psycopg.connect(fleet.database, autocommit=True) as connection:
        ended = connection.execute(
            "UPDATE uploads SET leased_until = 0 WHERE lease_holder IS NOT NULL"
        )
        assert ended.rowcount == 1


def test_an_upload_of_a_killed_node_goes_on_at_the_other(fleet: LiveFleet) -> None:
    east, west = (fleet.nodes[name] for name in NODES)
    signed = east.bearer(REPOSITORY)
    place = place_of(east.data_plane("POST", f"/v2/{REPOSITORY}/blobs/uploads/", signed))
    patched = east.data_plane("PATCH", place, signed, content=LAYER[:FIRST])
    assert patched.status_code == 202, patched.text
    place = place_of(patched)
    with socket.create_connection(("127.0.0.1", east.registry.port)) as client:
        head = (
            f"PATCH {place} HTTP/1.1\r\nHost: a\r\nAuthorization: {signed['Authorization']}\r\n"
            f"Content-Length: {len(LAYER) - FIRST}\r\nExpect: 100-continue\r\n\r\n"
        )
        client.sendall(head.encode())
        assert client.recv(12) == b"HTTP/1.1 100"  # so the node holds the upload
        client.sendall(LAYER[FIRST:SENT])
        east.registry.process.send_signal(signal.SIGKILL)
        east.registry.process.wait()
    found = west.data_plane("GET", place, signed)
    assert (found.status_code, found.headers["Range"]) == (204, f"0-{FIRST - 1}")

    def go_on() -> httpx.Response:
        stands = {"Content-Range": f"{FIRST}-{len(LAYER) - 1}"}
        return west.data_plane("PATCH", place, signed, content=LAYER[FIRST:], headers=stands)

    held = go_on()
    assert held.status_code in {429, 409, 503}, "the lease of the dead node has not ended"
    end_leases(fleet)
    patched = go_on()
    assert patched.status_code == 202, patched.text
    last = place_of(patched)
    put = west.data_plane("PUT", with_query(last, {"digest": digest_of(LAYER)}), signed)
    assert put.status_code == 201, put.text
    again = fleet.start("east")
    for node in (again, west):
        pulled = node.data_plane("GET", f"/v2/{REPOSITORY}/blobs/{digest_of(LAYER)}", signed)
        assert pulled.content == LAYER
