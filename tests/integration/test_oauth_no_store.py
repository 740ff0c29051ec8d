"""No answer of the token endpoints may be stored, whoever makes it (O10; RFC 6749 §5.1)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.oauth_world import CREDENTIALS, World, play


@pytest.mark.parametrize(
    ("method", "options", "status"),
    [
        ("GET", {}, 405),
        ("HEAD", {}, 405),
        ("PUT", {"data": CREDENTIALS}, 405),
        ("OPTIONS", {}, 405),
        ("POST", {"data": {"token": "x" * (1 << 20)}}, 413),
        ("POST", {"json": CREDENTIALS}, 400),
        ("POST", {"data": CREDENTIALS}, 401),
    ],
)
@pytest.mark.parametrize("path", ["/v1/oauth/token", "/v1/oauth/revoke"])
def test_refusals_are_not_stored(
    sqlite_database: str, path: str, method: str, options: dict[str, Any], status: int
) -> None:
    async def scenario(world: World) -> None:
        answer = await world.request(method, path, **options)
        revokes_nothing = status == 401 and path.endswith("/revoke")
        assert answer.status_code == (200 if revokes_nothing else status)
        assert answer.headers.get_list("cache-control") == ["no-store"]
        assert ("allow" in answer.headers) == (status == 405)
        if method != "HEAD" and not revokes_nothing:
            assert set(answer.json()) == {"error", "error_description"}

    play(sqlite_database, scenario)


def test_other_refusals_say_nothing_of_storing(sqlite_database: str) -> None:
    async def scenario(world: World) -> None:
        for path in ("/v1/whoami", "/v1/jwks"):
            answer = await world.request("PUT", path)
            assert answer.status_code == 405
            assert "cache-control" not in answer.headers

    play(sqlite_database, scenario)
