"""Verify the ID tokens of identity providers (OpenID Connect Core 1.0 §3.1.3.7).

Three algorithms are accepted, and the algorithm must match the key that the provider publishes
under the token's `kid`. Keys and links to keys in the token itself are never used.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from cloudcore import base64url, key_pairs
from cloudcore.clock import MICROSECONDS
from cloudcore.errors import InvalidInput
from cloudcore.identity.names import email_address
from cloudcore.identity.oidc.provider import ProviderFailed
from cloudcore.identity.rows.identity_providers import IdentityProvider
from cloudcore.identity.tokens.jws import OnlyAlgorithm

SKEW_SECONDS: Final = 60
"""How many seconds the clocks of provider and install may differ."""
MAX_TOKEN: Final = 65_536
MAX_SUBJECT: Final = 255
"""Maximum characters of `sub` (OpenID Connect Core 1.0 §2)."""

_MIN_RSA_BITS: Final = 2048
_ALGORITHMS: Final = {"RS256": ("RSA", None), "ES256": ("EC", "P-256"), "EdDSA": ("OKP", "Ed25519")}
"""Maps each accepted algorithm to the type and the curve of its keys."""
_REGISTRIES: Final = {name: OnlyAlgorithm(name, allows_extra_headers=True) for name in _ALGORITHMS}


class _Header(msgspec.Struct):
    alg: str
    kid: str | None = None


class _Claims(msgspec.Struct):
    iss: str
    sub: str
    aud: str | list[str]
    exp: int | float
    iat: int | float
    nonce: str
    nbf: int | float | None = None
    azp: str | None = None


class KeyMismatch(ProviderFailed):
    """None of the keys verifies a token; the provider may have newer keys."""


def key_id_of(token: str) -> str | None:
    """Return the `kid` in a token's header, or None if it has none.

    Raise `ProviderFailed` if `token` is not a signed token, or its algorithm is not accepted.
    """
    return _header(token).kid


def verify_id_token(
    token: str,
    keys: Sequence[Mapping[str, Any]],
    *,
    issuer: str,
    client_id: str,
    nonce: str,
    now: int,
) -> dict[str, Any]:
    """Verify a token with the provider's `keys` (JWKs); return its claims.

    Raise `KeyMismatch` if no key or several keys match the token's header, or the matching key does
    not verify the signature; `ProviderFailed` if the token is not from `issuer`, for `client_id`
    and for this sign-in (`nonce`), or is not valid `now` (in microseconds).
    """
    header = _header(token)
    key = _key(keys, header)
    try:
        verified = jws.deserialize_compact(token, key, registry=_REGISTRIES[header.alg])
        payload = verified.payload or b""
        claims = msgspec.json.decode(payload, type=_Claims)
        every: dict[str, Any] = msgspec.json.decode(payload, type=dict[str, Any])
    except JoseError:
        raise KeyMismatch("the signature of the ID token is wrong") from None
    except (ValueError, RecursionError) as error:
        raise ProviderFailed(f"the ID token has other claims than it must: {error}") from None
    _check(claims, issuer, client_id, nonce, now / MICROSECONDS)
    return every


def _header(token: str) -> _Header:
    if len(token) > MAX_TOKEN:
        raise ProviderFailed(f"the ID token has more than {MAX_TOKEN} characters")
    try:
        header = msgspec.convert(jws.extract_compact(token.encode()).headers(), _Header)
    except (JoseError, ValueError, RecursionError):
        raise ProviderFailed("the ID token is not a signed token") from None
    if header.alg not in _ALGORITHMS:
        known = ", ".join(_ALGORITHMS)
        raise ProviderFailed(f"the ID token is signed with {header.alg[:40]}, not with {known}")
    return header


def _key(keys: Sequence[Mapping[str, Any]], header: _Header) -> RSAKey | ECKey | OKPKey:
    """Return the key that matches a header's algorithm and, if it has one, its `kid`.

    Raise `KeyMismatch` unless exactly one key matches, `ProviderFailed` if that key is malformed.
    """
    kind, curve = _ALGORITHMS[header.alg]
    fitting = [
        key
        for key in keys
        if key.get("kty") == kind
        and (curve is None or key.get("crv") == curve)
        and key.get("use", "sig") == "sig"
        and key.get("alg", header.alg) in (header.alg, curve)
        and (header.kid is None or key.get("kid") == header.kid)
    ]
    if len(fitting) != 1:
        raise KeyMismatch("the provider has no key, or several, that the ID token could mean")
    public = {
        name: fitting[0][name] for name in ("kty", "crv", "n", "e", "x", "y") if name in fitting[0]
    }
    try:
        match header.alg:
            case "RS256":
                _check_size(_number(public["n"]).bit_length(), _number(public["e"]))
                return RSAKey.import_key(public)
            case "ES256":
                return ECKey.import_key(public)
            case _:
                return OKPKey.import_key(public)
    except (JoseError, ValueError, TypeError, KeyError):
        raise ProviderFailed("the provider's key for the ID token is malformed") from None


def _check_size(bits: int, exponent: int) -> None:
    """Raise `ProviderFailed` if an RSA key is too short, or would make verification slow."""
    if bits < _MIN_RSA_BITS:
        raise ProviderFailed(f"the provider's key has fewer than {_MIN_RSA_BITS} bits")
    if not key_pairs.is_cheap_to_verify(bits, exponent):
        raise ProviderFailed(
            f"the provider's key has more than {key_pairs.MOST_BITS} bits, or an unusual exponent"
        )


def _number(encoded: str) -> int:
    """Decode a number in a JWK (RFC 7518 §2, Base64urlUInt)."""
    return int.from_bytes(base64url.decode(encoded))


def _check(claims: _Claims, issuer: str, client_id: str, nonce: str, now: float) -> None:
    audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud
    if claims.iss != issuer:
        raise ProviderFailed("the ID token is of another issuer")
    if client_id not in audiences:
        raise ProviderFailed("the ID token is for another client")
    if claims.azp != client_id and (claims.azp is not None or len(audiences) > 1):
        raise ProviderFailed("the ID token was issued to another client")
    if not hmac.compare_digest(claims.nonce.encode(), nonce.encode()):
        raise ProviderFailed("the ID token is of another sign-in")
    if now >= claims.exp + SKEW_SECONDS:
        raise ProviderFailed("the ID token has expired; compare the clocks")
    if max(claims.iat, claims.nbf or 0) > now + SKEW_SECONDS:
        raise ProviderFailed("the ID token is not valid yet; compare the clocks")
    # Databases cannot store null characters, and other control characters are invisible.
    if not 1 <= len(claims.sub) <= MAX_SUBJECT or not claims.sub.isprintable():
        raise ProviderFailed(
            f"the ID token has no subject of 1 to {MAX_SUBJECT} printable characters"
        )


MAX_GROUPS: Final = 2000
"""Maximum groups of a person that are read; further groups are ignored."""
MAX_GROUP_NAME: Final = 256


class Profile(NamedTuple):
    """The claims about a person that are used here."""

    subject: str
    """The provider's permanent id of the person."""
    email: str | None
    """The e-mail address in lower case; None unless the provider has verified it, and the address
    is in one of the provider's `email_domains`."""
    groups: frozenset[str]


def profile_of(provider: IdentityProvider, claims: Mapping[str, Any]) -> Profile:
    """Extract the profile from the verified `claims` of a person."""
    return Profile(
        subject=claims["sub"],
        email=_trusted_email(provider, claims),
        groups=_groups(claims.get(provider.groups_claim)),
    )


def lacks_claims(provider: IdentityProvider, claims: Mapping[str, Any]) -> bool:
    """Return True if the ID token lacks claims that the userinfo endpoint may have."""
    return not {"email", provider.groups_claim} <= claims.keys()


def _trusted_email(provider: IdentityProvider, claims: Mapping[str, Any]) -> str | None:
    email, is_verified = claims.get("email"), claims.get(provider.email_verified_claim)
    # Some providers send a number or a text instead of true.
    if not isinstance(email, str) or is_verified not in (True, 1, "true", "1"):
        return None
    try:
        address = email_address(email)
    except InvalidInput:
        return None
    return address if address.rpartition("@")[2] in provider.domains else None


def _groups(value: object) -> frozenset[str]:
    """Return the groups in a claim: a list of names, or one name; invalid names are ignored."""
    names = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return frozenset(
        name
        for name in names[:MAX_GROUPS]
        if isinstance(name, str) and 1 <= len(name) <= MAX_GROUP_NAME and name.isprintable()
    )
