"""Bearers of ``/v2``: each is verified once, however it is spelled."""

from __future__ import annotations

import gc
import string
from collections.abc import Mapping
from typing import Any, cast

import pytest

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Database
from registry.distribution.auth import PULL, Challenges
from registry.distribution.token_access import TokenAccess
from registry.errors import TokenDenied, TokenRequired
from registry.oci.reference import Name
from registry.services.access.bearers import BearerSigner
from registry.services.access.tokens import Bearer, BearerTokens, PolicySource
from tests.unit.identity_forgeries import ISSUER, NOW, PULL_HOST, FixedKeys

ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
SUBJECT = "crn:iam::acme:service-account/ci"


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


def clock() -> int:
    return NOW * MICROSECONDS


def access_of(signer: CountingSigner, clock: Clock = clock) -> TokenAccess:
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
def signer() -> CountingSigner:
    ids = iter(range(9))
    bearers = BearerSigner(FixedKeys(), ISSUER, PULL_HOST, clock, lambda: str(next(ids)))
    return CountingSigner(bearers)


def issue(signer: CountingSigner, seconds: int = 300) -> str:
    end = NOW + seconds
    claims = {"sub": SUBJECT, "iat": NOW, "exp": end, "acc": "a", "lid": "l", "access": []}
    return signer.issue_bearer(claims)


def test_a_bearer_is_verified_once_for_all_its_spellings(signer: CountingSigner) -> None:
    access, token = access_of(signer), issue(signer)
    accepted = 0
    for letter in ALPHABET:
        for scheme in ("Bearer ", "bearer ", "BEARER   "):
            try:
                access.authorize(scope_of(f"{scheme}{token[:-1]}{letter}"), None, None)
            except (TokenRequired, TokenDenied):
                continue
            accepted += 1
    assert (accepted, signer.verified) == (4 * 3, 1)


def test_what_was_verified_lets_no_other_text_in(signer: CountingSigner) -> None:
    access, token, other = access_of(signer), issue(signer), issue(signer)
    access.authorize(scope_of(f"Bearer {token}"), None, None)
    stolen = f"{other.rpartition('.')[0]}.{token.rpartition('.')[2]}"
    for odd in (f"{token}=", f"{token} ", f"{token[:-2]}+{token[-1]}", stolen, token[1:]):
        with pytest.raises(TokenRequired):
            access.authorize(scope_of(f"Bearer {odd}"), None, None)
    with pytest.raises(TokenRequired):
        access.authorize(scope_of(f"Basic {token}"), None, None)
    assert signer.verified == 1


def test_a_refused_request_is_known_again_by_its_token_not_by_its_text(
    signer: CountingSigner,
) -> None:
    access, token = access_of(signer), issue(signer)
    name = Name("acme", "r")
    with pytest.raises(TokenRequired):
        access.authorize(scope_of(f"Bearer {token}"), name, PULL)
    with pytest.raises(TokenDenied, match="a moment ago"):
        access.authorize(scope_of(f"bearer  {token}"), name, PULL)


def test_bearers_that_have_ended_are_forgotten_with_the_next_one(signer: CountingSigner) -> None:
    now = [NOW]
    access = access_of(signer, lambda: now[0] * MICROSECONDS)
    for seconds in (100, 100, 300):
        access.authorize(scope_of(f"Bearer {issue(signer, seconds)}"), None, None)
    before = bearers()
    now[0] += 100
    access.authorize(scope_of(f"Bearer {issue(signer)}"), None, None)
    assert bearers() - before == 1 - 2


def bearers() -> int:
    """Return how many bearers this process remembers."""
    gc.collect()
    return sum(isinstance(each, Bearer) for each in gc.get_objects())
