"""Forms of OAuth clients and who says they send them."""

from __future__ import annotations

from base64 import b64encode

import pytest

from cloudcore.errors import InvalidInput, Unauthenticated
from cloudcore.identity.oauth.forms import OAuthClient, parse_client, parse_form, parse_parameters

FORM = [b"application/x-www-form-urlencoded"]


def basic(pair: bytes) -> list[bytes]:
    return [b"Basic " + b64encode(pair)]


@pytest.mark.parametrize(
    "content_type",
    [
        b"application/x-www-form-urlencoded",
        b"Application/X-WWW-Form-Urlencoded; charset=utf-8",
        b'application/x-www-form-urlencoded;charset="UTF-8"',
    ],
)
def test_a_form_is_read(content_type: bytes) -> None:
    assert parse_form([content_type], b"a=1&b=x+y%3D&c=") == {"a": "1", "b": "x y=", "c": ""}


@pytest.mark.parametrize(
    "content_types",
    [[], [b"application/json"], FORM * 2, [b"application/x-www-form-urlencoded; charset=utf-16"]],
)
def test_nothing_but_a_form_is_read(content_types: list[bytes]) -> None:
    with pytest.raises(InvalidInput):
        parse_form(content_types, b"a=1")


@pytest.mark.parametrize(
    "encoded",
    [b"a=1&a=1", b"a=1&%61=2", b"a=%ff", b"a=%00", b"a=%4", b"a=%zz", b"a=\xc3", b"a=1&" * 33],
)
def test_a_form_with_two_readings_is_refused(encoded: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse_parameters(encoded)


@pytest.mark.parametrize(
    "pair", [b"AK2:s_-3", b"%41K2:s_%2D3", b"AK2:%73%5f%2d%33"], ids=["raw", "id", "secret"]
)
def test_basic_is_read_in_either_encoding(pair: bytes) -> None:
    """Some clients percent-encode what goes into Basic, some do not."""
    assert parse_client(basic(pair), {}) == OAuthClient("AK2", "s_-3")


def test_a_secret_may_hold_colons() -> None:
    assert parse_client(basic(b"a:b:c"), {}) == OAuthClient("a", "b:c")


def test_the_form_may_name_the_client() -> None:
    form = {"client_id": "AK2", "client_secret": "s"}
    assert parse_client([], form) == OAuthClient("AK2", "s")
    assert parse_client([], {}) == OAuthClient(None, None)
    assert parse_client([], {"client_id": "", "client_secret": ""}) == OAuthClient(None, None)
    assert parse_client(basic(b"AK2:s"), {"client_id": "AK2"}).secret == "s"


def test_the_command_may_name_itself_by_basic_without_a_secret() -> None:
    assert parse_client(basic(b"cli:"), {}).is_public
    assert not parse_client(basic(b"cli:secret"), {}).is_public


@pytest.mark.parametrize(
    ("headers", "form"),
    [
        (basic(b"AK2:s"), {"client_secret": "s"}),
        (basic(b"AK2:s"), {"client_id": "AK2", "client_secret": "s"}),
        (basic(b"AK2:s"), {"client_id": "AK3"}),
        (basic(b"AK2:s") * 2, {}),
    ],
)
def test_one_way_to_authenticate_is_enough(headers: list[bytes], form: dict[str, str]) -> None:
    """Two ways at once are refused, even if both say the same (RFC 6749 §2.3)."""
    with pytest.raises(InvalidInput):
        parse_client(headers, form)


@pytest.mark.parametrize(
    "header",
    [
        b"Basic",
        b"Basic ",
        b"Basic !!!!",
        b"Basic QQ",
        b"Basic " + b64encode(b"no colon"),
        b"Basic " + b64encode(b"\xff:\xfe"),
        b"Basic " + b64encode(b"we+ird/se%cret==:x"),
        b"Bearer abc",
        b"SERVICE-HMAC-SHA256 Credential=a",
        b"",
    ],
)
def test_credentials_that_cannot_be_read_are_wrong_ones(header: bytes) -> None:
    with pytest.raises(Unauthenticated, match="the client is unknown, or its secret is wrong"):
        parse_client([header], {})
