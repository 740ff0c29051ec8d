"""What upstreams are asked, how often, and over which connections."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any, Final

import pytest

from registry.oci.digest import Digest
from registry.oci.manifest import MAX_BYTES
from registry.upstream import client
from registry.upstream.base import (
    Credential,
    NotUpstream,
    UpstreamBroken,
    UpstreamUnreachable,
)
from registry.upstream.client import RegistryClient
from tests.scripted_upstream import INDEX, Answer, Asked, digest_of, error, scripted_upstream
from tests.upstream_world import CANARY, LAYER, NAME, Asking, ask_of, asked

__all__ = ["asked"]
DIGEST: Final = Digest.parse(digest_of(LAYER))


LOOPS: Final = pytest.mark.parametrize(
    "anyio_backend",
    [("asyncio", {"use_uvloop": False}), ("asyncio", {"use_uvloop": True})],
    ids=["asyncio", "uvloop"],
)
"""Where connections are the subject: the transports of uvloop, which serves, are other classes."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Return the event loop that serves."""
    return "asyncio", {"use_uvloop": True}


async def blob(asked: Asking, start: int = 0) -> tuple[int, int | None, bytes]:
    async with asked.client.open_blob(asked.remote(NAME), DIGEST, start) as stream:
        body = b"".join([chunk async for chunk in stream.chunks])
        return stream.start, stream.size, body


async def referrers(asked: Asking) -> list[Any] | None:
    """Return the referrers of the layer that the upstream lists, or None if it lists none."""
    found = await asked.client.get_referrers(asked.remote(NAME), DIGEST)
    return None if found is None else list(json.loads(found)["manifests"])


def test_a_secret_is_not_shown() -> None:
    assert CANARY not in repr(Credential("user", CANARY))


@LOOPS
async def test_many_questions_need_one_token_and_one_connection(asked: Asking) -> None:
    await blob(asked)
    assert "authorization" not in asked.upstream.asked[-1].headers, "nobody wanted it"
    asked.upstream.auth = "basic"
    await blob(asked)
    asked.upstream.auth = "bearer"
    remote = asked.remote(NAME)
    for _ in range(3):
        head = await asked.client.head_manifest(remote, "3")
        assert head is not None
        assert head.etag == f'"{head.digest}"'
        assert await asked.client.head_manifest(remote, "3", head.etag) is None
        fetched = await asked.client.get_manifest(remote, head.digest or "3")
        assert digest_of(fetched.body) == head.digest
        assert await blob(asked) == (0, len(LAYER), LAYER)
        assert await asked.client.head_blob(remote, DIGEST) == len(LAYER)
    assert len(asked.upstream.asked_for("GET", "/token")) == 1
    assert asked.upstream.connections == 1
    assert all(each.headers["accept-encoding"] == "identity" for each in asked.upstream.asked)
    asked.upstream.tokens.clear()
    await asyncio.gather(*(blob(asked) for _ in range(20)))
    assert len(asked.upstream.asked_for("GET", "/token")) == 2, "also for many at once"


async def test_what_has_no_v2_is_no_registry(asked: Asking) -> None:
    asked.upstream.script = lambda _: error(404, "NOT_FOUND")
    with pytest.raises(UpstreamBroken, match="is no registry: it has no /v2/") as missing:
        await asked.client.ping(asked.remote())
    assert missing.value.http_status == 404
    assert asked.watch.successes == 0


@pytest.mark.parametrize(("status", "answers"), [(401, True), (403, True), (404, False)])
async def test_a_registry_that_v2_redirects_to_answers_if_it_wants_a_token(
    status: int, *, answers: bool
) -> None:
    with (
        scripted_upstream() as upstream,
        scripted_upstream() as other,
        ask_of(upstream, others=(other.url,)) as asked,
    ):
        upstream.script = lambda each: Answer(307, {"Location": other.url + each.path})
        other.script = lambda _: error(status, "NO")
        if answers:
            assert await asked.client.ping(asked.remote()) == status
        else:
            with pytest.raises(UpstreamBroken, match=f"status {status}"):
                await asked.client.ping(asked.remote())
        assert asked.watch.successes == 0, "nobody took the credential"


async def test_a_redirect_to_where_nobody_answers(asked: Asking) -> None:
    """Storage that is down, or a name that resolves to an address inside."""
    with scripted_upstream() as gone:
        pass
    for at, kind, words in (
        (gone.url, UpstreamUnreachable, f"^{gone.host} cannot be reached: "),
        ("https://localhost", UpstreamBroken, "redirects to where may not be asked: "),
    ):
        with ask_of(asked.upstream, others=(gone.url,)) as asking:
            asked.upstream.script = lambda _, to=at: Answer(307, {"Location": to})  # type: ignore[misc]
            with pytest.raises(kind, match=words):
                await asking.client.get_manifest(asking.remote(NAME), "3")


@pytest.mark.parametrize("is_redirected", [False, True])
async def test_a_media_type_that_says_nothing_is_none(asked: Asking, is_redirected: bool) -> None:
    body = asked.upstream.manifests[NAME, "3"][1]
    for sent, found in (
        *((kind, None) for kind in ("text/plain; charset=utf-8", "application/json", None)),
        *((f"{kind}/octet-stream", None) for kind in ("binary", "application")),
        *((kind, kind) for kind in (INDEX, "application/vnd.other+json")),
    ):

        def script(each: Asked, kind: str | None = sent) -> Answer | None:
            if is_redirected and each.path.endswith("/manifests/3"):
                return Answer(307, {"Location": f"{asked.upstream.url}/storage"})
            return Answer(200, {"Content-Type": kind}, body)

        asked.upstream.script = script
        fetched = await asked.client.get_manifest(asked.remote(NAME), "3")
        assert (fetched.body, fetched.media_type) == (body, found)


async def test_a_question_with_its_token_and_redirects_has_one_limit(asked: Asking) -> None:
    """Each answer may be slow, but not all together; nor may many wait for one token in a row."""
    hurried = RegistryClient(asked.http, lambda: asked.now, asked.watch, answer_seconds=0.2)
    event = threading.Event()
    asked.upstream.auth = "bearer"
    asked.upstream.script = lambda each: (
        Answer(200, {"Content-Length": "3"}, (event,)) if each.path == "/token" else None
    )
    remote = asked.remote(NAME)
    asking = [hurried.head_manifest(remote, "3") for _ in range(5)]
    async with asyncio.timeout(5):  # one after the other, they would have 10 s each
        found = await asyncio.gather(*asking, return_exceptions=True)
    assert {type(each) for each in found} == {UpstreamUnreachable}
    assert len(asked.watch.failures) == len(found)


async def test_a_blob_goes_on_where_it_was_cut_or_from_its_start(asked: Asking) -> None:
    assert await blob(asked, 123) == (123, len(LAYER), LAYER[123:])
    asked.upstream.has_ranges = False
    assert await blob(asked, 123) == (0, len(LAYER), LAYER)
    asked.upstream.script = lambda _: Answer(200, {"Content-Length": None}, LAYER)
    assert await blob(asked) == (0, None, LAYER)
    size = len(LAYER)
    for status, told in (
        (206, f"bytes 0-{size - 1}/{size}"),
        (206, f"bytes 123-400/{size}"),
        (206, f"bytes 123-{size - 1}/{size + 1}"),
        (206, f"bytes 123-{size}/{size + 1}"),
        (206, None),
        (416, f"bytes */{size}"),
    ):
        other = Answer(status, {"Content-Range": told}, LAYER[123:])
        asked.upstream.script = lambda _, answer=other: answer  # type: ignore[misc]
        with pytest.raises(UpstreamBroken):
            await blob(asked, 123)
    part = {"Content-Range": f"bytes 123-{size - 1}/{size}", "Content-Length": None}
    for body, words in ((LAYER[122:], "more of a blob than"), (LAYER[124:], "less of a blob than")):
        asked.upstream.script = lambda _, sent=body: Answer(206, part, sent)  # type: ignore[misc]
        asked.watch.failures.clear()
        with pytest.raises(UpstreamBroken, match=f"sent {words} it said"):
            await blob(asked, 123)
        assert len(asked.watch.failures) == 1


@LOOPS
async def test_bytes_come_before_the_last_are_sent_and_who_leaves_ends_its_own_connection(
    asked: Asking,
) -> None:
    gate = threading.Event()
    asked.upstream.script = lambda _: Answer(200, {}, (LAYER[:100], gate, LAYER[100:]))
    async with asked.client.open_blob(asked.remote(NAME), DIGEST) as stream:
        assert await anext(stream.chunks) == LAYER[:100]
        gate.set()
        assert b"".join([chunk async for chunk in stream.chunks]) == LAYER[100:]
    gate.clear()
    async with asked.client.open_blob(asked.remote(NAME), DIGEST) as stream:
        await anext(stream.chunks)
    asked.upstream.script = lambda _: None
    assert (await blob(asked))[2] == LAYER
    assert asked.upstream.connections == 2
    assert not asked.watch.failures


async def test_a_success_is_an_answer_to_its_end_and_an_error_of_the_reader_no_failure(
    asked: Asking,
) -> None:
    for error_, failures in ((ZeroDivisionError(), 0), (UpstreamUnreachable("too slow"), 1)):
        with pytest.raises(type(error_)):
            async with asked.client.open_blob(asked.remote(NAME), DIGEST):
                raise error_
        assert (asked.watch.successes, len(asked.watch.failures)) == (0, failures)
    assert (await blob(asked))[2] == LAYER
    assert asked.watch.successes == 1


async def test_a_manifest_may_not_be_larger_than_any_is(asked: Asking) -> None:
    for headers in ({}, {"Content-Length": None}):
        asked.upstream.script = lambda _asked, h=headers: Answer(200, h, b" " * (4 * 2**20 + 1))  # type: ignore[misc]
        with pytest.raises(UpstreamBroken, match="more than 4194304 bytes"):
            await asked.client.get_manifest(asked.remote(NAME), "3")


async def test_referrers_of_many_pages_are_one_index(
    asked: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pages(count: int) -> Callable[[Asked], Answer]:
        def page(request: Asked) -> Answer:
            number = int(request.query("page") or "0")
            listed = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [{"n": number}]}
            more = f'<{request.path}?page={number + 1}>; rel="next"'
            link = more if number + 1 < count else None
            return Answer(200, {"Content-Type": INDEX, "Link": link}, json.dumps(listed).encode())

        return page

    asked.upstream.script = pages(3)
    assert await referrers(asked) == [{"n": 0}, {"n": 1}, {"n": 2}]
    asked.upstream.script = pages(100_000)
    with pytest.raises(UpstreamBroken, match="too many referrers"):
        await referrers(asked)
    asked.upstream.asked.clear()
    asked.watch.failures.clear()
    monkeypatch.setattr(client, "MAX_LIST_SECONDS", 0)
    with pytest.raises(UpstreamUnreachable, match="too slow"):
        await referrers(asked)
    assert len(asked.upstream.asked) <= 1
    assert len(asked.watch.failures) == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>", "sent a page of referrers that is no index"),
        (b'{"manifests": 3}', "sent a page of referrers that is no index"),
        (b"[" * 20_000, "sent a page of referrers that is no index"),
        (b'{"manifests": []}'.ljust(MAX_BYTES), f"has more than {MAX_BYTES} bytes of referrers"),
    ],
    ids=["no JSON", "no list", "many levels", "too long"],
)
async def test_a_second_page_of_referrers_that_is_no_index(
    asked: Asking, body: bytes, words: str
) -> None:
    def page(request: Asked) -> Answer:
        if request.query("page"):
            return Answer(200, {"Content-Type": INDEX}, body)
        link = f'<{request.path}?page=1>; rel="next"'
        return Answer(200, {"Content-Type": INDEX, "Link": link}, b'{"manifests": []}')

    asked.upstream.script = page
    with pytest.raises(UpstreamBroken, match=words):
        await referrers(asked)


async def test_an_upstream_without_referrers(asked: Asking) -> None:
    page = Answer(200, {"Content-Type": "text/html"}, b"<html>")
    for answer in (error(404, "NOT_FOUND"), error(405, "UNSUPPORTED"), page):
        asked.upstream.script = lambda _asked, sent=answer: sent  # type: ignore[misc]
        assert await referrers(asked) is None


async def test_a_manifest_is_asked_for_by_get_if_there_is_no_head(asked: Asking) -> None:
    served = asked.upstream
    served.script = lambda each: error(405, "UNSUPPORTED") if each.method == "HEAD" else None
    found = await asked.client.head_manifest(asked.remote(NAME), "3", '"an etag"')
    assert found is not None
    assert found.digest == digest_of(served.manifests[NAME, "3"][1])
    with pytest.raises(NotUpstream):
        await asked.client.head_manifest(asked.remote(NAME), "none")


async def test_null_is_no_token_and_an_empty_list(asked: Asking) -> None:
    served = asked.upstream
    served.auth = "bearer"

    def nulls(each: Asked) -> Answer | None:
        if each.path == "/token":
            given = served.truth(each).body
            assert isinstance(given, bytes)
            token = json.loads(given)["token"]
            body = {"token": None, "access_token": token, "expires_in": None}
            return Answer(200, {"Content-Type": "application/json"}, json.dumps(body).encode())
        if "/referrers/" in each.path:
            is_first = each.query("page") is None
            link = f'<{each.path}?page=1>; rel="next"' if is_first else None
            return Answer(200, {"Content-Type": INDEX, "Link": link}, b'{"manifests": null}')
        return None

    served.script = nulls
    assert (await blob(asked))[2] == LAYER
    served.auth = "none"
    assert await referrers(asked) == []


async def test_a_limit_is_told(asked: Asking) -> None:
    headers = {"ratelimit-limit": "100;w=21600", "ratelimit-remaining": "76;w=21600"}
    served = asked.upstream

    def limited(request: Asked) -> Answer:
        truth = served.truth(request)
        return Answer(truth.status, {**truth.headers, **headers}, truth.body)

    served.script = limited
    await asked.client.get_manifest(asked.remote(NAME), "3")
    assert asked.watch.rates == [(100, 76, 21600)]


NOT_FOUND: Final = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@LOOPS
async def test_what_came_while_a_connection_was_idle_is_not_the_next_answer(asked: Asking) -> None:
    served = asked.upstream
    more, end = threading.Event(), threading.Event()
    body = (LAYER, more, NOT_FOUND, end)
    told = iter([Answer(200, {"Content-Length": str(len(LAYER))}, body)])
    served.script = lambda _asked: next(told, None)
    assert (await blob(asked))[2] == LAYER
    more.set()
    while end not in served.held:
        pass  # this loop reads nothing meanwhile: the bytes wait in the socket
    end.set()
    assert (await blob(asked))[2] == LAYER
    assert served.connections == 2
    assert len(served.asked) == 2


@pytest.mark.parametrize(
    "told",
    [
        [None, Answer(raw=b"")],  # the kept connection was closed
        *([Answer(200, {}, LAYER, late=late)] for late in (b"more", b"\0", b"\r\nmore\r\n\r\n")),
    ],
    ids=["closed", "text", "zero", "lines"],
)
@LOOPS
async def test_a_question_is_asked_anew_if_its_connection_is_no_good(
    asked: Asking, told: list[Answer | None]
) -> None:
    answers = iter(told)
    asked.upstream.script = lambda _asked: next(answers, None)
    for _ in range(2):
        assert (await blob(asked))[2] == LAYER
    assert asked.upstream.connections == 2


@pytest.mark.parametrize(
    ("raw", "failure", "times"),
    [(b"more" + NOT_FOUND, UpstreamBroken, 3), (NOT_FOUND[:20], UpstreamUnreachable, 2)],
    ids=["but once", "not once its answer has begun"],
)
@LOOPS
async def test_a_question_is_asked_anew(
    asked: Asking, raw: bytes, failure: type[Exception], times: int
) -> None:
    await blob(asked)
    asked.upstream.script = lambda _asked: Answer(raw=raw)
    with pytest.raises(failure):
        await blob(asked)
    assert len(asked.upstream.asked) == times
    assert asked.upstream.connections == times - 1
