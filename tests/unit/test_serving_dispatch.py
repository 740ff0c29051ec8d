"""The front door: which plane a request goes to, request ids, and the lifespan of both."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from cloudcore.serving.asgi import Message, Receive, Scope, Send
from cloudcore.serving.dispatch import Dispatcher, new_request_id
from cloudcore.serving.planes import PLAIN, Plane, Planes
from registry.composition.planes import dispatcher as registry_dispatcher


class Served:
    """Notes the scopes it is given, and takes part in the lifespan."""

    def __init__(self, name: str, events: list[str]) -> None:
        self.name = name
        self.events = events
        self.request_ids: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for _ in range(2):
                kind = (await receive())["type"]
                self.events.append(f"{self.name} {kind}")
                await send({"type": f"{kind}.complete"})
            return
        self.events.append(self.name)
        self.request_ids.append(scope["state"]["request_id"])


async def no_receive() -> Message:
    raise AssertionError


async def no_send(message: Message) -> None:
    raise AssertionError(message)


@pytest.mark.parametrize(
    ("raw_path", "plane"),
    [
        (b"/v2", "data"),
        (b"/v2/", "data"),
        (b"/v2/a/b/tags/list", "data"),
        (b"/v20", "control"),
        (b"/V2/", "control"),
        (b"/%762/", "control"),
        (b"//v2/", "control"),
        (b"/", "control"),
    ],
)
async def test_the_raw_path_decides(raw_path: bytes, plane: str) -> None:
    events: list[str] = []
    dispatcher = registry_dispatcher(Served("data", events), Served("control", events))
    scope: dict[str, Any] = {"type": "http", "raw_path": raw_path, "path": "/v2/", "headers": []}
    await dispatcher(scope, no_receive, no_send)
    assert events == [plane]


def refusal_body(status: int, message: str, request_id: str) -> bytes:
    raise AssertionError


BUCKETS = Planes(
    Plane("data", refusal_body, prefixes=(b"/v2",)),
    Plane("objects", refusal_body, hosts=(b".s3.cloud.test",)),
    Plane("pages", refusal_body, prefixes=(b"/console", b"/static"), hosts=(b"cloud.test",)),
    Plane("control", refusal_body),
)
"""Planes told apart by path, by host, and by both."""


@pytest.mark.parametrize(
    ("host", "path", "plane"),
    [
        (b"cloud.test", b"/v2/", "data"),
        (b"s3.cloud.test", b"/bucket/key", "objects"),
        (b"bucket.S3.cloud.test:9000", b"/console", "objects"),
        (b"xs3.cloud.test", b"/bucket/key", "control"),
        (b"cloud.test:443", b"/console/images", "pages"),
        (b"cloud.test", b"/static", "pages"),
        (b"cloud.test", b"/statics", "control"),
        (b"other.test", b"/console", "control"),
        (b"[::1]:5000", b"/console", "control"),
    ],
)
async def test_host_and_path_decide_among_any_number_of_applications(
    host: bytes, path: bytes, plane: str
) -> None:
    events: list[str] = []
    served = [Served(each.name, events) for each in BUCKETS.planes]
    scope: dict[str, Any] = {
        "type": "http",
        "raw_path": path,
        "path": path.decode(),
        "headers": [(b"accept", b"*/*"), (b"host", host)],
    }
    await Dispatcher(BUCKETS, served)(scope, no_receive, no_send)
    assert events == [plane]


def test_planes_that_share_a_name_are_counted_together() -> None:
    planes = Planes(
        Plane("control", refusal_body, prefixes=(b"/console",)),
        Plane("data", refusal_body, prefixes=(b"/v2",)),
        Plane("control", refusal_body),
    )
    assert planes.names == ("control", "data")
    found = [planes.counted_at(planes.find(path)) for path in (b"/console", b"/v2", b"/v1/a")]
    assert found == [0, 1, 0]


def test_the_last_plane_owns_the_rest() -> None:
    with pytest.raises(ValueError, match="last plane"):
        Planes(Plane("data", refusal_body, prefixes=(b"/v2",)))
    with pytest.raises(ValueError, match="one application for each"):
        Dispatcher(PLAIN, [])


async def test_every_request_gets_an_id_of_its_own() -> None:
    plane = Served("data", [])
    dispatcher = registry_dispatcher(plane, plane)
    for _ in range(50):
        scope: dict[str, Any] = {
            "type": "http",
            "path": "/v2/",
            "headers": [],
            "state": {"shared": 1},
        }
        await dispatcher(scope, no_receive, no_send)
        assert scope["state"]["shared"] == 1
    assert len(set(plane.request_ids)) == 50


def test_request_ids_are_random_uuids() -> None:
    for _ in range(200):
        request_id = new_request_id()
        parsed = uuid.UUID(request_id)
        assert (parsed.version, parsed.variant) == (4, uuid.RFC_4122)
        assert str(parsed) == request_id


async def live(dispatcher: Dispatcher, events: list[str]) -> None:
    """Run a whole lifespan."""
    messages = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> Message:
        return {"type": next(messages)}

    async def send(message: Message) -> None:
        events.append(message["type"])

    await dispatcher({"type": "lifespan"}, receive, send)


async def test_the_data_plane_lives_longer_than_the_control_plane() -> None:
    events: list[str] = []

    async def startup() -> None:
        events.append("startup")

    async def shutdown() -> None:
        events.append("shutdown")

    plane = Served("control", events)
    await live(registry_dispatcher(plane, plane, startup=startup, shutdown=shutdown), events)
    assert events == [
        "startup",
        "control lifespan.startup",
        "lifespan.startup.complete",
        "control lifespan.shutdown",
        "shutdown",
        "lifespan.shutdown.complete",
    ]


async def test_a_control_plane_that_fails_to_start_shuts_the_data_plane_down() -> None:
    events: list[str] = []

    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no"})

    async def shutdown() -> None:
        events.append("shutdown")

    await live(registry_dispatcher(failing, failing, shutdown=shutdown), events)
    assert events == ["shutdown", "lifespan.startup.failed"]


async def test_a_data_plane_that_fails_to_start_is_not_hidden() -> None:
    async def startup() -> None:
        raise LookupError("no database")

    events: list[str] = []
    with pytest.raises(LookupError):
        await live(
            registry_dispatcher(Served("data", []), Served("control", events), startup=startup),
            events,
        )
    assert events == []
