"""Rules that hold for all operations alike, whichever family has them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Final

import httpx

from cloudcore.web.route_spec import RouteSpec
from tests.integration.id_places import BODIES, PLACES, filled, token_of
from tests.integration.keyed_requests import Asked, asked, end_runs
from tests.integration.served_world import Served
from tests.spec.operations import OPERATIONS, Operation

SECRETS: Final = {
    *("secret_access_key", "one_time_password", "signing_secret", "private_key_pem"),
    *("plaintext", "password", "authorization_token", "code"),
}
"""Fields of answers that are secrets, so that none of them is missed by the requests below."""
_BY_PLACE: Final = {each.place: each for each in OPERATIONS}
NAMED: Final = {
    *("/v1/roles", "/v1/policies", "/v1/service-accounts", "/v1/users/me/container-passwords"),
    *("/v1/organizations/{id}/identity-providers", "/v1/repositories", "/v1/queues"),
    *("/v1/buckets", "/v1/certificates"),
}
"""Lists whose filter ``name`` must not go."""
PATHS: Final = {place.operation.place: place for place in PLACES}


async def test_no_answer_for_its_caller_alone_is_stored(served: Served) -> None:
    """Secrets come with ``no-store``, also in a replay, and what may become one does too."""
    seen: set[str] = set()
    stored = {}
    answers = [each async for each in _successes(served)]
    for place, answer in answers:
        if answer.headers.get("content-type") == "application/json":
            seen |= {name for name in _names(answer.json()) if name in SECRETS}
        if "etag" not in answer.headers:
            told = answer.headers.get_list("cache-control")
            if told != ["no-store"]:
                stored[place] = told
    assert stored == {}
    assert seen == SECRETS
    assert len(answers) > 120


async def _successes(served: Served) -> AsyncIterator[tuple[str, httpx.Response]]:
    """Yield successes of reads, of all keyed POSTs and their replays, and of two other POSTs."""
    specs = {_place_of(spec): spec for spec in served.specs}
    for operation in OPERATIONS:
        if operation.method == "GET" and operation.is_built and not operation.is_public:
            _, path, token, _ = _request(operation, specs, {}, served)
            answer = await served.ask("GET", path, token=token)
            if answer.is_success:
                yield operation.place, answer
    requests = await asked(served)
    for operation in _keyed(requests):
        _, path, token, body = _request(operation, specs, requests, served)
        for _ in range(2):
            await end_runs(served)
            key = {"Idempotency-Key": "kept"}
            answer = await served.ask("POST", path, body, token=token, headers=key)
            assert answer.is_success, (path, answer.text)
            yield operation.place, answer
    for place in ("/v1/authorization-token", "/v1/keys/{}/generate-data-key"):
        path = place.format(served.acme.ids["/v1/keys/{}"])
        yield place, await served.ask("POST", path, token=served.acme.program_token)


def _names(answer: object) -> Iterator[str]:
    if isinstance(answer, dict):
        yield from answer
        for value in answer.values():
            yield from _names(value)
    if isinstance(answer, list):
        for value in answer:
            yield from _names(value)


async def test_a_post_that_needs_no_body_takes_none_and_the_empty_object(served: Served) -> None:
    """With the same outcome: under one key, the other is its repetition if neither is read."""
    specs = {_place_of(spec): spec for spec in served.specs if spec.method == "POST"}
    requests, wrong, sent = await asked(served), {}, 0
    fresh = await served.make(
        "/v1/service-accounts", {"name": "e"}, token=served.acme.program_token
    )
    keys = "/v1/service-accounts/{}/access-keys"  # two at most
    requests[keys] = requests[keys]._replace(path=keys.format(fresh["id"]))
    unkeyed = [each for each in OPERATIONS if each.place in specs and not each.takes_key]
    for operation in [*_keyed(requests), *unkeyed]:
        spec, path, token, body = _request(operation, specs, requests, served)
        if spec.public:
            continue
        if spec.is_body_required:
            if operation.takes_key:  # others follow on it
                assert (await served.ask("POST", path, body, token=token)).is_success, path
            continue
        for number, empty in enumerate((b" {\n}", b"")):
            await end_runs(served)
            kind = {"Content-Type": "application/json"} if empty else {}
            key = {"Idempotency-Key": str(number if spec.body else 0)} if spec.idempotent else {}
            answer = await served.ask("POST", path, empty, token=token, headers=kind | key)
            is_replay = number > 0 and spec.idempotent and spec.body is None
            if not answer.is_success or is_replay != ("idempotency-replayed" in answer.headers):
                wrong[operation.place, empty] = answer.text
        sent += 1
    assert wrong == {}
    assert sent > 18


async def test_no_other_body_is_taken_where_none_is_read(served: Served) -> None:
    """Only of a POST, only as JSON, and of no length."""
    token = served.acme.program_token
    path = filled(PATHS["POST /v1/keys/{}/generate-data-key"], served.acme)
    kind = {"Content-Type": "application/json"}
    for body in (b'{"a":1}', b"[]", b"null", b"{}{}", b"{" + b" " * 99 + b"}", b"\0"):
        refused = await served.ask("POST", path, body, token=token, headers=kind)
        assert refused.status_code == 400, body
        assert refused.json()["error"]["params"] == {"field": "body", "reason": "not_allowed"}
    for headers in ({}, {"Content-Type": "text/plain"}):
        refused = await served.ask("POST", path, b"{}", token=token, headers=headers)
        assert refused.status_code == 400, headers
    for method in ("GET", "DELETE"):
        path = f"/v1/roles/{served.acme.ids['/v1/roles/{}']}"
        refused = await served.ask(method, path, b"{}", token=token, headers=kind)
        assert refused.status_code == 400, method


async def test_a_list_of_what_has_a_name_is_filtered_by_it(served: Served) -> None:
    """Exactly, in its rows and in its total; a marker of the whole list is none of the filtered."""
    specs = {_place_of(spec): spec for spec in served.specs}
    filtered = set()
    for operation in OPERATIONS:
        query = specs[operation.place].query if operation.place in specs else None
        if query is None or not {"name", "marker"} <= {*query.__struct_fields__}:
            continue
        _, path, token, _ = _request(operation, specs, {}, served)
        whole = (await served.ask("GET", path, token=token)).json()
        many = next(key for key in whole if key != "meta")
        name = whole[many][-1]["name"]
        for asked_for, total in ((name, 1), (name[:-1], 0), (f"{name}%", 0)):
            params = {"name": asked_for, "limit": 1}
            answer = await served.ask("GET", f"{path}?{httpx.QueryParams(params)}", token=token)
            found = answer.json()
            assert [each["name"] for each in found[many]] == [name] * total, (path, found)
            assert (found["meta"]["total"], found["meta"]["has_more"]) == (total, False), path
        filtered.add(operation.path)
    assert filtered >= NAMED


def _keyed(requests: Iterable[str]) -> list[Operation]:
    """Return the operations of requests, in their order."""
    return [_BY_PLACE[f"POST {place}"] for place in requests]


def _request(
    operation: Operation,
    specs: Mapping[str, RouteSpec],
    requests: Mapping[str, Asked],
    served: Served,
) -> tuple[RouteSpec, str, str, object]:
    """Return the route, path, token and body for an operation."""
    spec = specs[operation.place]
    path = filled(PATHS[operation.place], served.acme) if operation.place in PATHS else spec.path
    request = requests.get(operation.place.partition(" ")[2])
    if request is None:
        return spec, path, token_of(operation, served.acme), BODIES.get(operation.place, {})
    return spec, request.path or path, request.token, request.body


def _place_of(spec: RouteSpec) -> str:
    return f"{spec.method} {re.sub('{[^}]*}', '{}', spec.path)}"
