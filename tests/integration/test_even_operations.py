"""Rules that hold for all operations alike, whichever family has them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Final, get_args

import httpx
from msgspec import Struct, structs

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
LABELS: Final = ("name", "handle", "email")
"""Fields that persons know things by."""
UNFILTERED: Final = {
    "/v1/repositories/search": "it finds by a part of the name",
    "/v1/repositories/stale": "those that nobody pulls; the list of all finds the one of a name",
    "/v1/repositories/deleted": "those of some days",
    "/v1/quotas": "`GET /v1/quotas/{name}` is the one of a name",
    "/v1/repositories/{}/tags": "`GET …/tags/{tag}` is the one of a name",
    "/v1/repositories/{}/images/{}/pins": "an image has few",
}
"""Lists that no name filters, and why."""
CHANGED: Final[dict[str, object]] = {
    "description": "x",
    "tags": {"a": "b"},
    "ip_pool": "ip-pool-0",
    "kms_key": "key",
    "delay_seconds": 1,
    "lease_seconds": 1,
    "retention_seconds": 60,
    "redrive_policy": {"dead_letter_queue": "queue-0"},
    "/v1/queues/{} redrive_policy": {"dead_letter_queue": "queue-0", "max_leases": 1},
    "delivery_policy": {"max_retries": 1},
    "filter_policy": {"a": ["b"]},
    "raw_message_delivery": True,
    "replica_count": 3,
    "command": ["/bin/sh"],
    "environment": {"A": "b"},
    "size": 3,
    "schedule": {"base_cron": "0 3 * * *"},
    "retention": {"base_count": 3},
    "memory_mb": 512,
    "cpu_millis": 500,
    "/v1/load-balancers/{} security_groups": ["security-group-0"],
    "expires_at": "2099-01-01T00:00:00Z",
    "max_session_seconds": 7200,
    "client_secret": "x",
    "scopes": ["groups"],
    "email_verified_claim": "x",
    "email_domains": ["example.org"],
    "creates_people": True,
    "session_hours": 1,
    "private_key_export": False,
    "tag_mutability": "immutable",
    "immutable_tag_exclusions": ["x"],
    "upstream_prefix": "x",
    "credential": {"username": "x", "secret": "x"},
    "tag_ttl_seconds": 60,
    "negative_ttl_seconds": 0,
    "keep_unpulled_days": 1,
    "max_bytes": 1,
    "enabled": False,
    "display_name": "Ours",
    "undelete_days": 1,
    "uncounted_pullers": ["*"],
    "access_key_login": True,
    "route_table": "route-table-0",
    "rules": [],
}
"""For each field that changes may take away, something that it does not have by default."""
KEPT: Final = {
    ("/v1/instance-pools/{}", "security_groups"): "they need a subnet, which it has not",
    ("/v1/payment-methods/{}", "is_default"): "an organization has one default",
    ("/v1/policies/{}", "document"): "a policy without one has been created from a template",
    ("/v1/route-tables/{}", "routes"): "a route needs gateways: `test_network_routes_and_groups`",
    ("/v1/templates/{}", "html"): "a template has one body at least",
    ("/v1/templates/{}", "text"): "a template has one body at least",
}
"""Optional fields of a creation that null does not take away, and why."""
_MARKS: Final = ("updated_at", "revision", "rewrap")
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
        answer = list(answer.values())
    for value in answer if isinstance(answer, list) else ():
        yield from _names(value)


async def test_a_post_that_needs_no_body_takes_none_and_the_empty_object(served: Served) -> None:
    """With the same outcome: under one key, the other is its repetition if neither is read."""
    specs = {_place_of(spec): spec for spec in served.specs if spec.method == "POST"}
    requests, wrong, sent = await asked(served), {}, 0
    token = served.acme.program_token
    fresh = await served.make("/v1/service-accounts", {"name": "e"}, token=token)
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


async def test_a_list_of_what_has_a_name_is_filtered_by_it(
    served: Served, described: dict[str, Any]
) -> None:
    """Exactly, in its rows and in its total; a marker of the whole list is none of the filtered."""
    specs = {_place_of(spec): spec for spec in served.specs}
    named, filtered = set(), set()
    for place, label, is_filtered in _lists(described):
        named.add(place)
        if not is_filtered:
            continue
        filtered.add(place)
        _, path, token, _ = _request(_BY_PLACE[f"GET {place}"], specs, {}, served)
        whole = (await served.ask("GET", path, token=token)).json()
        many = next(key for key in whole if key != "meta")
        value = whole[many][-1][label]
        for asked_for, total in ((value, 1), (value[:-1], 0), (f"{value}%", 0)):
            params = {label: asked_for, "limit": 1}
            answer = await served.ask("GET", f"{path}?{httpx.QueryParams(params)}", token=token)
            found = answer.json()
            assert [each[label] for each in found[many]] == [value] * total, (path, found)
            assert (found["meta"]["total"], found["meta"]["has_more"]) == (total, False), path
    assert named - filtered == UNFILTERED.keys()
    assert len(filtered) > 14


async def test_members_are_found_by_their_address(served: Served) -> None:
    """In any case, as elsewhere; a member's name is the address."""
    acme = served.acme
    path = f"/v1/organizations/{acme.organization_id}/members"
    for asked_for, total in ((acme.person.email.upper(), 1), ("x@example.org", 0)):
        answer = await served.ask("GET", f"{path}?email={asked_for}", token=acme.person_token)
        assert (len(answer.json()["members"]), answer.json()["meta"]["total"]) == (total, total)


def _lists(document: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Return the lists of an OpenAPI document of what has a label, and whether that filters."""
    schemas = document["components"]["schemas"]
    found: list[tuple[str, str, bool]] = []
    for path, methods in document["paths"].items():
        operation = methods.get("get", {})
        content = operation.get("responses", {}).get("200", {}).get("content", {})
        answer = _schema(schemas, content.get("application/json", {}).get("schema", {}))
        if "meta" not in answer:
            continue
        rows = next(each["items"] for each in answer.values() if each.get("type") == "array")
        label = next((each for each in LABELS if each in _schema(schemas, rows)), None)
        if label is not None:
            taken = {each["name"] for each in operation["parameters"] if each["in"] == "query"}
            found.append((re.sub("{[^}]*}", "{}", path), label, label in taken))
    return found


def _schema(schemas: Mapping[str, Any], of: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a schema."""
    named = schemas[of["$ref"].rpartition("/")[2]] if "$ref" in of else of
    return dict(named.get("properties", {}))


async def test_null_takes_away_what_the_creation_may_leave_out(served: Served) -> None:
    """Alike for all PATCHes: then the resource is as if the creation had left the field out."""
    specs = {_place_of(spec): spec for spec in served.specs}
    requests, wrong, changed = await asked(served), {}, 0
    for spec in (each for each in specs.values() if each.method == "PATCH"):
        place = re.sub("{[^}]*}", "{}", spec.path)
        optional = _optional_of(spec, specs.get(f"POST {place.rpartition('/')[0]}"))
        optional = optional - {field for path, field in KEPT if path == place}
        if not optional:
            continue
        path, token = await _without(optional, spec, specs, requests, served)
        before = await _record(served, path, token)
        for field in sorted(optional):
            other = CHANGED.get(f"{place} {field}", CHANGED.get(field))
            given = await served.ask("PATCH", path, {field: other}, token=token)
            assert given.is_success, (place, field, given.text)
            assert await _record(served, path, token) != before, (place, field)
            cleared = await served.ask("PATCH", path, {field: None}, token=token)
            if not cleared.is_success or await _record(served, path, token) != before:
                wrong[place, field] = cleared.text
            changed += 1
    assert wrong == {}
    assert changed > 25


async def test_null_for_what_the_creation_needs_is_refused(served: Served) -> None:
    """With the field's name, as a value of a wrong type."""
    path = f"/v1/roles/{served.acme.ids['/v1/roles/{}']}"
    token = served.acme.program_token
    refused = await served.ask("PATCH", path, {"trust_policy": None}, token=token)
    assert refused.status_code == 400
    assert refused.json()["error"]["params"]["field"] == "trust_policy"


def _optional_of(spec: RouteSpec, creation: RouteSpec | None) -> set[str]:
    """Return the fields of a PATCH that a creation may leave out; of settings, all."""
    given = {each.name for each in structs.fields(_struct(spec.body))}
    if creation is None or creation.body is None:
        return given if spec.path.endswith("-settings") else set()
    fields = structs.fields(_struct(creation.body))
    return given & {each.name for each in fields if not each.required}


def _struct(body: object) -> type[Struct]:
    """Return the type of a body that may be left out."""
    return next(each for each in (*get_args(body), body) if isinstance(each, type))


async def _without(
    optional: set[str],
    spec: RouteSpec,
    specs: Mapping[str, RouteSpec],
    requests: Mapping[str, Asked],
    served: Served,
) -> tuple[str, str]:
    """Create a resource without its optional fields; return its path and a token for it."""
    if spec.path.endswith("-settings"):
        return spec.path, served.acme.program_token
    listed = re.sub("{[^}]*}", "{}", spec.path).rpartition("/")[0]
    _, path, token, body = _request(_BY_PLACE[f"POST {listed}"], specs, requests, served)
    assert isinstance(body, dict)
    bare = {name: value for name, value in body.items() if name not in optional}
    answer = await served.ask("POST", path, bare, token=token)
    assert answer.status_code in (201, 202), answer.text
    return answer.headers["location"], token


async def _record(served: Served, path: str, token: str) -> dict[str, object]:
    """Return what a resource is, without what any change changes."""
    (record,) = (await served.ask("GET", path, token=token)).json().values()
    return {name: value for name, value in record.items() if name not in _MARKS}


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
