"""The path grammar, the names in it, and that no path takes long or ends in a bug."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cloudcore.errors import PlatformError
from registry.distribution.routing import Endpoint, Match, match_path
from registry.oci.digest import Digest, digest_of
from registry.oci.reference import is_tag, parse_name, parse_reference

# Components that the API itself uses, so that a careless matcher splits names at them.
WORDS = st.sampled_from(["blobs", "uploads", "manifests", "tags", "list", "referrers", "v2", "a"])
COMPONENTS = WORDS | st.from_regex(
    r"[a-z0-9]{1,4}((\.|_|__|-{1,3})[a-z0-9]{1,3}){0,2}", fullmatch=True
)
HANDLES = WORDS.filter(lambda word: len(word) > 1) | st.from_regex(
    r"[a-z0-9]{1,5}-[a-z0-9]{1,5}", fullmatch=True
)
NAMES = st.builds(
    lambda handle, components: "/".join([handle, *components]),
    HANDLES,
    st.lists(COMPONENTS, min_size=1, max_size=5),
)
TAGS = WORDS | st.from_regex(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}", fullmatch=True)
DIGESTS = st.builds(
    digest_of, st.binary(max_size=3), st.sampled_from(["sha256", "sha512", "blake3"])
)
UPLOAD_IDS = st.uuids().map(str)


@st.composite
def paths(draw: st.DrawFn) -> tuple[str, Match]:
    """Draw a path below ``/v2/`` and what it must match."""
    name = draw(NAMES)
    endpoint = draw(st.sampled_from(Endpoint))
    match endpoint:
        case Endpoint.BASE:
            return draw(st.sampled_from(["/v2", "/v2/"])), Match(endpoint, "", "")
        case Endpoint.CATALOG:
            return "/v2/_catalog", Match(endpoint, "", "")
        case Endpoint.TOKEN:
            return "/v2/token", Match(endpoint, "", "")
        case Endpoint.TAGS:
            return f"/v2/{name}/tags/list", Match(endpoint, name, "")
        case Endpoint.UPLOADS:
            slash = draw(st.sampled_from(["", "/"]))
            return f"/v2/{name}/blobs/uploads{slash}", Match(endpoint, name, "")
        case Endpoint.UPLOAD:
            argument = draw(UPLOAD_IDS)
            return f"/v2/{name}/blobs/uploads/{argument}", Match(endpoint, name, argument)
        case Endpoint.MANIFEST:
            argument = draw(TAGS | DIGESTS)
            return f"/v2/{name}/manifests/{argument}", Match(endpoint, name, argument)
        case _:
            noun = "blobs" if endpoint is Endpoint.BLOB else "referrers"
            argument = draw(DIGESTS)
            return f"/v2/{name}/{noun}/{argument}", Match(endpoint, name, argument)


@given(paths())
def test_every_path_is_taken_apart_as_it_was_put_together(path: tuple[str, Match]) -> None:
    text, match = path
    assert match_path(text.encode()) == match
    if match.name:
        assert str(parse_name(match.name)) == match.name
    if match.endpoint is Endpoint.MANIFEST:
        assert parse_reference(match.argument) == match.argument


@given(paths(), st.data())
def test_a_path_may_be_percent_encoded_but_for_its_slashes(
    path: tuple[str, Match], data: st.DataObject
) -> None:
    text, match = path
    head, tail = text[:4], text[4:]
    chosen = data.draw(st.sets(st.sampled_from(sorted(set(text) - {"/"}))))
    encoded = "".join(f"%{ord(c):02x}" if c in chosen else c for c in tail)
    assert match_path((head + encoded).encode()) == match


@given(st.binary(max_size=200))
@example(b"\x00")
@example(b"%")
@example(b"%2")
@example(b"%2f%2F")
def test_any_bytes_are_an_endpoint_or_are_refused_by_name(raw: bytes) -> None:
    for path in (raw, b"/v2/" + raw, b"/v2/dev/a/" + raw, b"/v2/" + raw + b"/tags/list"):
        try:
            match = match_path(path)
            name = parse_name(match.name)
            parse_reference(match.argument)
        except PlatformError:
            continue
        assert quote(str(name)) == str(name)


@given(st.text(max_size=300))
def test_any_text_is_a_name_or_reference_or_is_refused(text: str) -> None:
    for parse in (parse_name, parse_reference, Digest.parse):
        try:
            found = parse(text)
        except PlatformError:
            continue
        assert str(found) == text
        assert text.isascii()
        assert text.isprintable()


def _seconds(call: Callable[[], object]) -> float:
    start = time.thread_time()  # a busy machine is no slow grammar
    with suppress(PlatformError):
        call()
    return time.thread_time() - start


@pytest.mark.parametrize("repeats", [100, 20_000])
@pytest.mark.parametrize("unit", ["a", "a.", "a_", "a__", "a-", "a/", "-", "_", "a-b", "%61", "/"])
def test_no_text_is_slow_to_refuse(unit: str, repeats: int) -> None:
    hostile = unit * repeats + "!"
    calls: list[Callable[[], object]] = [
        lambda: parse_name("dev/" + hostile),
        lambda: parse_name(hostile),
        lambda: is_tag(hostile),
        lambda: Digest.parse("sha256:" + hostile),
        lambda: parse_reference(hostile),
        lambda: match_path(f"/v2/{hostile}/tags/list".encode()),
    ]
    for call in calls:
        assert _seconds(call) < 0.1


@pytest.mark.parametrize("unit", ["a", "a.", "a_", "a__", "a-", "a/", "-", "_"])
def test_names_at_the_limit_of_length_are_quick(unit: str) -> None:
    longest = "dev/" + (unit * 213)[:208] + "!"
    assert _seconds(lambda: parse_name(longest)) < 0.01
