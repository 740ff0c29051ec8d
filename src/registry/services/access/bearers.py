"""Sign and verify bearer tokens of the data plane, which carry rights for five minutes.

Signing and verifying do not read the database, so ``/v2`` authorizes most requests without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.errors import Unauthenticated
from cloudcore.identity.tokens.access_tokens import Claims, KeySets, verified_claims
from cloudcore.identity.tokens.jws import HS256, sign, verify
from cloudcore.identity.tokens.signing_keys import API_KEYS, KeyKind

BEARERS: Final = "registry"
"""The name of the key set that signs bearers."""
BEARER_SECONDS: Final = 300
_NOT_BEFORE_LEEWAY: Final = 5
"""Seconds that ``nbf`` allows for clock skew; ``exp`` allows none."""

KEY_KINDS: Final[Mapping[str, KeyKind]] = {
    **API_KEYS,
    BEARERS: KeyKind(HS256, BEARER_SECONDS * MICROSECONDS),
}
"""The kinds of signing keys of the registry, by key set."""


class BearerClaims(Claims, kw_only=True, omit_defaults=True):
    """The claims of a bearer (distribution-spec, token authentication).

    At most one of `lid`, `akid` and `cpid` is set.
    """

    nbf: int
    lid: str | None = None
    """Id of the login credential that the bearer was exchanged for."""
    akid: str | None = None
    """Id of the access key that the bearer was exchanged for."""
    cpid: str | None = None
    """Id of the container password that the bearer was exchanged for."""
    acc: str | None = None
    src: tuple[str, str, str | None] | None = None
    """The source identity behind the principal (`SourceIdentity`)."""
    access: list[dict[str, Any]]


class BearerSigner:
    """Issues and verifies bearer tokens of the data plane without a database."""

    def __init__(
        self, keys: KeySets, issuer: str, audience: str, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        """Sign tokens as `issuer`; `audience` is the registry's host, from which clients pull."""
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._clock = clock
        self._new_id = new_id

    def issue_bearer(self, claims: Mapping[str, Any]) -> str:
        """Return a signed token with these claims, and ``iss``, ``aud``, ``jti`` and ``nbf``."""
        whole = {
            "iss": self._issuer,
            "aud": self._audience,
            "jti": self._new_id(),
            "nbf": claims["iat"] - _NOT_BEFORE_LEEWAY,
            **claims,
        }
        return sign(whole, self._keys.current(BEARERS))

    def verify_bearer(self, token: str) -> Mapping[str, Any]:
        """Verify a bearer token and return its claims.

        Raise `Unauthenticated` if this registry did not issue the token, or it is not yet valid, or
        it has expired.
        """
        payload, _ = verify(token, lambda kid: self._keys.find(BEARERS, kid))
        now = self._clock()
        claims = verified_claims(payload, BearerClaims, self._issuer, self._audience, now)
        if now < (claims.nbf - _NOT_BEFORE_LEEWAY) * MICROSECONDS:
            raise Unauthenticated("the token is not valid yet")
        found: dict[str, Any] = msgspec.to_builtins(claims)
        return found
