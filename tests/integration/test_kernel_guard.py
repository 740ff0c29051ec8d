"""Who comes in: 401, then 403, then 404; what nobody asked for does not leave."""

from __future__ import annotations

import logging
from typing import Final
from uuid import uuid4

import pytest

from cloudcore.iam.principal import PrincipalKind
from tests.control_plane import (
    ACCOUNT,
    Options,
    World,
    assert_envelope,
    count_rows,
    open_world,
)

GET = {"effect": "allow", "actions": ["test:GetThing"], "resources": ["crn:*"]}
DENY_ALL = {"effect": "deny", "actions": ["*"], "resources": ["*"]}


_INVALID: Final = 'Bearer error="invalid_token"'
_AWS: Final = "AWS4-HMAC-SHA256 Credential=a/b/c/s3/aws4_request"
_SIGNED: Final = "SERVICE-HMAC-SHA256 Credential=a/b/c/service/service_request"
BAD_TOKENS: Final = ("Bearer", "Bearer ", "Bearer nobody", "Bearer wri ter")
CHALLENGES: Final[tuple[tuple[list[str], str], ...]] = (
    *(([each], _INVALID) for each in BAD_TOKENS),
    *(([each], _INVALID) for each in ("Bearer writer, Bearer writer", "Bearer " + "a" * 65536)),
    *(([each], "Bearer") for each in ("Basic d3JpdGVyOng=", "writer", _SIGNED, _AWS)),
    *((["Bearer writer", each], "Bearer") for each in ("Bearer writer", "Basic eA==")),
    ([], "Bearer"),
)


async def test_who_shows_no_good_token_is_not_known(plane: World) -> None:
    for headers, challenge in CHALLENGES:
        sent = [("Authorization", value) for value in headers]
        for path in ("/v1/things", "/v1/things/x", "/v1/things?access_token=writer"):
            refused = await plane.ask("GET", path, token=None, headers=sent)
            error = assert_envelope(refused, 401, "UNAUTHORIZED", about=(headers, path))
            assert refused.headers["www-authenticate"] == challenge, (headers, path)
            assert "params" not in error, (headers, path)
    for scheme in ("Bearer", "bearer", "BEARER", "Bearer "):
        good = [("Authorization", f"{scheme} writer")]
        assert (await plane.ask("GET", "/v1/things", token=None, headers=good)).is_success, scheme


async def test_401_comes_before_403_before_404_and_all_before_the_body(plane: World) -> None:
    plane.tokens.add("reader", ACCOUNT, GET)
    path = f"/v1/things/{uuid4()}"
    for method, body in [("PATCH", b"{"), ("DELETE", None)]:
        unknown = await plane.ask(method, path, body, token="nobody")
        assert_envelope(unknown, 401, "UNAUTHORIZED")
        forbidden = await plane.ask(method, path, body, token="reader")
        assert_envelope(forbidden, 403, "ACCESS_DENIED")
        malformed = await plane.ask(method, "/v1/things/x", body, token="reader")
        assert malformed.json()["error"]["message"] == forbidden.json()["error"]["message"]
    assert_envelope(await plane.ask("GET", path, token="reader"), 404, "NOT_FOUND")
    # A body where none is taken would be 400.
    assert_envelope(await plane.ask("GET", "/v1/things", {}, token=None), 401, "UNAUTHORIZED")


async def test_who_is_denied_everything_learns_nothing_of_what_exists(plane: World) -> None:
    made = (await plane.ask("POST", "/v1/things", {"name": "a"})).json()["thing"]["id"]
    plane.tokens.add("banned", ACCOUNT, GET, DENY_ALL)
    plane.tokens.add("nobody")
    plane.tokens.restrict("nobody")
    for token in ("banned", "nobody"):
        for path in ("/v1/things", "/v1/shared"):
            there = await plane.ask("GET", f"{path}/{made}", token=token)
            absent = await plane.ask("GET", f"{path}/{uuid4()}", token=token)
            one, other = (
                assert_envelope(answer, 403, "ACCESS_DENIED") for answer in (there, absent)
            )
            assert one.pop("request_id") != other.pop("request_id")
            assert one == other


async def test_a_person_is_told_to_assume_a_role(plane: World) -> None:
    """A person has no policies in an account; "your policies" would send it looking for some."""
    made = (await plane.ask("POST", "/v1/things", {"name": "a"})).json()["thing"]["id"]
    plane.tokens.add("ada", "")
    plane.tokens.restrict("ada")
    holder, nothing = plane.tokens.holders["ada"]
    person = holder._replace(kind=PrincipalKind.USER, account_id=None)
    plane.tokens.holders["ada"] = person, nothing
    for identity in (made, uuid4()):
        answer = await plane.ask("GET", f"/v1/things/{identity}", token="ada")
        words = str(assert_envelope(answer, 403, "ACCESS_DENIED")["message"])
        assert words.endswith(" here: a person calls account services in an assumed role")


async def test_a_things_own_policy_may_allow_what_no_policy_of_the_caller_does(
    plane: World,
) -> None:
    made = await plane.ask("POST", "/v1/things", {"name": "open"})
    path = f"/v1/shared/{made.json()['thing']['id']}"
    plane.tokens.add("nobody")
    plane.tokens.restrict("nobody")
    assert (await plane.ask("GET", path, token="nobody")).status_code == 200
    plane.tokens.restrict("nobody", DENY_ALL)
    assert_envelope(await plane.ask("GET", path, token="nobody"), 403, "ACCESS_DENIED")


async def test_an_id_is_a_uuid_with_its_dashes(plane: World) -> None:
    good = "01890000-0000-7000-8000-0000000000ab"
    odd = f"{good}x %7B{good}%7D urn:uuid:{good} {good}%0A {good}%00 x .. %2e%2e %EF%BC%91"
    for spelled in (*odd.split(), good[:-1], good.replace("-", "")):
        answer = await plane.ask("GET", f"/v1/things/{spelled}")
        assert_envelope(answer, 404, "NOT_FOUND", about=spelled)


async def test_a_malformed_id_is_400_where_the_specification_says_so(plane: World) -> None:
    error = assert_envelope(await plane.ask("GET", "/v1/test-templates/x"), 400, "INVALID_INPUT")
    assert error["params"] == {"field": "template_id", "reason": "malformed"}
    assert_envelope(await plane.ask("GET", f"/v1/test-templates/{uuid4()}"), 404, "NOT_FOUND")


async def test_conditions_see_the_source_address(plane: World) -> None:
    near = {**GET, "conditions": {"ip_address": ["198.51.100.0/24"]}}

    plane.tokens.add("near", ACCOUNT, near)
    path = f"/v1/things/{uuid4()}"
    assert (await plane.ask("GET", path, token="near")).status_code == 404
    plane.peer = "203.0.113.1"
    assert (await plane.ask("GET", path, token="near")).status_code == 403
    forged = [("X-Forwarded-For", "198.51.100.7")]
    assert (await plane.ask("GET", path, token="near", headers=forged)).status_code == 403


async def test_a_success_without_permission_or_commit_does_not_leave(
    sqlite_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    unasked = [("GET", "/v1/unasked"), ("POST", "/v1/unasked"), ("POST", "/v1/uncommitted")]
    async with open_world(sqlite_database, Options(faulty=True)) as world:
        for number, (method, path) in enumerate(unasked):
            for key in (None, None, f"k{number}", f"k{number}"):
                answer = await world.ask(method, path, key=key)
                assert_envelope(answer, 500, "INTERNAL_ERROR", about=(method, path, key))
                assert "is_fine" not in answer.text
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 12
    assert count_rows(sqlite_database, "things") == 0
    assert count_rows(sqlite_database, "idempotency_records") == 0
