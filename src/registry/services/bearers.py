"""Bearers of the data plane: signed for one registry, for five minutes, with their rights.

They need no database, neither to be issued nor to be verified, so that the hot path of ``/v2``
reads none to authorize.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.errors import Unauthenticated
from cloudcore.identity.jws import HS256, sign, verify
from cloudcore.identity.signing_keys import API_KEYS, KeyKind
from cloudcore.identity.tokens import Claims, KeySets, verified_claims

BEARERS: Final = "registry"
"""Their key set. Their audience is the host that clients pull from."""
BEARER_SECONDS: Final = 300
_NOT_BEFORE_LEEWAY: Final = 5
"""Seconds that clocks may differ by at the beginning; there are none at the end."""

KEY_KINDS: Final[Mapping[str, KeyKind]] = {
    **API_KEYS,
    BEARERS: KeyKind(HS256, BEARER_SECONDS * MICROSECONDS),
}
"""The key sets of an install."""


class BearerClaims(Claims, kw_only=True, omit_defaults=True):
    """The claims of a bearer (distribution-spec, token authentication)."""

    nbf: int
    lid: str | None = None
    """The login credential it was exchanged for."""
    acc: str | None = None
    access: list[dict[str, Any]]


class BearerSigner:
    """Issues and verifies bearers of the data plane; needs no database for either."""

    def __init__(
        self, keys: KeySets, issuer: str, audience: str, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        """Sign for the registry that clients call `audience`."""
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._clock = clock
        self._new_id = new_id

    def issue_bearer(self, claims: Mapping[str, Any]) -> str:
        """Return ``sub``, ``iat``, ``exp``, ``access`` and the like as a signed bearer."""
        whole = {
            "iss": self._issuer,
            "aud": self._audience,
            "jti": self._new_id(),
            "nbf": claims["iat"] - _NOT_BEFORE_LEEWAY,
            **claims,
        }
        return sign(whole, self._keys.current(BEARERS))

    def verify_bearer(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a bearer that is ours and whose time it is.

        Raises:
            Unauthenticated.

        """
        payload = verify(token, lambda kid: self._keys.find(BEARERS, kid))
        now = self._clock()
        claims = verified_claims(payload, BearerClaims, self._issuer, self._audience, now)
        if now < (claims.nbf - _NOT_BEFORE_LEEWAY) * MICROSECONDS:
            raise Unauthenticated("the token is not valid yet")
        found: dict[str, Any] = msgspec.to_builtins(claims)
        return found
