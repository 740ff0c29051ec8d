"""Thirty ways in which an upstream fails, each for blobs, manifests and heads of manifests."""

from __future__ import annotations

import gzip
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pytest

from registry.oci.digest import Digest
from registry.upstream.base import (
    NotUpstream,
    UpstreamBroken,
    UpstreamFailed,
    UpstreamLimited,
    UpstreamRefused,
    UpstreamUnreachable,
)
from tests.scripted_upstream import (
    MANIFEST,
    Answer,
    Asked,
    End,
    ScriptedUpstream,
    digest_of,
    error,
    scripted_upstream,
)
from tests.upstream_world import CANARY, LONG, SHORT, Asking, ask_of

LAYER: Final = bytes(range(256)) * 512
NAME: Final = "library/alpine"
Made = Callable[[Asked, Answer], Answer]


class Fault(NamedTuple):
    """What the upstream does with a truth that it knows, and what is said of each question."""

    make: Made
    blob: type[Exception] | None
    manifest: type[Exception] | None
    head: type[Exception] | None = None
    """None: nobody can tell, or it does no harm."""


def truth(answer: Answer) -> bytes:
    assert isinstance(answer.body, bytes)
    return answer.body


def changed(answer: Answer, headers: Mapping[str, str | None], body: Any = None) -> Answer:  # noqa: ANN401
    return Answer(
        answer.status, {**answer.headers, **headers}, answer.body if body is None else body
    )


def cut(at: Callable[[int], int], end: End, *, length: bool = True) -> Made:
    """Break the connection after some bytes of the body."""

    def make(_asked: Asked, answer: Answer) -> Answer:
        body = truth(answer)
        said = str(len(body)) if length else None
        return changed(answer, {"Content-Length": said}, (body[: at(len(body))], end))

    return make


def always(answer: Answer) -> Made:
    return lambda _asked, _answer: answer


def longer(_asked: Asked, answer: Answer) -> Answer:
    body = truth(answer)
    return changed(answer, {"Content-Length": str(len(body))}, (body + b"more",))


def held(_asked: Asked, answer: Answer) -> Answer:
    body = truth(answer)
    pieces = (body[:3], threading.Event(), body[3:])
    return changed(answer, {"Content-Length": str(len(body))}, pieces)


def chunked(text: bytes) -> Made:
    coding = {"Content-Length": None, "Transfer-Encoding": "chunked"}
    return lambda _asked, answer: changed(answer, coding, (text, End.CLOSE))


def raw(text: bytes) -> Made:
    return always(Answer(raw=text))


HTML: Final = b"<html><body>Sign in to the hotel's network</body></html>"
OTHER: Final = b'{"schemaVersion": 2, "mediaType": "%s"}' % MANIFEST.encode()


def everywhere(make: Made, kind: type[Exception]) -> Fault:
    """Return a fault that is told of every question."""
    return Fault(make, kind, kind, kind)


def in_bodies(make: Made, kind: type[Exception]) -> Fault:
    """Return a fault that only who gets a body can tell."""
    return Fault(make, kind, kind)


FAULTS: Final = {
    "cut before the first byte": in_bodies(cut(lambda _n: 0, End.CLOSE), UpstreamUnreachable),
    "cut in the middle": in_bodies(cut(lambda n: n // 2, End.CLOSE), UpstreamUnreachable),
    "cut before the last byte": in_bodies(cut(lambda n: n - 1, End.CLOSE), UpstreamUnreachable),
    "reset in the middle": in_bodies(cut(lambda n: n // 2, End.RESET), UpstreamUnreachable),
    "reset before the head": everywhere(raw(b""), UpstreamUnreachable),
    "cut within the head": everywhere(raw(b"HTTP/1.1 200 OK\r\nContent-Le"), UpstreamUnreachable),
    "cut without a length": Fault(
        cut(lambda n: n // 2, End.CLOSE, length=False), None, UpstreamBroken
    ),
    "cut within a chunk": in_bodies(chunked(b"ff\r\nabc"), UpstreamUnreachable),
    "without the last chunk": in_bodies(chunked(b"3\r\nabc\r\n"), UpstreamUnreachable),
    "a chunk of no size": in_bodies(chunked(b"zz\r\nabc\r\n"), UpstreamBroken),
    "a shorter body under its own length": Fault(
        lambda _asked, answer: changed(answer, {}, truth(answer)[:-1]), None, UpstreamBroken
    ),
    "a longer body than its length": Fault(longer, None, None),
    "a longer body, whose rest comes later": Fault(
        lambda _asked, answer: Answer(answer.status, answer.headers, answer.body, late=b"more"),
        None,
        None,
    ),
    "two lengths": everywhere(
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
        UpstreamBroken,
    ),
    "a length that is no number": everywhere(
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 3x\r\n\r\nabc"), UpstreamBroken
    ),
    "length and chunks": everywhere(
        raw(
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n0\r\n\r\n"
        ),
        UpstreamBroken,
    ),
    "an endless length": Fault(
        lambda _asked, answer: changed(
            answer, {"Content-Length": "9" * 17}, (truth(answer), End.CLOSE)
        ),
        UpstreamUnreachable,
        UpstreamBroken,
    ),
    "other bytes": Fault(lambda _asked, answer: changed(answer, {}, OTHER), None, UpstreamBroken),
    "another digest in the header": Fault(
        lambda _asked, answer: changed(answer, {"Docker-Content-Digest": digest_of(b"")}),
        None,
        UpstreamBroken,
    ),
    "a digest that is none": Fault(
        lambda _asked, answer: changed(answer, {"Docker-Content-Digest": "sha256:../../x"}),
        None,
        None,
    ),
    "a page instead": Fault(
        always(Answer(200, {"Content-Type": "text/html; charset=utf-8"}, HTML)),
        None,
        UpstreamBroken,
    ),
    "gzip": in_bodies(
        lambda _asked, answer: changed(
            answer, {"Content-Encoding": "gzip"}, gzip.compress(truth(answer))
        ),
        UpstreamBroken,
    ),
    "truncated gzip": in_bodies(
        lambda _asked, answer: changed(
            answer, {"Content-Encoding": "gzip"}, gzip.compress(truth(answer))[:-8]
        ),
        UpstreamBroken,
    ),
    "nothing after the first bytes": in_bodies(held, UpstreamUnreachable),
    "no answer": in_bodies(
        lambda _asked, _answer: Answer(200, {"Content-Length": "3"}, (threading.Event(),)),
        UpstreamUnreachable,
    ),
    "429": everywhere(always(error(429, "TOOMANYREQUESTS", {"Retry-After": "7"})), UpstreamLimited),
    "500": everywhere(always(error(500, "UNKNOWN")), UpstreamBroken),
    "503": everywhere(always(error(503, "UNAVAILABLE")), UpstreamBroken),
    "401 again and again": everywhere(
        always(error(401, "UNAUTHORIZED", {"WWW-Authenticate": 'Basic realm="a"'})), UpstreamRefused
    ),
    "403": everywhere(always(error(403, "DENIED")), UpstreamRefused),
    "404": everywhere(always(error(404, "UNKNOWN")), NotUpstream),
    "a redirect to itself": everywhere(
        lambda asked, _answer: Answer(307, {"Location": asked.target}), UpstreamBroken
    ),
    "a redirect to nowhere": everywhere(always(Answer(302)), UpstreamBroken),
    "a status that nobody asked for": everywhere(always(Answer(226, {}, b"abc")), UpstreamBroken),
    "unchanged, though nothing was compared": everywhere(always(Answer(304)), UpstreamBroken),
    "another protocol": everywhere(raw(b"SSH-2.0-OpenSSH_9.2\r\n"), UpstreamBroken),
    "a switch of protocols": everywhere(
        raw(b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"),
        UpstreamBroken,
    ),
    "a long head": everywhere(always(Answer(200, {"X": "a" * 70_000}, b"abc")), UpstreamBroken),
    "many interim answers": everywhere(
        raw(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 20), UpstreamBroken
    ),
}


SILENT: Final = ("nothing after the first bytes", "no answer")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Return the event loop that serves."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
def served() -> Iterator[ScriptedUpstream]:
    with scripted_upstream() as upstream:
        upstream.add_image(NAME, "3", LAYER)
        yield upstream


@pytest.fixture
async def lying(served: ScriptedUpstream, request: pytest.FixtureRequest) -> AsyncIterator[Asking]:
    """Return a client, which is impatient with an upstream that falls silent."""
    is_silent = any(fault in request.node.name for fault in SILENT)
    with ask_of(served, limits=SHORT if is_silent else LONG) as asked:
        yield asked
    served.script = lambda _asked: None
    served.asked.clear()


async def outcome(asked: Asking, question: str) -> Exception | bytes | None:
    """Ask, and return the failure, or what came."""
    remote = asked.remote(NAME)
    try:
        match question:
            case "head":
                await asked.client.head_manifest(remote, "3")
                return None
            case "manifest":
                return (await asked.client.get_manifest(remote, "3")).body
            case _:
                received = bytearray()
                digest = Digest.parse(digest_of(LAYER))
                async with asked.client.open_blob(remote, digest) as blob:
                    async for chunk in blob.chunks:
                        received += chunk
                return bytes(received)
    except (UpstreamFailed, NotUpstream) as failure:
        return failure


@pytest.mark.parametrize("question", ["blob", "manifest", "head"])
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_has_its_name(lying: Asking, name: str, question: str) -> None:
    fault = FAULTS[name]
    expected = {"blob": fault.blob, "manifest": fault.manifest, "head": fault.head}[question]
    served = lying.upstream
    served.script = lambda asked: fault.make(asked, served.truth(asked))
    found = await outcome(lying, question)
    if expected is not None:
        assert type(found) is expected, found
        assert CANARY not in f"{found} {found!r}"
    elif isinstance(found, bytes) and question == "manifest":
        assert found == served.manifests[NAME, "3"][1]
    else:  # nobody could tell yet: who stores the bytes compares them with their digest
        assert found is None or isinstance(found, bytes), found
    # The client is none the worse for it.
    served.script = lambda _asked: None
    assert await outcome(lying, "blob") == LAYER


@pytest.mark.parametrize("question", ["blob", "manifest"])
async def test_a_failure_is_noted_once(lying: Asking, question: str) -> None:
    """Also what is wrong with a body."""
    encoded = {"Content-Encoding": "gzip", "Content-Type": MANIFEST}
    for answer, status in ((error(500, "UNKNOWN"), 500), (Answer(200, encoded, b"{}"), None)):
        lying.watch.failures.clear()
        lying.upstream.script = lambda _asked, sent=answer: sent  # type: ignore[misc]
        failure = await outcome(lying, question)
        assert isinstance(failure, UpstreamBroken)
        assert lying.watch.failures == [failure]
        assert status in (None, failure.http_status)
