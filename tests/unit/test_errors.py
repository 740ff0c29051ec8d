"""One tree of errors, and a table that turns every class of it into an answer."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from types import ModuleType
from typing import Any

import pytest

from cloudcore import errors as platform
from cloudcore.serving.http.response import refusal_response
from registry import errors as registry
from registry.composition.planes import PLANES
from registry.distribution.errors import TABLE, internal_error, render, rendering
from registry.distribution.response import Response
from registry.oci.digest import digest_of

# distribution-spec, "Error Codes", code-1 to code-14.
OCI_CODES = {
    *("BLOB_UNKNOWN", "BLOB_UPLOAD_INVALID", "BLOB_UPLOAD_UNKNOWN", "DIGEST_INVALID"),
    *("MANIFEST_BLOB_UNKNOWN", "MANIFEST_INVALID", "MANIFEST_UNKNOWN", "NAME_INVALID"),
    *("NAME_UNKNOWN", "SIZE_INVALID", "UNAUTHORIZED", "DENIED", "UNSUPPORTED", "TOOMANYREQUESTS"),
}

# What inherits its answer, because it is the answer of its parent by meaning.
INHERITED = {
    registry.DigestMismatch: (400, "DIGEST_INVALID"),
    registry.ManifestTypeUnsupported: (400, "MANIFEST_INVALID"),
    registry.StoreUnavailable: (503, "UNKNOWN"),
}


def descendants(error: type[platform.PlatformError]) -> Iterator[type[platform.PlatformError]]:
    for child in error.__subclasses__():
        yield child
        yield from descendants(child)


TREE = sorted(set(descendants(platform.PlatformError)), key=lambda error: error.__name__)
OURS = [error for error in TREE if error.__module__ == registry.__name__]


def test_every_class_of_the_registry_hangs_on_the_tree() -> None:
    defined = {
        item
        for _, item in inspect.getmembers(registry, inspect.isclass)
        if item.__module__ == registry.__name__
    }
    assert defined == set(OURS)


@pytest.mark.parametrize("error", OURS, ids=lambda error: error.__name__)
def test_every_class_has_an_answer_of_its_own_or_by_decision(
    error: type[platform.PlatformError],
) -> None:
    if error in TABLE:
        assert error not in INHERITED
    else:
        assert rendering(error) == INHERITED[error]


@pytest.mark.parametrize("error", TREE, ids=lambda error: error.__name__)
def test_no_named_error_is_answered_as_a_bug(error: type[platform.PlatformError]) -> None:
    status, code = rendering(error)
    assert status != 500
    assert code in OCI_CODES or code == "UNKNOWN"
    assert (code == "UNKNOWN") == (status >= 500)


def test_the_codes_are_those_of_the_specification_and_one_for_our_own_faults() -> None:
    for status, code in TABLE.values():
        assert code in ({"UNKNOWN"} if status >= 500 else OCI_CODES)


@pytest.mark.parametrize("status", [each for each in HTTPStatus if each >= 400])
def test_the_server_refuses_in_the_codes_of_the_specification(status: HTTPStatus) -> None:
    for path in (b"/v2", b"/v2/", b"/v2/acme/app/blobs/uploads/"):
        answer, _ = refusal_response(status, "no", PLANES.planes[PLANES.find(path)], request_id="x")
        (item,) = json.loads(answer.partition(b"\r\n\r\n")[2])["errors"]
        assert item["code"] in ({"UNKNOWN"} if status >= 500 else OCI_CODES)


def test_a_tag_that_may_not_move_is_denied() -> None:
    assert rendering(registry.TagImmutable) == (409, "DENIED")


def drawn_in(module: ModuleType) -> set[str]:
    """Return the names in the indented part of a module's docstring."""
    lines = (inspect.getdoc(module) or "").splitlines()
    drawing = "\n".join(line for line in lines if line.startswith("    "))
    if module is platform:  # a tree with what each class means beside it
        return set(re.findall(r"(?:^    |[├└]── )(\w+)", drawing, re.MULTILINE))
    return set(re.findall(r"\w+", drawing))


def test_the_docstrings_draw_every_class() -> None:
    roots = {child.__name__ for child in platform.PlatformError.__subclasses__()}
    assert drawn_in(platform) == {"PlatformError"} | roots
    drawn = drawn_in(registry)
    assert {error.__name__ for error in OURS} <= drawn
    assert drawn <= {error.__name__ for error in OURS} | roots


def test_the_drawing_puts_each_class_under_its_parent() -> None:
    lines = (inspect.getdoc(registry) or "").splitlines()
    parent: type[platform.PlatformError] | None = None
    for line in lines:
        row = re.fullmatch(r"    (?:(\w+) +| +)((?:\w+ · )*\w+)", line)
        if row is None:
            continue
        if row[1]:
            parent = getattr(platform, row[1])
        for name in row[2].split(" · "):
            assert parent is not None
            assert issubclass(getattr(registry, name), parent)


def body_of(answer: Response) -> bytes:
    assert isinstance(answer.body, bytes)
    return answer.body


def errors_of(answer: Response) -> list[dict[str, Any]]:
    """Return the errors of an answer, which has nothing else."""
    document = json.loads(body_of(answer))
    assert document.keys() == {"errors"}
    return list(document["errors"])


def test_an_answer_is_an_error_list() -> None:
    answer = render(registry.BlobUnknown("no such blob", digest="sha256:0"))
    told = {"code": "BLOB_UNKNOWN", "message": "no such blob", "detail": {"digest": "sha256:0"}}
    assert (answer.status, errors_of(answer)) == (404, [told])
    assert dict(answer.headers) == {
        b"content-type": b"application/json",
        b"content-length": b"%d" % len(body_of(answer)),
    }


def test_missing_content_is_told_one_by_one() -> None:
    digests = [str(digest_of(b"a")), str(digest_of(b"b"))]
    items = errors_of(render(registry.ManifestBlobUnknown(digests)))
    assert [item["code"] for item in items] == ["MANIFEST_BLOB_UNKNOWN"] * 2
    assert [item["detail"]["digest"] for item in items] == digests


def test_of_much_missing_content_the_first_is_told_and_how_much_it_is() -> None:
    digests = [str(digest_of(b"%d" % number)) for number in range(5000)]
    answer = render(registry.ManifestBlobUnknown(digests))
    *items, last = errors_of(answer)
    assert [item["detail"]["digest"] for item in items] == digests[:100]
    assert last["code"] == "MANIFEST_BLOB_UNKNOWN"
    assert last["detail"] == {"count": 5000}
    assert len(body_of(answer)) < 32 * 1024


@pytest.mark.parametrize(
    ("error", "status", "header"),
    [
        (platform.MethodNotAllowed("no", allow="GET, PUT"), 405, (b"allow", b"GET, PUT")),
        (platform.Unavailable("no"), 503, (b"retry-after", b"30")),
        (registry.StoreUnavailable("no", retry_after=5), 503, (b"retry-after", b"5")),
        (registry.RangeUnsatisfiable(10), 416, (b"content-range", b"bytes */10")),
        (platform.RateLimited("no", retry_after=7), 429, (b"retry-after", b"7")),
        (registry.TooManyUploads("no", retry_after=60), 429, (b"retry-after", b"60")),
        (registry.UploadBusy("no"), 409, (b"retry-after", b"1")),
    ],
)
def test_some_answers_say_more_in_headers(
    error: platform.PlatformError, status: int, header: tuple[bytes, bytes]
) -> None:
    answer = render(error)
    assert answer.status == status
    assert header in answer.headers


def test_a_bug_is_answered_without_detail() -> None:
    answer = internal_error()
    (item,) = errors_of(answer)
    assert (answer.status, item["code"], item["detail"]) == (500, "UNKNOWN", None)


def test_an_out_of_order_chunk_knows_where_to_go_on() -> None:
    error = registry.UploadOutOfOrder(7)
    assert error.received_bytes == 7
    assert rendering(type(error)) == (416, "BLOB_UPLOAD_INVALID")
