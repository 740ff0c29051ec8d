"""Conditional requests: entity tags are digests in quotes."""

from __future__ import annotations

import pytest

from cloudcore.serving.asgi import Message, Scope
from registry.distribution.auth import OpenAccess
from registry.distribution.request import (
    DataPlaneRequest,
    etag,
    is_not_modified,
    range_still_holds,
    tag_precondition,
)
from registry.oci.digest import digest_of
from registry.oci.reference import Name
from registry.services.tags.pointers import Precondition

ONE = digest_of(b"one")
TWO = digest_of(b"two")


async def nothing() -> Message:
    raise AssertionError("conditions are decided before a body is read")


def request(**headers: str) -> DataPlaneRequest:
    scope: Scope = {
        "method": "GET",
        "headers": [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()],
        "query_string": b"",
    }
    return DataPlaneRequest(scope, nothing, Name("dev", "a"), "", OpenAccess("dev"))


def test_the_entity_tag_is_the_digest() -> None:
    assert etag(ONE) == (b"etag", f'"{ONE}"'.encode())


@pytest.mark.parametrize(
    ("header", "is_same"),
    [
        (f'"{ONE}"', True),
        (f'W/"{ONE}"', True),
        (f'"{TWO}", "{ONE}"', True),
        (f'"{TWO}","{ONE}"', True),
        ("*", True),
        (" * ", True),
        (f'"{TWO}"', False),
        (ONE, False),
        ('""', False),
        ("", False),
        (f'"{ONE}', False),
    ],
)
def test_if_none_match(header: str, is_same: bool) -> None:
    assert is_not_modified(request(if_none_match=header), ONE) is is_same


def test_without_a_condition_nothing_is_unmodified() -> None:
    assert not is_not_modified(request(), ONE)


@pytest.mark.parametrize(
    ("header", "holds"),
    [
        (f'"{ONE}"', True),
        (f' "{ONE}" ', True),
        (f'W/"{ONE}"', False),
        (f'"{TWO}"', False),
        ("Wed, 21 Oct 2015 07:28:00 GMT", False),
        ("", False),
    ],
)
def test_if_range_compares_strongly(header: str, holds: bool) -> None:
    assert range_still_holds(request(if_range=header), ONE) is holds


def test_without_if_range_a_range_holds() -> None:
    assert range_still_holds(request(), ONE)


def test_what_must_hold_for_a_tag() -> None:
    assert tag_precondition(request()) is None
    assert tag_precondition(request(if_match=f'"{ONE}"')) == Precondition(match=frozenset({ONE}))
    assert tag_precondition(request(if_none_match="*")) == Precondition(none_match=frozenset("*"))
    for unreadable in (ONE, '"*"', f'"{ONE}', ""):
        asked = tag_precondition(request(if_match=unreadable, if_none_match=unreadable))
        assert asked == Precondition(match=frozenset(), none_match=frozenset("*"))
    weak = request(if_match=f'W/"{ONE}"', if_none_match=f'W/"{ONE}"')  # never matches strongly
    assert tag_precondition(weak) == Precondition(frozenset(), frozenset({ONE}))
    both = request(if_match="*", if_none_match=f'"{ONE}", "{TWO}"')
    assert tag_precondition(both) == Precondition(frozenset("*"), frozenset({ONE, TWO}))


@pytest.mark.parametrize(
    ("match", "none_match", "tag", "holds"),
    [
        (None, None, set(), True),
        (None, None, {ONE}, True),
        ({ONE}, None, {ONE}, True),
        ({ONE, TWO}, None, {TWO}, True),
        ({ONE}, None, {TWO}, False),
        ({ONE}, None, set(), False),
        (set(), None, {ONE}, False),
        ({"*"}, None, {ONE}, True),
        ({"*"}, None, set(), False),
        (None, {"*"}, set(), True),
        (None, {"*"}, {ONE}, False),
        (None, {ONE}, {ONE}, False),
        (None, {ONE}, {TWO}, True),
        (None, {ONE}, set(), True),
        ({ONE}, {"*"}, {ONE}, False),
        ({ONE}, {TWO}, {ONE}, True),
        ({ONE}, {TWO}, {ONE, TWO}, False),
    ],
)
def test_a_precondition(
    match: set[str] | None, none_match: set[str] | None, tag: set[str], holds: bool
) -> None:
    precondition = Precondition(
        None if match is None else frozenset(match),
        None if none_match is None else frozenset(none_match),
    )
    assert precondition.holds(frozenset(tag)) is holds
