"""Tails of paths: cut out byte for byte, and refused at start-up where two routes share paths."""

from __future__ import annotations

from typing import Any, cast

import httpx
import pytest
from litestar import get, post, put
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from cloudcore.web.app import ControlPlane, Routes
from cloudcore.web.path_tails import TailedPath, Tails
from cloudcore.web.route_spec import RouteError
from cloudcore.web.streams import RequestStream
from tests.things import CreatePart

TAILS = Tails(["/v1/things/{thing_id}/files/{key}"])
HEAD = "/v1/things/x/files/"


@pytest.mark.parametrize(
    ("sent", "tail"),
    [
        (b"a", "a"),
        (b"a/b", "a/b"),
        (b"a%2Fb", "a/b"),
        (b"a%2fb", "a/b"),
        (b"a//b", "a//b"),
        (b"a%2F%2Fb", "a//b"),
        (b"/lead", "/lead"),
        (b"%2Flead", "/lead"),
        (b"dir/", "dir/"),
        (b"dir%2F", "dir/"),
        (b"/", "/"),
        (b"-", "-"),
        (b"..", ".."),
        (b"a/../b/./c", "a/../b/./c"),
        (b"%252F", "%2F"),
        (b"%25", "%"),
        (b"a+b%2B", "a+b+"),
        (b"%3F%23%20", "?# "),
        (b"%C3%A4", "ä"),
        (b"%F0%9F%90%B3", "🐳"),
        (b"a%0D%0A", "a\r\n"),
        (b"%EF%BF%BD", "\ufffd"),
    ],
)
def test_a_tail_is_what_was_sent_decoded_once(sent: bytes, tail: str) -> None:
    assert TAILS.find(HEAD.encode() + sent) == TailedPath(HEAD, tail)


@pytest.mark.parametrize(
    "sent",
    [b"%00", b"a%00b", b"%FF", b"%C3", b"%ED%A0%80", b"%C0%AF", b"%", b"%2", b"%zz", b"a%2/",
     b"\xff"],
)  # fmt: skip
def test_a_tail_that_is_no_text_is_told_apart(sent: bytes) -> None:
    assert TAILS.find(HEAD.encode() + sent) == TailedPath(HEAD, None)


@pytest.mark.parametrize(
    "path",
    [
        *(b"/v1/things/x/files", b"/v1/things/x/files/", b"/v1/things//files/a"),
        *(b"//v1/things/x/files/a", b"/v1/things/x//files/a", b"/v1/things/x%2Fy/files/a"),
        *(b"/v1/things/x%00/files/a", b"/v1/things/x/Files/a", b"/v1/things/x/y/files/a"),
        b"x/v1/things/x/files/a",
    ],
)
def test_only_a_tail_may_be_crooked(path: bytes) -> None:
    assert TAILS.find(path) is None


def test_the_head_of_a_path_is_decoded_as_on_all_routes() -> None:
    found = TAILS.find(b"/v1/%74hings/a%C3%A4/files/b%2F")
    assert found == TailedPath("/v1/things/aä/files/", "b/")


def at(path: str, **opt: object) -> HTTPRouteHandler:
    @get(path, opt={"action": None, "public": True, **opt})
    async def answer() -> None:
        return None

    return answer


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (at("/v1/a/{b:str}/c/{d:str}"), "share paths"),
        (at("/v1/a/{b:str}/c/{key:str}/e"), "share paths"),
        (at("/v1/a/{b:str}/c/fixed"), "share paths"),
        (at("/v1/a/fixed"), "share paths"),
        (at("/v1/a/fixed/d"), "share paths"),
        (at("/v1/{any:str}"), "share paths"),
        (at("/v1/{any:str}/{key:str}", tail="key"), "share paths"),
        (at("/v1/a/{b:str}/c/d/{key:str}", tail="key"), "share paths"),
    ],
)
def test_routes_that_share_paths_do_not_start(other: HTTPRouteHandler, words: str) -> None:
    with pytest.raises(RouteError, match=words):
        ControlPlane(Routes([at("/v1/a/{b:str}/c/{key:str}", tail="key"), other]))


def test_routes_beside_a_tail_start() -> None:
    @put(
        "/v1/a/{b:str}/c/{key:str}",
        status_code=200,
        opt={"action": None, "public": True, "tail": "key", "takes_stream": True},
    )
    async def put_it(
        b: FromPath[str], key: FromPath[str], stream: NamedDependency[RequestStream]
    ) -> None:
        """Take it."""

    others = ["/v1/a/{b:str}/c", "/v1/a/{b:str}", "/v1/a", "/v1/a/{b:str}/d/{e:str}", "/v1/b/c"]
    ControlPlane(Routes([put_it, *map(at_own_name, others)]))


def at_own_name(path: str) -> HTTPRouteHandler:
    handler = at(path)
    handler.fn.__name__ = "get" + path.translate({ord(char): "_" for char in "/{}:"})
    return handler


def taking(**opt: object) -> HTTPRouteHandler:
    @post("/v1/x", opt={"action": None, "public": True, **opt})
    async def take(stream: NamedDependency[RequestStream]) -> None:
        """Take it."""

    return take


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (at("/v1/x/{key:str}/y", tail="key"), "not the last segment"),
        (at("/v1/x", tail="key"), "not the last segment"),
        (at("/v1/x/{key_id:str}", tail="key_id"), "named like a UUID"),
        (at("/v1/x", takes_stream=True), "need one another"),
        (at("/v1/x", max_stream_bytes=1), "needs a stream"),
        (taking(), "need one another"),
        (taking(takes_stream=True, form=CreatePart), "no other body"),
    ],
)
def test_what_makes_no_sense_does_not_start(handler: HTTPRouteHandler, words: str) -> None:
    with pytest.raises(RouteError, match=words):
        ControlPlane(Routes([handler]))


def test_a_path_has_a_tail_for_all_methods_or_none() -> None:
    @post("/v1/x/{key:str}", opt={"action": None, "public": True})
    async def answer(key: FromPath[str]) -> None:
        """Answer."""

    with pytest.raises(RouteError, match="another method"):
        ControlPlane(Routes([at("/v1/x/{key:str}", tail="key"), answer]))


@get("/v1/shelves/{shelf_id:str}/{key:str}", opt={"action": None, "public": True, "tail": "key"})
async def show_key(shelf_id: FromPath[str], key: FromPath[str]) -> dict[str, str]:
    return {shelf_id: key}


async def test_an_application_without_a_platform_checks_its_paths_too() -> None:
    shelf = "01890000-0000-7000-8000-0000000000AA"
    transport = httpx.ASGITransport(cast("Any", ControlPlane(Routes([show_key]))))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        shown = await client.get(f"/v1/shelves/{shelf}/a%2Fb")
        assert shown.json() == {shelf.lower(): "a/b"}
        assert (await client.get(f"/v1/shelves/{shelf}/a%00")).status_code == 400
        assert (await client.get("/v1/shelves/x/a")).status_code == 404
