"""Sign and verify compact tokens (RFC 7515) with any claims.

Verification is strict with one exception: the unused bits of the signature's last base64url
character are ignored. So a token has several spellings (16 under Ed25519, 4 under HMAC-SHA-256).
Never use the token's string as a lookup key; use its claims, or the result of `split_token`.
"""

from __future__ import annotations

import json
import re
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from joserfc import jws
from joserfc.errors import JoseError, UnsupportedAlgorithmError
from joserfc.jwk import OctKey, OKPKey
from joserfc.jws import JWSRegistry

from cloudcore import base64url
from cloudcore.errors import Unauthenticated

EDDSA: Final = "EdDSA"
HS256: Final = "HS256"

_TYPE: Final = "JWT"
_TOKEN: Final = re.compile(
    r"([A-Za-z0-9_-]{1,512})\.([A-Za-z0-9_-]{1,131072})\.([A-Za-z0-9_-]{1,128})"
)
_STANDARD: Final = bytes.maketrans(b"-_+/=", b"+/!!!")
"""Translates base64url to base64; characters that are not in base64url become invalid."""
_PADDING: Final = (b"", b"===", b"==", b"=")


class SigningKey(NamedTuple):
    """A key that signs and verifies tokens of one algorithm."""

    kid: str
    algorithm: str
    key: OKPKey | OctKey
    not_after: int
    """End of its signing period, in microseconds since the epoch."""


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    """The allowed header fields; a key (``jwk``) or a link to one (``jku``, ``x5u``) is refused."""

    alg: str
    typ: str
    kid: str


class OnlyAlgorithm(JWSRegistry):
    """Accepts a single algorithm, under its established name.

    RFC 9864 renames EdDSA, and the library warns about the old name, which clients still use.
    """

    def __init__(self, algorithm: str, *, allows_extra_headers: bool = False) -> None:
        super().__init__(algorithms=[algorithm], strict_check_header=not allows_extra_headers)
        self._name = algorithm

    def get_alg(self, name: str) -> Any:  # noqa: ANN401 - the library's model
        """Return the algorithm; raise `UnsupportedAlgorithmError` for any other name."""
        if name != self._name:
            raise UnsupportedAlgorithmError
        return self.algorithms[name]


_REGISTRIES: Final = {name: OnlyAlgorithm(name) for name in (EDDSA, HS256)}


def new_material(algorithm: str) -> bytes:
    """Generate a private key for an algorithm; return it as an encoded JWK."""
    key = OKPKey.generate_key("Ed25519") if algorithm == EDDSA else OctKey.generate_key(256)
    return json.dumps(key.as_dict(private=True)).encode()


def load_key(kid: str, algorithm: str, not_after: int, material: bytes) -> SigningKey:
    """Decode a key from `new_material`."""
    jwk = json.loads(material)
    key = OKPKey.import_key(jwk) if algorithm == EDDSA else OctKey.import_key(jwk)
    return SigningKey(kid, algorithm, key, not_after)


def public_jwk(key: SigningKey) -> dict[str, Any]:
    """Return the public half of a key as a JWK for a key set (RFC 8037)."""
    assert isinstance(key.key, OKPKey), "a symmetric key has no public half"
    return {
        **key.key.as_dict(private=False),
        "kid": key.kid,
        "use": "sig",
        "alg": key.algorithm,
    }


def sign(claims: Mapping[str, Any], key: SigningKey) -> str:
    """Return a token with these claims, signed with `key`."""
    header = {"alg": key.algorithm, "typ": _TYPE, "kid": key.kid}
    payload = msgspec.json.encode(claims)
    return jws.serialize_compact(header, payload, key.key, registry=_REGISTRIES[key.algorithm])


def verify(token: str, find_key: Callable[[str], SigningKey | None]) -> tuple[bytes, SigningKey]:
    """Verify a token by the key that `find_key` returns for its `kid`.

    Return (claims as JSON, key). The key determines the algorithm; a token whose header names
    another algorithm is refused.

    Raise `Unauthenticated` if the token is malformed, there is no such key, or the signature is
    wrong.
    """
    parts = _TOKEN.fullmatch(token)
    if parts is None:
        raise _refusal()
    try:
        header = msgspec.json.decode(base64url.decode(parts[1]), type=_Header)
        key = find_key(header.kid)
        if key is None or header.alg != key.algorithm or header.typ != _TYPE:
            raise _refusal()
        signature = base64url.encode(base64url.decode(parts[3]))
        found = jws.deserialize_compact(
            f"{parts[1]}.{parts[2]}.{signature}", key.key, registry=_REGISTRIES[key.algorithm]
        )
    except (JoseError, ValueError, RecursionError):  # msgspec's and base64's are ValueErrors
        raise _refusal() from None
    payload: bytes | None = found.payload
    assert payload is not None
    return payload, key


def split_token(token: bytes) -> tuple[bytes, bytes]:
    """Return (signed bytes, decoded signature) of a token, without verifying it.

    All spellings of a token yield the same pair.

    Raise `Unauthenticated` if the token is malformed.
    """
    signed, _, signature = token.rpartition(b".")
    padded = signature.translate(_STANDARD) + _PADDING[len(signature) % 4]
    try:
        return signed, a2b_base64(padded, strict_mode=True)
    except ValueError:
        raise _refusal() from None


def _refusal() -> Unauthenticated:
    return Unauthenticated("the token is not valid")
