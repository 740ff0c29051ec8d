"""Tokens: what is believed and what is not, on both planes, and how often it is verified."""

from __future__ import annotations

import gc
import socket
import string
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

import pytest

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Database
from cloudcore.errors import Unauthenticated
from cloudcore.identity.tokens.access_tokens import (
    API,
    AccessTokens,
    VerifiedTokens,
)
from registry.distribution.auth import PULL, Challenges
from registry.distribution.token_access import TokenAccess
from registry.errors import TokenDenied, TokenRequired
from registry.oci.reference import Name
from registry.services.access.bearers import BEARERS, BearerSigner
from registry.services.access.tokens import Bearer, BearerTokens, PolicySource
from tests.unit.identity_forgeries import (
    ISSUER,
    NOW,
    PULL_HOST,
    FixedKeys,
    forgeries,
    good_claims,
    token,
)

KEYS = FixedKeys()
JTI = "01890000-0000-7000-8000-00000000000b"
SUBJECT = "crn:iam::acme:service-account/ci"
ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
"""Of base64url, by value: four bits of an Ed25519 signature's last character say nothing."""


class Time:
    def __init__(self) -> None:
        self.now = NOW * MICROSECONDS

    def __call__(self) -> int:
        return self.now


def at_now() -> int:
    return NOW * MICROSECONDS


def access_tokens(clock: Time | None = None) -> AccessTokens:
    return AccessTokens(KEYS, ISSUER, clock or Time())


def signer(clock: Time | None = None) -> BearerSigner:
    return BearerSigner(KEYS, ISSUER, PULL_HOST, clock or Time(), lambda: JTI)


def api_token() -> str:
    expires_at = (NOW + 900) * MICROSECONDS
    return access_tokens().issue(SUBJECT, JTI, expires_at, access_key_id="AK")


def api_token_of(jti: str) -> str:
    return access_tokens().issue(SUBJECT, jti, (NOW + 900) * MICROSECONDS)


def bearer() -> str:
    claims = {"sub": SUBJECT, "iat": NOW, "exp": NOW + 300, "acc": "a", "lid": "l", "access": []}
    return signer().issue_bearer(claims)


def verify(audience: str, text: str) -> Any:  # noqa: ANN401 - either's claims
    if audience == API:
        return access_tokens().verify(text)
    return signer().verify_bearer(text)


def test_an_access_token_says_who_and_nothing_of_rights() -> None:
    claims = access_tokens().verify(api_token())
    assert (claims.iss, claims.aud, claims.sub, claims.jti) == (ISSUER, "api", SUBJECT, JTI)
    assert (claims.iat, claims.exp, claims.akid) == (NOW, NOW + 900, "AK")
    assert (claims.acc, claims.sid) == (None, None)


def test_a_bearer_carries_its_claims_and_those_of_every_token() -> None:
    access = [{"type": "repository", "name": "a/b", "actions": ["pull"], "denied": []}]
    text = signer().issue_bearer({"sub": "", "iat": NOW, "exp": NOW + 300, "access": access})
    assert signer().verify_bearer(text) == {
        "iss": ISSUER,
        "aud": PULL_HOST,
        "sub": "",
        "iat": NOW,
        "nbf": NOW - 5,
        "exp": NOW + 300,
        "jti": JTI,
        "access": access,
    }


@pytest.mark.parametrize("audience", [API, BEARERS])
def test_the_forger_can_make_a_good_token_too(audience: str) -> None:
    key = KEYS.by_audience[audience]
    header = {"alg": key.algorithm, "typ": "JWT", "kid": key.kid}
    assert verify(audience, token(header, good_claims(audience), key))


@pytest.mark.parametrize("audience", [API, BEARERS])
def test_no_forged_token_is_believed_nor_a_key_fetched_for_it(
    audience: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*_: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    made = list(forgeries(audience, KEYS.by_audience, good_claims(audience)))
    assert len(made) >= 60
    believed = []
    for name, text in made:
        try:
            verify(audience, text)
        except Unauthenticated:
            continue
        believed.append(name)
    assert believed == []


@pytest.mark.parametrize(("audience", "spellings"), [(API, 16), (BEARERS, 4)])
def test_one_token_has_several_spellings_and_one_identity(audience: str, spellings: int) -> None:
    """The unused bits of the last character differ; the `jti` does not."""
    text = api_token() if audience == API else bearer()
    found = []
    for last in ALPHABET:
        try:
            claims = verify(audience, text[:-1] + last)
        except Unauthenticated:
            continue
        found.append(claims.jti if audience == API else claims["jti"])
    assert found == [JTI] * spellings


def test_a_token_is_remembered_once_for_all_its_spellings() -> None:
    tokens, text = VerifiedTokens(lambda kid: KEYS.find(API, kid)), api_token()
    payload = tokens.payload(text)
    twins = [text[:-1] + letter for letter in ALPHABET]
    believed = []
    for twin in twins:
        with suppress(Unauthenticated):
            believed.append(tokens.payload(twin))
    assert len(believed) == 16
    assert all(each is payload for each in believed), "it was verified again"
    for odd in (f"{text}=", f"{text}==", text[:-1] + "+", text[:-2] + "/" + text[-1], f"{text} "):
        with pytest.raises(Unauthenticated):
            tokens.payload(odd)
    other = api_token_of("another")
    stolen = f"{other.rpartition('.')[0]}.{text.rpartition('.')[2]}"
    with pytest.raises(Unauthenticated):
        tokens.payload(stolen)


def test_a_token_ends_at_its_second_without_leeway() -> None:
    clock = Time()
    text, other = api_token(), bearer()
    clock.now = (NOW + 900) * MICROSECONDS - 1
    assert access_tokens(clock).verify(text).jti == JTI
    clock.now += 1
    with pytest.raises(Unauthenticated):
        access_tokens(clock).verify(text)
    clock.now = (NOW + 300) * MICROSECONDS - 1
    assert signer(clock).verify_bearer(other)
    clock.now += 1
    with pytest.raises(Unauthenticated):
        signer(clock).verify_bearer(other)


def test_a_bearer_is_good_five_seconds_before_its_time() -> None:
    clock = Time()
    text = bearer()
    clock.now = (NOW - 10) * MICROSECONDS
    assert signer(clock).verify_bearer(text)
    clock.now -= 1
    with pytest.raises(Unauthenticated):
        signer(clock).verify_bearer(text)


def test_a_token_that_was_verified_is_refused_without_its_key_or_after_its_end() -> None:
    clock, keys = Time(), FixedKeys()
    tokens = AccessTokens(keys, ISSUER, clock)
    token = tokens.issue(SUBJECT, JTI, (NOW + 900) * MICROSECONDS, access_key_id="AK")
    head, claims, signature = token.split(".")
    assert tokens.verify(token) == tokens.verify(token)
    for other in (f"{head}.{claims}A.{signature}", f"{head}.{claims}.{'A' * len(signature)}"):
        with pytest.raises(Unauthenticated):
            tokens.verify(other)
    clock.now = (NOW + 900) * MICROSECONDS
    with pytest.raises(Unauthenticated, match="expired"):
        tokens.verify(token)
    clock.now = NOW * MICROSECONDS
    assert tokens.verify(token).jti == JTI
    keys.by_audience[API] = FixedKeys().by_audience[API]
    with pytest.raises(Unauthenticated):
        tokens.verify(token)


def test_only_so_many_verified_tokens_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloudcore.identity.tokens.access_tokens.MOST_VERIFIED", 3)
    tokens = VerifiedTokens(lambda kid: KEYS.find(API, kid))
    made = [
        access_tokens().issue(SUBJECT, JTI, (NOW + 900 + each) * MICROSECONDS) for each in range(5)
    ]
    payloads = [tokens.payload(each) for each in made]
    assert len(tokens._known) == 3
    assert [tokens.payload(each) for each in made] == payloads


class CountingSigner:
    """A signer that counts the tokens it verifies."""

    def __init__(self, signer: BearerSigner) -> None:
        self._signer = signer
        self.verified = 0

    def issue_bearer(self, claims: Mapping[str, Any]) -> str:
        return self._signer.issue_bearer(claims)

    def verify_bearer(self, token: str) -> Mapping[str, Any]:
        found = self._signer.verify_bearer(token)
        self.verified += 1
        return found


def access_of(signer: CountingSigner, clock: Clock = at_now) -> TokenAccess:
    """Return an access that needs no database."""
    nothing = cast("Any", None)
    tokens = BearerTokens(
        cast("Database", nothing),
        clock,
        cast("BearerSigner", signer),
        cast("PolicySource", nothing),
        "local",
    )
    return TokenAccess(tokens, Challenges(ISSUER, (PULL_HOST,)), clock)


def scope_of(credential: str, client: tuple[str, int] = ("127.0.0.1", 1)) -> dict[str, Any]:
    return {
        "method": "GET",
        "raw_path": b"/v2/",
        "query_string": b"",
        "client": client,
        "headers": [(b"host", PULL_HOST.encode()), (b"authorization", credential.encode())],
    }


@pytest.fixture
def counted() -> CountingSigner:
    ids = iter(range(9))
    bearers = BearerSigner(FixedKeys(), ISSUER, PULL_HOST, at_now, lambda: str(next(ids)))
    return CountingSigner(bearers)


def issue(signer: CountingSigner, seconds: int = 300) -> str:
    end = NOW + seconds
    claims = {"sub": SUBJECT, "iat": NOW, "exp": end, "acc": "a", "lid": "l", "access": []}
    return signer.issue_bearer(claims)


def test_a_bearer_is_verified_once_for_all_its_spellings(counted: CountingSigner) -> None:
    access, token = access_of(counted), issue(counted)
    accepted = 0
    for letter in ALPHABET:
        for scheme in ("Bearer ", "bearer ", "BEARER   "):
            try:
                access.authorize(scope_of(f"{scheme}{token[:-1]}{letter}"), None, None)
            except (TokenRequired, TokenDenied):
                continue
            accepted += 1
    assert (accepted, counted.verified) == (4 * 3, 1)


def test_what_was_verified_lets_no_other_text_in(counted: CountingSigner) -> None:
    access, token, other = access_of(counted), issue(counted), issue(counted)
    access.authorize(scope_of(f"Bearer {token}"), None, None)
    stolen = f"{other.rpartition('.')[0]}.{token.rpartition('.')[2]}"
    for odd in (f"{token}=", f"{token} ", f"{token[:-2]}+{token[-1]}", stolen, token[1:]):
        with pytest.raises(TokenRequired):
            access.authorize(scope_of(f"Bearer {odd}"), None, None)
    with pytest.raises(TokenRequired):
        access.authorize(scope_of(f"Basic {token}"), None, None)
    assert counted.verified == 1


def test_a_refused_request_is_known_again_by_its_token_not_by_its_text(
    counted: CountingSigner,
) -> None:
    access, token = access_of(counted), issue(counted)
    name = Name("acme", "r")
    with pytest.raises(TokenRequired):
        access.authorize(scope_of(f"Bearer {token}"), name, PULL)
    with pytest.raises(TokenDenied, match="a moment ago"):
        access.authorize(scope_of(f"bearer  {token}"), name, PULL)


def test_bearers_that_have_ended_are_forgotten_with_the_next_one(counted: CountingSigner) -> None:
    now = [NOW]
    access = access_of(counted, lambda: now[0] * MICROSECONDS)
    for seconds in (100, 100, 300):
        access.authorize(scope_of(f"Bearer {issue(counted, seconds)}"), None, None)
    before = remembered_bearers()
    now[0] += 100
    access.authorize(scope_of(f"Bearer {issue(counted)}"), None, None)
    assert remembered_bearers() - before == 1 - 2


def remembered_bearers() -> int:
    """Return how many bearers this process remembers."""
    gc.collect()
    return sum(isinstance(each, Bearer) for each in gc.get_objects())
