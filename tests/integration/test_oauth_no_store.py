"""No answer of the token endpoints may be stored, whoever makes it (RFC 6749 §5.1)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.oauth_world import CREDENTIALS, World


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
async def test_refusals_are_not_stored(
    oauth: World, path: str, method: str, options: dict[str, Any], status: int
) -> None:
    answer = await oauth.request(method, path, **options)
    revokes_nothing = status == 401 and path.endswith("/revoke")
    assert answer.status_code == (200 if revokes_nothing else status)
    assert answer.headers.get_list("cache-control") == ["no-store"]
    assert ("allow" in answer.headers) == (status == 405)
    if method != "HEAD" and not revokes_nothing:
        assert set(answer.json()) == {"error", "error_description"}


async def test_other_refusals_say_nothing_of_storing(oauth: World) -> None:
    for path in ("/v1/whoami", "/v1/jwks"):
        answer = await oauth.request("PUT", path)
        assert answer.status_code == 405
        assert "cache-control" not in answer.headers
