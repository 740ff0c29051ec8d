"""Compact signed tokens (RFC 7515): made and checked, and nothing known of what they claim.

Checked strictly but for one thing: the unused bits of the signature's last character may be
anything. So one token has several spellings (16 under Ed25519, 4 under HMAC-SHA-256), and nothing
may be kept under a token's string; its identity is in its claims (rule I5).
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from joserfc import jws
from joserfc.errors import JoseError, UnsupportedAlgorithmError
from joserfc.jwk import OctKey, OKPKey
from joserfc.jws import JWSRegistry

from cloudcore.errors import Unauthenticated

EDDSA: Final = "EdDSA"
HS256: Final = "HS256"

_TYPE: Final = "JWT"
_TOKEN: Final = re.compile(
    r"([A-Za-z0-9_-]{1,512})\.([A-Za-z0-9_-]{1,131072})\.([A-Za-z0-9_-]{1,128})"
)


class SigningKey(NamedTuple):
    """A key that makes and checks tokens of one algorithm."""

    kid: str
    algorithm: str
    key: OKPKey | OctKey
    not_after: int
    """Until when it signs, in microseconds since the epoch."""


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    """All a header may say: neither a key (``jwk``) nor where to find one (``jku``, ``x5u``)."""

    alg: str
    typ: str
    kid: str


class _Only(JWSRegistry):
    """Knows one algorithm, under the name that verifiers know it by.

    RFC 9864 renames EdDSA, and the library warns of the old name, which is the one in use.
    """

    def __init__(self, algorithm: str) -> None:
        super().__init__(algorithms=[algorithm])
        self._name = algorithm

    def get_alg(self, name: str) -> Any:  # noqa: ANN401 - the library's model
        """Return the algorithm, or refuse any other."""
        if name != self._name:
            raise UnsupportedAlgorithmError
        return self.algorithms[name]


_REGISTRIES: Final = {name: _Only(name) for name in (EDDSA, HS256)}


def new_material(algorithm: str) -> bytes:
    """Return a fresh private key of an algorithm, as the JWK it is kept as."""
    key = OKPKey.generate_key("Ed25519") if algorithm == EDDSA else OctKey.generate_key(256)
    return json.dumps(key.as_dict(private=True)).encode()


def load_key(kid: str, algorithm: str, not_after: int, material: bytes) -> SigningKey:
    """Return the key that `new_material` made."""
    jwk = json.loads(material)
    key = OKPKey.import_key(jwk) if algorithm == EDDSA else OctKey.import_key(jwk)
    return SigningKey(kid, algorithm, key, not_after)


def public_jwk(key: SigningKey) -> dict[str, Any]:
    """Return the public half of a key, as key sets list it (RFC 8037)."""
    assert isinstance(key.key, OKPKey), "a symmetric key has no public half"
    return {
        **key.key.as_dict(private=False),
        "kid": key.kid,
        "use": "sig",
        "alg": key.algorithm,
    }


def sign(claims: Mapping[str, Any], key: SigningKey) -> str:
    """Return claims as a token signed by `key`."""
    header = {"alg": key.algorithm, "typ": _TYPE, "kid": key.kid}
    payload = msgspec.json.encode(claims)
    return jws.serialize_compact(header, payload, key.key, registry=_REGISTRIES[key.algorithm])


def verify(token: str, find_key: Callable[[str], SigningKey | None]) -> bytes:
    """Return what a token claims, as JSON, if a key that `find_key` knows has signed it.

    The key says which algorithm is right; the token only may not say another.

    Raises:
        Unauthenticated.

    """
    parts = _TOKEN.fullmatch(token)
    if parts is None:
        raise _refusal()
    try:
        header = msgspec.json.decode(_decoded(parts[1]), type=_Header)
        key = find_key(header.kid)
        if key is None or header.alg != key.algorithm or header.typ != _TYPE:
            raise _refusal()
        signature = urlsafe_b64encode(_decoded(parts[3])).rstrip(b"=").decode()
        found = jws.deserialize_compact(
            f"{parts[1]}.{parts[2]}.{signature}", key.key, registry=_REGISTRIES[key.algorithm]
        )
    except (JoseError, ValueError, RecursionError):  # msgspec's and base64's are ValueErrors
        raise _refusal() from None
    payload: bytes | None = found.payload
    assert payload is not None
    return payload


def _decoded(segment: str) -> bytes:
    """Undo base64url without padding; the last character's unused bits are not looked at."""
    return urlsafe_b64decode(segment + "=" * (-len(segment) % 4))


def _refusal() -> Unauthenticated:
    return Unauthenticated("the token is not valid")
