"""Access tokens (audience ``api``): claims, lifetimes, and verification.

Access tokens are for the control plane. They name the principal but not its rights; verification is
only the first step of `authentication`. A family that signs its own tokens has its own key set
(`signing_keys`) and verifies the tokens with `verified_claims`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.errors import Unauthenticated
from cloudcore.identity.tokens.jws import SigningKey, sign, split_token, verify

MOST_VERIFIED: Final = 2048
"""Maximum number of cached tokens; the token that was verified first is evicted first."""


class _Verified(NamedTuple):
    key: SigningKey
    signed_sha256: bytes
    payload: bytes


class VerifiedTokens:
    """Verifies each token once: verifying a signature takes a quarter of a request's time.

    The cache is indexed by the decoded signature, so that all spellings of a token (see `jws`)
    share an entry. That the key still exists is checked each time; the caller checks the token's
    expiry, its revocation and its owner.
    """

    def __init__(self, find_key: Callable[[str], SigningKey | None]) -> None:
        """Verify tokens with the key that `find_key` returns for their ``kid``."""
        self._find_key = find_key
        self._known: dict[bytes, _Verified] = {}
        """Maps decoded signatures to verified tokens."""

    def payload(self, token: str) -> bytes:
        """Return the claims of a token as JSON.

        Raise `Unauthenticated` if the token is not signed by one of the keys.
        """
        signed, signature = split_token(token.encode())
        digest = sha256(signed).digest()
        known = self._known.get(signature)
        if (
            known is not None
            and known.signed_sha256 == digest
            and self._find_key(known.key.kid) is known.key
        ):
            return known.payload
        payload, key = verify(token, self._find_key)
        if len(self._known) >= MOST_VERIFIED:
            del self._known[next(iter(self._known))]
        self._known[signature] = _Verified(key, digest, payload)
        return payload


API: Final = "api"
"""The key set of access tokens, and their audience."""

DEFAULT_SECONDS: Final = 3600
MIN_SECONDS: Final = 900
MAX_SECONDS: Final = 43200
"""Maximum lifetime of access tokens; above it are the default and the minimum."""

C = TypeVar("C", bound="Claims")


class KeySets(Protocol):
    """Signing keys, in one set for each kind of token."""

    def current(self, key_set: str) -> SigningKey:
        """Return the key to sign with now."""

    def find(self, key_set: str, kid: str) -> SigningKey | None:
        """Return the key with this id, even if it no longer signs; None if there is none."""


class Claims(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The claims that all tokens of an install have (RFC 7519 §4.1)."""

    iss: str
    aud: str
    sub: str
    iat: int
    exp: int
    jti: str


class AccessClaims(Claims, kw_only=True, omit_defaults=True):
    """The claims of an access token. Lookups use the fields below; `sub` is informational."""

    acc: str | None = None
    """Id of the account; None for a person without an assumed role."""
    sid: str | None = None
    """Id of the session; None for service accounts."""
    akid: str | None = None
    """Public id of the access key; None except for service accounts."""


def clamp_duration(seconds: int | None, most: int = MAX_SECONDS) -> int:
    """Return a requested lifetime, raised or lowered to `MIN_SECONDS` and `most`.

    None means `DEFAULT_SECONDS`.
    """
    return min(max(DEFAULT_SECONDS if seconds is None else seconds, MIN_SECONDS), most)


def end_after(seconds: int, now: int) -> int:
    """Return the expiry of a token issued at `now` for `seconds`, in microseconds since the epoch.

    Tokens begin and end on whole seconds, so `now` is rounded down.
    """
    return (now // MICROSECONDS + seconds) * MICROSECONDS


class AccessTokens:
    """Issues and verifies access tokens."""

    def __init__(self, keys: KeySets, issuer: str, clock: Clock) -> None:
        self._keys = keys
        self._issuer = issuer
        self._clock = clock
        self._verified = VerifiedTokens(partial(keys.find, API))

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
        """Return a token for `subject` (a CRN), with the id `jti`, that expires at `expires_at`.

        Without `issued_at`, the token is issued now. Both times are in microseconds since the
        epoch, and rounded down to a second in the token.
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
        """Return the claims of an access token of this install.

        The caller checks revocation and the principal's existence.

        Raise `Unauthenticated` if the token is malformed, not signed by this install, or expired.
        """
        payload = self._verified.payload(token)
        return verified_claims(payload, AccessClaims, self._issuer, API, self._clock())


def verified_claims(payload: bytes, shape: type[C], issuer: str, audience: str, now: int) -> C:
    """Return the claims in a payload whose signature was verified, as a `shape`.

    Raise `Unauthenticated` if the payload lacks a claim of `shape`, has another issuer or audience,
    or has expired.
    """
    try:
        claims = msgspec.json.decode(payload, type=shape)
    except (ValueError, RecursionError):
        raise Unauthenticated("the token is not valid") from None
    if claims.iss != issuer or claims.aud != audience:
        raise Unauthenticated("the token is not for this service")
    if now >= claims.exp * MICROSECONDS:
        raise Unauthenticated("the token has expired")
    return claims
