"""What presses the work outside the event loop reaches it, and keeps no neighbour waiting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import httpx
import pytest

from benchmarks import beside, beside_loads
from benchmarks.beside_loads import LOADS, SMALL, World
from tests.soak import FACTOR, IS_SOAK

FRAMES: Final = 32
"""As many of a blob as show what is done with 512."""
REACHED: Final = {
    "hostile keys": (400, "it is no sound key"),
    "keys of other kinds": (400, "it is no private key of RSA or of a curve"),
    "uploads": (400, "it is not for another.test, but for bench.test"),
    "slow keys": (201, '"key_spec":"rsa-4096"'),
    "slow certificates": (202, '"key_algorithm":"rsa-4096"'),
    "sending identities": (201, '"record_value":"v=DKIM1; k=rsa; p='),
    "large bodies": (400, "a list of 1 to 50 statements"),
    "policies": (201, '"statements"'),
    "large manifests": (404, "MANIFEST_BLOB_UNKNOWN"),
    "pulled manifests": (200, '"annotations"'),
    "descriptions": (200, "N59999=v"),
    "attachments": (200, "{}"),
    "previews": (200, '"evaluated":'),
    "mails": (200, "xxxxxxxx"),
    "passwords": (400, "the current password is wrong"),
    "deletions": (200, "DeleteResult"),
    "ranges": (206, f"Content-Range: bytes {FRAMES - 2 << 20}-"),
}
"""The answer to a load that has come as far as the work that it is to press."""
SECONDS: Final = 0.2 * FACTOR


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with beside.world(tmp_path_factory.mktemp("beside") / "data") as found:
        yield found


@pytest.mark.timeout(120)
@pytest.mark.parametrize("load", [each for each in LOADS if each != SMALL])
def test_a_load_reaches_the_work_that_it_presses(
    world: World, load: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside_loads, "FRAMES", FRAMES)
    monkeypatch.setattr(beside_loads, "TAGS", 3)
    sent = LOADS[load](world)(0, 0)
    answer = httpx.request(
        sent.method,
        (sent.url or world.url) + sent.path,
        content=sent.body,
        headers=dict(sent.headers),
        timeout=60,
    )
    status, words = REACHED[load]
    assert (answer.status_code, words in answer.text) == (status, True), answer.text[:500]


@pytest.mark.skipif(not IS_SOAK, reason="it takes minutes: make soak")
@pytest.mark.timeout(1800)
def test_no_load_keeps_a_neighbour_waiting() -> None:
    lines: list[str] = []
    late = beside.run([each for each in LOADS if each != SMALL], SECONDS, lines.append)
    assert late == [], "\n".join(lines)
