"""Tokens and forms under whatever anyone can send."""

from __future__ import annotations

import string
from base64 import b64encode

from hypothesis import example, given
from hypothesis import strategies as st

from cloudcore.clock import MICROSECONDS
from cloudcore.errors import InvalidInput, Unauthenticated
from cloudcore.identity.oauth.forms import parse_client, parse_form, parse_parameters
from cloudcore.identity.tokens.access_tokens import (
    API,
    MAX_SECONDS,
    MIN_SECONDS,
    AccessTokens,
    clamp_duration,
)
from registry.services.access.bearers import BearerSigner
from tests.unit.identity_forgeries import ISSUER, NOW, PULL_HOST, FixedKeys

KEYS = FixedKeys()
JTI = "01890000-0000-7000-8000-00000000000b"
TOKENS = AccessTokens(KEYS, ISSUER, lambda: NOW * MICROSECONDS)
SIGNER = BearerSigner(KEYS, ISSUER, PULL_HOST, lambda: NOW * MICROSECONDS, lambda: JTI)
GOOD = {
    API: TOKENS.issue("crn:iam::acme:role/x", JTI, (NOW + 900) * MICROSECONDS, sid="s"),
    "registry": SIGNER.issue_bearer({"sub": "", "iat": NOW, "exp": NOW + 300, "access": []}),
}
ALPHABET = string.ascii_letters + string.digits + "-_.=+/ \n\0\u0661"


def identity(audience: str, text: str) -> str | None:
    """Return the `jti` of a token that is believed."""
    try:
        if audience == API:
            return TOKENS.verify(text).jti
        return str(SIGNER.verify_bearer(text)["jti"])
    except Unauthenticated:
        return None


@given(
    audience=st.sampled_from(sorted(GOOD)),
    edits=st.lists(
        st.tuples(
            st.integers(0, 1000),
            st.sampled_from(["replace", "insert", "delete"]),
            st.sampled_from(ALPHABET),
        ),
        min_size=1,
        max_size=4,
    ),
)
@example(audience=API, edits=[(-1, "replace", "A")])
def test_a_changed_token_is_the_same_one_or_none(
    audience: str, edits: list[tuple[int, str, str]]
) -> None:
    """What is believed differs in the last character only, and has the same identity."""
    characters = list(GOOD[audience])
    for position, edit, character in edits:
        at = position % len(characters)
        if edit == "replace":
            characters[at] = character
        elif edit == "insert":
            characters.insert(at, character)
        else:
            del characters[at]
    changed = "".join(characters)
    found = identity(audience, changed)
    if found is not None:
        assert found == JTI
        assert changed[:-1] == GOOD[audience][:-1]


@given(audience=st.sampled_from(sorted(GOOD)), text=st.text(max_size=300))
def test_no_text_is_a_token(audience: str, text: str) -> None:
    assert identity(audience, text) is None


@given(
    audience=st.sampled_from(sorted(GOOD)), segments=st.lists(st.binary(max_size=80), max_size=5)
)
def test_no_segments_are_a_token(audience: str, segments: list[bytes]) -> None:
    text = ".".join(b64encode(each, b"-_").decode().rstrip("=") for each in segments)
    assert identity(audience, text) is None


@given(body=st.binary(max_size=300))
def test_a_form_is_read_or_refused(body: bytes) -> None:
    try:
        form = parse_parameters(body)
    except InvalidInput:
        return
    assert all("\0" not in value for value in form.values())
    assert len(form) <= body.count(b"&") + 1


@given(header=st.binary(max_size=200), form=st.dictionaries(st.text(), st.text()))
def test_a_client_is_read_or_refused(header: bytes, form: dict[str, str]) -> None:
    for authorization in (header, b"Basic " + header, b"Basic " + b64encode(header)):
        try:
            client = parse_client([authorization], form)
        except (InvalidInput, Unauthenticated):
            continue
        assert client.secret != ""


@given(content_type=st.binary(max_size=80))
def test_no_other_content_is_a_form(content_type: bytes) -> None:
    try:
        parse_form([content_type], b"a=1")
    except InvalidInput:
        return
    assert content_type.lower().startswith(b"application/x-www-form-urlencoded")


@given(seconds=st.integers(), most=st.integers(MIN_SECONDS, MAX_SECONDS))
def test_a_duration_is_always_inside(seconds: int, most: int) -> None:
    given_seconds = clamp_duration(seconds, most)
    assert MIN_SECONDS <= given_seconds <= most
    assert given_seconds == seconds or not MIN_SECONDS <= seconds <= most
