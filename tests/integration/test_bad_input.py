"""Bad input over the wire: what each request must get, and what must hold whatever it gets."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.conformance.content import Content, blob, image_index, image_manifest
from tests.integration.bad_input.case import Case
from tests.integration.bad_input.manifests import manifest_cases
from tests.integration.bad_input.names import name_cases, tag_cases
from tests.integration.bad_input.raw_request import Answer
from tests.integration.bad_input.reads import (
    delete_and_mount_cases,
    list_cases,
    read_cases,
    referrer_cases,
)
from tests.integration.bad_input.uploads import TEN, upload_cases
from tests.integration.bad_input.world import World, build_world

CASES = [
    *name_cases(),
    *tag_cases(),
    *upload_cases(),
    *manifest_cases(),
    *read_cases(),
    *list_cases(),
    *referrer_cases(),
    *delete_and_mount_cases(),
]
SLOWEST = 5.0
"""Seconds within which every answer comes, on a machine that does not stand still meanwhile."""


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, registry_url: str, namespace: str) -> Iterator[World]:
    """Return a filled registry, of which `repo` may not change.

    Nothing may be written outside its data folder.
    """
    is_ours = not request.config.getoption("--registry")
    data = request.getfixturevalue("live_registry").data if is_ours else None
    world = build_world(registry_url, namespace)
    before = world.state_of_repo()
    yield world
    assert world.state_of_repo() == before
    if data:
        assert [path.name for path in data.parent.iterdir()] == [data.name]


@pytest.fixture(scope="module")
def request_ids() -> set[str]:
    """Return the request ids seen so far."""
    return set()


def target_of(case: Case, world: World) -> tuple[str, str | None]:
    """Fill in a case's target; return it, and the upload session it speaks of."""
    names, upload = world.names(), None
    if any(word in case.target for word in ("{upload}", "{dashless}", "{shouted}", "{tail}")):
        upload = world.open_upload(world.repo, TEN)
        names |= {
            "upload": upload,
            "dashless": upload.replace("-", ""),
            "shouted": upload.upper().replace("-", "%2D"),
            "tail": upload[1:],
        }
    if "{committed}" in case.target:
        names["committed"] = committed = world.open_upload(world.repo, world.free.body)
        target = f"/v2/{world.repo}/blobs/uploads/{committed}?digest={world.free.digest}"
        assert world.send("PUT", target, {"Content-Length": "0"}).status == 201
    if "{cancelled}" in case.target:
        names["cancelled"] = cancelled = world.open_upload(world.repo)
        assert world.send("DELETE", f"/v2/{world.repo}/blobs/uploads/{cancelled}").status == 204
    return case.target.format(**names), upload


def assert_refusal_is_well_formed(answer: Answer) -> None:
    """Require the OCI envelope with messages for people, in JSON."""
    assert answer.header("content-type") == "application/json"
    assert answer.header("content-length") == str(len(answer.body))
    assert answer.errors
    for error in answer.errors:
        assert error["code"]
        assert error["message"].strip()
        assert set(error) <= {"code", "message", "detail"}


def assert_head_equals_get(world: World, case: Case, target: str, get: Answer) -> None:
    """Require that HEAD has GET's status and headers, and no body."""
    if get.status == 206 or "Range" in case.headers:
        return  # Range is for GET alone (RFC 9110 §14.2)
    head = world.send("HEAD", target, dict(case.headers))
    assert head.status == get.status
    assert head.body == b""
    assert head.comparable_headers == get.comparable_headers


def assert_quick(answer: Answer, ask_again: Callable[[], Answer]) -> None:
    """Require an answer in time, or the next one: what is slow by its input is slow again."""
    assert answer.seconds < SLOWEST or ask_again().seconds < SLOWEST


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case(world: World, request_ids: set[str], case: Case) -> None:
    """The answer is one of the right ones, whole, quick, and a refusal changes nothing."""
    target, upload = target_of(case, world)
    body = case.body if isinstance(case.body, bytes) else case.body(world)
    # What is only read is looked after once, at the end of the module.
    before = None if case.method == "GET" else world.known_state()
    answer = world.send(case.method, target, dict(case.headers), body)

    assert answer.status in case.statuses, (answer.status, answer.body[:500])
    assert answer.header("docker-distribution-api-version") == "registry/2.0"
    request_id = str(uuid.UUID(answer.header("x-request-id")))
    assert request_id not in request_ids
    request_ids.add(request_id)
    for name, value in case.answer.items():
        assert answer.header(name) == value, answer.headers
    if case.method == "GET":
        assert_head_equals_get(world, case, target, answer)
    if answer.status >= 400:
        assert_refusal_is_well_formed(answer)
        assert not case.codes or {error["code"] for error in answer.errors} <= case.codes
        assert before is None or world.state() == before
        if upload and not case.ends_upload:
            assert world.received(upload) == f"0-{len(TEN) - 1}"
    assert_quick(answer, lambda: world.send(case.method, target, dict(case.headers), body))


def test_case_ids_are_unique() -> None:
    """A case can be named."""
    assert len({case.id for case in CASES}) == len(CASES)


def test_upper_case_path_is_unknown(world: World) -> None:
    """`/V2/` is no path of ours."""
    assert world.send("GET", "/V2/").status == 404


def test_content_encoding_is_not_undone(world: World) -> None:
    """Bytes are stored and hashed as sent."""
    content = Content(b"\x1f\x8b not really gzip")
    target = f"/v2/{world.scratch}/blobs/uploads/?digest={content.digest}"
    pushed = world.send("POST", target, {"Content-Encoding": "gzip"}, content.body)
    assert pushed.status == 201
    pulled = world.send("GET", f"/v2/{world.scratch}/blobs/{content.digest}")
    assert pulled.body == content.body
    assert pulled.header("content-encoding") is None


def test_sibling_layer_is_as_good_as_unknown(world: World) -> None:
    """What a sibling repository holds is refused like what nobody holds."""
    nobodys = blob()
    sibling, unknown = (
        world.put(world.repo, image_manifest(world.config, [layer]), "bad")
        for layer in (world.elsewhere, nobodys)
    )
    digests = (nobodys.digest.encode(), world.elsewhere.digest.encode())
    assert sibling.body == unknown.body.replace(*digests)
    assert sibling.comparable_headers == unknown.comparable_headers


def test_doubling_indexes_are_walked_in_bounds(world: World) -> None:
    """Twenty indexes, each twice in the next: a million leaves, twenty documents."""
    child = world.image
    for depth in range(20):
        child_index = image_index([child, child], annotations={"depth": str(depth)})
        answer = world.put(world.scratch, child_index, child_index.digest)
        assert answer.status in {201, 400}
        assert_quick(answer, partial(world.put, world.scratch, child_index, child_index.digest))
        if answer.status == 400:
            return
        child = child_index
    for path in (f"manifests/{child.digest}", f"referrers/{child.digest}", "tags/list"):
        ask = partial(world.send, "GET", f"/v2/{world.scratch}/{path}")
        read = ask()
        assert read.status == 200
        assert_quick(read, ask)


def test_odd_annotations_do_not_break_the_referrers(world: World) -> None:
    """Whatever was accepted with a subject is listed as JSON again."""
    for case in CASES:
        if case.id.startswith(("M35", "M38", "M39")) and not isinstance(case.body, bytes):
            target = case.target.format(**world.names())
            world.send(case.method, target, dict(case.headers), case.body(world))
    target = f"/v2/{world.scratch}/referrers/{world.image.digest}"
    answer = world.send("GET", target)
    assert answer.status == 200
    assert b'"manifests"' in answer.body
