"""Tokens nobody may believe, made the ways in which token services have been fooled."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from joserfc.jwk import OctKey, OKPKey

from cloudcore.clock import MICROSECONDS
from cloudcore.identity.tokens.access_tokens import API
from cloudcore.identity.tokens.jws import EDDSA, HS256, SigningKey, load_key, new_material
from registry.services.access.bearers import BEARERS

NOW: Final = 1_800_000_000
ISSUER: Final = "https://registry.example.com"
PULL_HOST: Final = "registry.example.com"

Json = dict[str, Any]


class FixedKeys:
    """One key for each audience, for ever."""

    def __init__(self) -> None:
        end = (NOW + 10_000_000) * MICROSECONDS
        self.by_audience = {
            API: load_key("api-1", EDDSA, end, new_material(EDDSA)),
            BEARERS: load_key("registry-1", HS256, end, new_material(HS256)),
        }

    def current(self, audience: str) -> SigningKey:
        return self.by_audience[audience]

    def find(self, audience: str, kid: str) -> SigningKey | None:
        key = self.by_audience[audience]
        return key if key.kid == kid else None


def good_claims(audience: str) -> Json:
    """Return claims that are believed for an audience, when rightly signed."""
    claims: Json = {
        "iss": ISSUER,
        "aud": "api",
        "sub": "crn:iam::acme:service-account/ci",
        "iat": NOW - 10,
        "exp": NOW + 290,
        "jti": "01890000-0000-7000-8000-00000000000a",
        "akid": "AKAAAAAAAAAAAAAAAAAA",
    }
    if audience == BEARERS:
        claims |= {"aud": PULL_HOST, "nbf": NOW - 15, "access": []}
        del claims["akid"]
    return claims


def token(header: object, payload: object, key: SigningKey | bytes) -> str:
    """Return a compact token; header and payload are JSON, or bytes as they are."""
    signed = f"{_segment(header)}.{_segment(payload)}"
    return f"{signed}.{encoded(_signature(signed.encode(), key))}"


def encoded(value: bytes) -> str:
    return urlsafe_b64encode(value).decode().rstrip("=")


def _segment(value: object) -> str:
    return encoded(value if isinstance(value, bytes) else json.dumps(value).encode())


def _signature(signed: bytes, key: SigningKey | bytes) -> bytes:
    if isinstance(key, bytes):
        return hmac.digest(key, signed, hashlib.sha256)
    if isinstance(key.key, OctKey):
        return hmac.digest(key.key.raw_value, signed, hashlib.sha256)
    private: Any = key.key.private_key
    made: bytes = private.sign(signed)
    return made


def forgeries(
    audience: str, keys: Mapping[str, SigningKey], claims: Json
) -> Iterator[tuple[str, str]]:
    """Yield named tokens for an audience, each wrong in one way; `claims` are good ones."""
    right, other = keys[audience], keys[API if audience == BEARERS else BEARERS]
    good = {"alg": right.algorithm, "typ": "JWT", "kid": right.kid}
    yield from _wrong_headers(good, claims, right)
    yield from _wrong_keys(good, claims, right, other)
    yield from _wrong_claims(good, claims, right, is_bearer=audience == BEARERS)
    yield from _wrong_forms(good, claims, right)


def _wrong_headers(good: Json, claims: Json, right: SigningKey) -> Iterator[tuple[str, str]]:
    others = ("HS384", "HS512", "RS256", "PS256", "ES256", "Ed25519")
    for name in ("none", "None", "NONE", "", *others):
        yield f"alg {name}", token(good | {"alg": name}, claims, right)
    yield (
        "alg none, no signature",
        token(good | {"alg": "none"}, claims, right).rpartition(".")[0] + ".",
    )
    for name, value in (
        ("jku", "https://attacker.example/keys"),
        ("x5u", "https://attacker.example/chain"),
        ("x5c", ["MIIB"]),
        ("jwk", OKPKey.generate_key("Ed25519").as_dict(private=False)),
        ("crit", ["exp"]),
        ("b64", False),
        ("zip", "DEF"),
        ("cty", "JWT"),
    ):
        yield f"header {name}", token(good | {name: value}, claims, right)
    for name in ("alg", "typ", "kid"):
        yield f"no {name}", token({k: v for k, v in good.items() if k != name}, claims, right)
        yield f"{name} null", token(good | {name: None}, claims, right)
    for kid in ("../../x", "' or 1=1--", "", 1, ["api-1"], right.kid.upper(), f"{right.kid}\0"):
        yield f"kid {kid!r}", token(good | {"kid": kid}, claims, right)
    for typ in ("at+jwt", "jwt", "JOSE", ""):
        yield f"typ {typ!r}", token(good | {"typ": typ}, claims, right)
    yield "header nested deep", token(b"[" * 300, claims, right)
    yield "header no object", token(["EdDSA"], claims, right)
    yield "header not UTF-8", token(b'{"alg":"\xff"}', claims, right)


def _wrong_keys(
    good: Json, claims: Json, right: SigningKey, other: SigningKey
) -> Iterator[tuple[str, str]]:
    stranger = load_key(right.kid, right.algorithm, 0, new_material(right.algorithm))
    yield "a stranger's key", token(good, claims, stranger)
    yield (
        "the other audience's key",
        token({**good, "alg": other.algorithm, "kid": other.kid}, claims, other),
    )
    yield (
        "the other audience's key, our kid",
        token({**good, "alg": other.algorithm}, claims, other),
    )
    if isinstance(right.key, OKPKey):
        public = right.key.as_dict(private=False)
        for name, secret in (
            ("x", str(public["x"]).encode()),
            ("JWK", json.dumps(public).encode()),
            ("PEM", right.key.as_pem(private=False)),
            ("DER", right.key.as_der(private=False)),
        ):
            yield f"HS256 by the public key as {name}", token(good | {"alg": HS256}, claims, secret)
    else:
        for secret in (b"", b"secret", right.kid.encode()):
            yield f"HS256 by {secret!r}", token(good, claims, secret)


def _wrong_claims(
    header: Json, claims: Json, right: SigningKey, *, is_bearer: bool
) -> Iterator[tuple[str, str]]:
    issuer, now, end = claims["iss"], claims["iat"] + 10, claims["exp"]
    for name, values in {
        "aud": ("api" if is_bearer else "registry", [claims["aud"]], "", None, 1),
        "iss": ("https://other.example.com", f"{issuer}/", "", None, [issuer]),
        "exp": (now, now - 1, -1, 0, str(end), None, True, [end]),
        "iat": (str(now), None),
        "jti": (1, None),
        "sub": (None, 1),
    }.items():
        for value in values:
            yield f"{name} {value!r}", token(header, claims | {name: value}, right)
        yield f"no {name}", token(header, {k: v for k, v in claims.items() if k != name}, right)
    if is_bearer:
        for nbf in (now + 11, str(now), None):
            yield f"nbf {nbf!r}", token(header, claims | {"nbf": nbf}, right)
        for access in ({"type": "repository"}, "*"):
            yield f"access {access!r}", token(header, claims | {"access": access}, right)
        for name in ("nbf", "access"):
            yield f"no {name}", token(header, {k: v for k, v in claims.items() if k != name}, right)
    raw = json.dumps(claims)
    exp = f'"exp": {claims["exp"]}'
    yield "exp 1e999", token(header, raw.replace(exp, '"exp": 1e999').encode(), right)
    yield "exp NaN", token(header, raw.replace(exp, '"exp": NaN').encode(), right)
    for name, payload in (
        ("a list", b"[]"),
        ("null", b"null"),
        ("not JSON", b"exp"),
        ("not UTF-8", b'{"iss": "\xff"}'),
        ("nested deep", b"[" * 50_000),
    ):
        yield f"payload {name}", token(header, payload, right)


def _wrong_forms(header: Json, claims: Json, right: SigningKey) -> Iterator[tuple[str, str]]:
    good = token(header, claims, right)
    first, second, third = good.split(".")
    more = encoded(json.dumps(claims | {"exp": claims["exp"] + 10_000_000}).encode())
    changes: Mapping[str, Callable[[], str]] = {
        "nothing": lambda: "",
        "dots": lambda: "..",
        "two parts": lambda: f"{first}.{second}",
        "no signature": lambda: f"{first}.{second}.",
        "four parts": lambda: f"{good}.{third}",
        "five parts": lambda: f"{first}..{second}.{third}.{third}",
        "detached payload": lambda: f"{first}..{third}",
        "another payload": lambda: f"{first}.{more}.{third}",
        "another header": lambda: f"{encoded(json.dumps(header).encode() + b' ')}.{second}.{third}",
        "padding": lambda: good + "=",
        "more padding": lambda: good + "==",
        "a line's end": lambda: good + "\n",
        "space before": lambda: " " + good,
        "space inside": lambda: f"{first}. {second}.{third}",
        "null character": lambda: good + "\0",
        "half a signature": lambda: f"{first}.{second}.{third[: len(third) // 2]}",
        "a signature twice": lambda: f"{good}{third}",
        "one character too few": lambda: good[:-1],
        "one character too many": lambda: good + "A",
        "JSON serialization": lambda: json.dumps(
            {"protected": first, "payload": second, "signature": third}
        ),
        "full-width dot": lambda: good.replace(".", "\uff0e"),
        "a megabyte": lambda: f"{first}.{'A' * 1_000_000}.{third}",
    }
    for name, change in changes.items():
        yield name, change()
