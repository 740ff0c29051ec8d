"""The access log of a registry in service: who asked, with which program, and no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from cloudcore.serving.asgi import Receive, Scope, Send
from registry.console.control_plane import ControlPlaneClient
from tests.live import LiveRegistry
from tests.live_signed_in import serving
from tests.tenants import claims_of
from tests.waiting import until


def line_of(registry: LiveRegistry, answer: httpx.Response) -> dict[str, Any]:
    """Return the line of an answer; its last 0.25 s may still be unwritten."""
    request_id = answer.headers["x-request-id"]
    found: list[dict[str, Any]] = []

    def is_written() -> bool:
        lines = [json.loads(line) for line in registry.lines if line.startswith("{")]
        found[:] = [
            line
            for line in lines
            if line.get("request_id") == request_id and line["logger"] == "access"
        ]
        return bool(found)

    until(is_written)
    return found[0]


def test_both_planes_name_the_caller(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as world:
        registry, tenant = world.registry, world.acme
        asked = "repository:acme/x:pull"
        with httpx.Client(base_url=registry.url, headers={"User-Agent": "probe/1"}) as client:
            token = client.get(
                "/v2/token", params={"scope": asked}, auth=("token", tenant.password)
            )
            bearer = token.json()["token"]
            crn = claims_of(bearer)["sub"]
            assert crn.startswith("crn:")
            carried = {"Authorization": f"Bearer {bearer}"}
            nobody = client.get("/v2/token", params={"scope": asked})
            known = [
                token,
                client.get("/v2/acme/x/tags/list", headers=carried),
                client.delete("/v2/acme/x/manifests/1", headers=carried),
                client.get("/v1/repositories", headers=tenant.headers),
                client.get("/v1/accounts/nobody", headers=tenant.headers),
            ]
            unknown = [
                nobody,
                client.get("/v2/", headers={"Authorization": f"Bearer {nobody.json()['token']}"}),
                client.get("/v2/"),
                client.get("/v1/repositories"),
                client.get("/v1/repositories", headers={"Authorization": "Bearer wrong"}),
                client.get("/healthz"),
            ]
            for answer in known:
                assert line_of(registry, answer)["principal"] == crn, answer.url
            for answer in unknown:
                assert line_of(registry, answer)["principal"] == "", answer.url
            assert line_of(registry, known[0])["user_agent"] == "probe/1"
    for secret in (bearer, tenant.password, tenant.access_token):
        assert secret not in registry.log


async def test_a_page_of_the_console_names_whom_it_acts_for() -> None:
    async def control(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"] |= {"principal": "crn:someone", "source": "somebody"}
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    outer = {"asgi": {}, "scheme": "http", "headers": [], "state": {"request_id": "id"}}
    assert await ControlPlaneClient(control, outer).get("/v1/users/me") == {}
    assert outer["state"] == {
        "request_id": "id",
        "principal": "crn:someone",
        "source": "somebody",
    }


async def test_an_object_on_its_way_names_whom_it_goes_to_before_its_last_byte() -> None:
    async def control(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"] |= {"principal": "crn:someone"}
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"bytes"})

    outer: dict[str, Any] = {"asgi": {}, "scheme": "http", "headers": []}
    outer["state"] = {"request_id": "id"}
    named = []

    async def send(message: Any) -> None:  # noqa: ANN401 - a message
        named.append((message["type"], outer["state"].get("principal")))

    async def receive() -> Any:  # noqa: ANN401 - a message
        return {"type": "http.disconnect"}

    client = ControlPlaneClient(control, outer)
    await client.relay("GET", "/v1/x", receive, send, (), lambda headers: None)
    # The line of the log is written with the last part of the answer.
    assert named[-1] == ("http.response.body", "crn:someone")
