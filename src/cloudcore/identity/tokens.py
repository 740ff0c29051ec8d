"""Tokens of both audiences: what they claim, for how long, and when they are believed.

Access tokens (audience ``api``) open the control plane. They say who somebody is and nothing of
what they may do; verifying them is only the first step (`cloudcore.identity.authentication`).
Bearers (the registry's audience) open the data plane for five minutes and carry their rights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.errors import Unauthenticated
from cloudcore.identity.jws import SigningKey, sign, verify

API: Final = "api"
REGISTRY: Final = "registry"
"""Names of key sets; a bearer's own ``aud`` is the name of the registry it is for."""

DEFAULT_SECONDS: Final = 3600
MIN_SECONDS: Final = 900
MAX_SECONDS: Final = 43200
"""Lifetimes of access tokens."""
BEARER_SECONDS: Final = 300
_NOT_BEFORE_LEEWAY: Final = 5
"""Seconds; there is none at the other end."""

C = TypeVar("C", bound="_Claims")


class KeySets(Protocol):
    """The signing keys of each audience."""

    def current(self, audience: str) -> SigningKey:
        """Return the key to sign with now."""
        ...

    def find(self, audience: str, kid: str) -> SigningKey | None:
        """Return a key whose tokens may still live."""
        ...


class _Claims(msgspec.Struct, kw_only=True, omit_defaults=True):
    iss: str
    aud: str
    sub: str
    iat: int
    exp: int
    jti: str


class AccessClaims(_Claims, kw_only=True, omit_defaults=True):
    """What an access token claims; `sub` is for readers, it is looked up by what follows."""

    acc: str | None = None
    """The account; a person who has assumed no role has none."""
    sid: str | None = None
    """The session, of persons and assumed roles."""
    akid: str | None = None
    """The access key, of service accounts."""


class BearerClaims(_Claims, kw_only=True, omit_defaults=True):
    """What a bearer claims (B3)."""

    nbf: int
    lid: str | None = None
    """The login credential it was exchanged for."""
    acc: str | None = None
    access: list[dict[str, Any]]


def clamp_duration(seconds: int | None, most: int = MAX_SECONDS) -> int:
    """Return the lifetime that is given to who asks for `seconds`."""
    return min(max(DEFAULT_SECONDS if seconds is None else seconds, MIN_SECONDS), most)


def end_after(seconds: int, now: int) -> int:
    """Return when a token of so many seconds that is issued at `now` ends.

    Tokens begin and end on whole seconds, so the seconds count from the one that `now` is in.
    """
    return (now // MICROSECONDS + seconds) * MICROSECONDS


class AccessTokens:
    """Issues and verifies access tokens."""

    def __init__(self, keys: KeySets, issuer: str, clock: Clock) -> None:
        self._keys = keys
        self._issuer = issuer
        self._clock = clock

    def issue(
        self,
        subject: str,
        jti: str,
        expires_at: int,
        *,
        issued_at: int | None = None,
        account_id: str | None = None,
        sid: str | None = None,
        access_key_id: str | None = None,
    ) -> str:
        """Return a token of `subject` (a CRN) that ends at `expires_at`, to the second.

        Without `issued_at`, it is issued now.
        """
        now = self._clock() if issued_at is None else issued_at
        claims = AccessClaims(
            iss=self._issuer,
            aud=API,
            sub=subject,
            iat=now // MICROSECONDS,
            exp=expires_at // MICROSECONDS,
            jti=jti,
            acc=account_id,
            sid=sid,
            akid=access_key_id,
        )
        return sign(msgspec.to_builtins(claims), self._keys.current(API))

    def verify(self, token: str) -> AccessClaims:
        """Return what a token claims if it is ours and its time is not over.

        Whether it was revoked, and whether whom it stands for is still there, is another question.

        Raises:
            Unauthenticated.

        """
        payload = verify(token, lambda kid: self._keys.find(API, kid))
        return _believed(payload, AccessClaims, self._issuer, API, self._clock())


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
        return sign(whole, self._keys.current(REGISTRY))

    def verify_bearer(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a bearer that is ours and whose time it is.

        Raises:
            Unauthenticated.

        """
        payload = verify(token, lambda kid: self._keys.find(REGISTRY, kid))
        now = self._clock()
        claims = _believed(payload, BearerClaims, self._issuer, self._audience, now)
        if now < (claims.nbf - _NOT_BEFORE_LEEWAY) * MICROSECONDS:
            raise Unauthenticated("the token is not valid yet")
        found: dict[str, Any] = msgspec.to_builtins(claims)
        return found


def _believed(payload: bytes, shape: type[C], issuer: str, audience: str, now: int) -> C:
    """Return claims of the right shape, issuer and audience, whose time is not over."""
    try:
        claims = msgspec.json.decode(payload, type=shape)
    except (ValueError, RecursionError):
        raise Unauthenticated("the token is not valid") from None
    if claims.iss != issuer or claims.aud != audience:
        raise Unauthenticated("the token is not for this service")
    if now >= claims.exp * MICROSECONDS:
        raise Unauthenticated("the token has expired")
    return claims
