"""Names, tags and references."""

from __future__ import annotations

import pytest

from registry.errors import DigestInvalid, NameInvalid, TagInvalid
from registry.oci.digest import Digest, digest_of
from registry.oci.reference import (
    MAX_NAME_LENGTH,
    Name,
    is_tag,
    parse_name,
    parse_reference,
    parse_tag,
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("dev/app", Name("dev", "app")),
        ("d2/a", Name("d2", "a")),
        ("a-b-c/x.y_z__1--2", Name("a-b-c", "x.y_z__1--2")),
        ("dev/a/b/c", Name("dev", "a/b/c")),
        ("dev/blobs/uploads/manifests", Name("dev", "blobs/uploads/manifests")),
        ("d" * 32 + "/r", Name("d" * 32, "r")),
        ("dev/" + "r" * (MAX_NAME_LENGTH - 4), Name("dev", "r" * (MAX_NAME_LENGTH - 4))),
    ],
)
def test_a_name_is_handle_and_repository(text: str, name: Name) -> None:
    assert parse_name(text) == name
    assert str(name) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "app", "dev/", "/app", "dev//app", "dev/app/", "/dev/app", "d/app"),
        "d" * 33 + "/app",
        "dev/" + "r" * (MAX_NAME_LENGTH - 3),
        *("Dev/app", "dev/App", "d_v/app", "d.v/app", "-dev/app", "dev-/app", "de--v/app"),
        *("dev/.app", "dev/app.", "dev/a..b", "dev/a___b", "dev/a_.b", "dev/../etc", "dev/a b"),
        *("dev/app\n", "dev\n/app", "dev/app\x00", "dev/caf\u00e9", "dev/\uff11", "dev/a%2fb"),
        *("dev/a:b", "dev/a@b"),
    ],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(NameInvalid) as refusal:
        parse_name(text)
    assert refusal.value.params == {"name": text[:256]}


@pytest.mark.parametrize("text", ["v1", "A", "_", "1.0-rc_2", "latest", "x" * 128, "sha256-ab.sig"])
def test_a_tag(text: str) -> None:
    assert is_tag(text)
    assert parse_tag(text) == text
    assert parse_reference(text) == text
    assert not isinstance(parse_reference(text), Digest)


@pytest.mark.parametrize(
    "text", ["", ".", "-", ".v", "-v", "v 1", "v/1", "v1\n", "x" * 129, "\u00e9", "v+1", "v@1"]
)
def test_what_is_no_tag_is_refused(text: str) -> None:
    assert not is_tag(text)
    for parse in (parse_tag, parse_reference):
        with pytest.raises(TagInvalid) as refusal:
            parse(text)
        assert refusal.value.params == {"tag": text[:160]}


def test_a_colon_makes_a_reference_a_digest() -> None:
    digest = digest_of(b"x", "blake3")
    assert parse_reference(digest) == digest
    assert isinstance(parse_reference(str(digest)), Digest)
    with pytest.raises(DigestInvalid):
        parse_reference("app:v1")
