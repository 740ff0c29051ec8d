"""ID tokens of the right provider, client and sign-in are believed, and where providers may be."""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64encode
from typing import Any, Final

import pytest
from joserfc import jws
from joserfc.jwk import ECKey

from cloudcore.clock import MICROSECONDS
from cloudcore.identity.oidc.id_tokens import MAX_TOKEN, SKEW_SECONDS, key_id_of, verify_id_token
from cloudcore.identity.oidc.provider import ProviderFailed, check_url
from cloudcore.identity.tokens.jws import OnlyAlgorithm
from tests.scripted_provider import Key, new_key

NOW: Final = 1_800_000_000
ISSUER: Final = "https://login.example.com"
KEYS: Final = {name: new_key(name) for name in ("RS256", "ES256", "EdDSA")}
CLAIMS: Final[dict[str, Any]] = {
    "iss": ISSUER,
    "sub": "subject",
    "aud": "entrepot",
    "exp": NOW + 300,
    "iat": NOW,
    "nonce": "the nonce",
}


def signed(algorithm: str = "ES256", **changes: Any) -> str:  # noqa: ANN401 - claims
    claims = {name: value for name, value in (CLAIMS | changes).items() if value is not None}
    header = {"alg": algorithm, "kid": "one"}
    registry = OnlyAlgorithm(algorithm)
    payload = json.dumps(claims).encode()
    return jws.serialize_compact(header, payload, KEYS[algorithm], registry=registry)


def published(key: Key, **changes: object) -> dict[str, Any]:
    return {**key.as_dict(private=False), "kid": "one", "use": "sig", **changes}


def verified(token: str, *keys: dict[str, Any]) -> dict[str, Any]:
    return verify_id_token(
        token,
        keys or [published(KEYS["ES256"])],
        issuer=ISSUER,
        client_id="entrepot",
        nonce="the nonce",
        now=NOW * MICROSECONDS,
    )


@pytest.mark.parametrize("algorithm", KEYS)
def test_each_algorithm_is_verified(algorithm: str) -> None:
    token = signed(algorithm, groups=["devs"])
    others = [published(KEYS[name]) for name in KEYS]  # one id for keys of several types
    assert verified(token, *others)["groups"] == ["devs"]
    assert key_id_of(token) == "one"
    with pytest.raises(ProviderFailed, match="signature"):
        verified(token, published(new_key(algorithm)))


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": ["entrepot"]},
        {"aud": ["other", "entrepot"], "azp": "entrepot"},
        {"azp": "entrepot"},
        {"exp": NOW - SKEW_SECONDS + 1},
        {"iat": NOW + SKEW_SECONDS},
        {"nbf": NOW + SKEW_SECONDS},
        {"exp": NOW + 0.5},
    ],
)
def test_what_is_allowed(changes: dict[str, Any]) -> None:
    assert verified(signed(**changes))["sub"] == "subject"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"iss": "https://login.example.com/"}, "another issuer"),
        ({"iss": None}, "other claims"),
        ({"aud": "other"}, "another client"),
        ({"aud": []}, "another client"),
        ({"aud": ["other", "entrepot"]}, "issued to another client"),
        ({"azp": "other"}, "issued to another client"),
        ({"nonce": "another"}, "another sign-in"),
        ({"nonce": None}, "other claims"),
        ({"exp": NOW - SKEW_SECONDS}, "expired"),
        ({"exp": "never"}, "other claims"),
        ({"exp": None}, "other claims"),
        ({"iat": NOW + SKEW_SECONDS + 1}, "not valid yet"),
        ({"nbf": NOW + SKEW_SECONDS + 1}, "not valid yet"),
        ({"sub": ""}, "no subject"),
        ({"sub": "s" * 256}, "no subject"),
        ({"sub": 7}, "other claims"),
        *(({"sub": f"a{each}b"}, "printable") for each in "\0\n\x7f\x85\u202e"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ProviderFailed, match=words):
        verified(signed(**changes))


def part(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def test_tokens_without_a_signature_are_refused() -> None:
    for algorithm in ("none", "None", ""):
        with pytest.raises(ProviderFailed, match="is signed with"):
            verified(f"{part({'alg': algorithm, 'kid': 'one'})}.{part(CLAIMS)}.")
    for token in ("", "a.b", "a.b.c", "." * 9, "é.é.é", f"{part([])}.{part(CLAIMS)}.x"):
        with pytest.raises(ProviderFailed):
            verified(token)
    with pytest.raises(ProviderFailed, match=f"more than {MAX_TOKEN}"):
        verified("a" * (MAX_TOKEN + 1))


def test_a_public_key_is_no_shared_secret() -> None:
    """A forger may sign with the bytes of the public key as an HMAC key."""
    public = KEYS["RS256"].as_pem(private=False)
    content = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(CLAIMS)}"
    forged = urlsafe_b64encode(hmac.digest(public, content.encode(), "sha256")).decode()
    with pytest.raises(ProviderFailed, match="is signed with HS256"):
        verified(f"{content}.{forged.rstrip('=')}", published(KEYS["RS256"]))


def test_a_key_in_the_token_is_not_used() -> None:
    forger = ECKey.generate_key("P-256")
    header = {"alg": "ES256", "kid": "one", "jwk": forger.as_dict(private=False)}
    registry = OnlyAlgorithm("ES256")
    token = jws.serialize_compact(header, json.dumps(CLAIMS).encode(), forger, registry=registry)
    with pytest.raises(ProviderFailed, match="signature"):
        verified(token)


def test_the_key_must_be_meant() -> None:
    token, key = signed(), KEYS["ES256"]
    for keys in (
        [published(key, kid="two")],
        [published(key, use="enc")],
        [published(key, alg="ES384")],
        [published(KEYS["RS256"])],
        [published(key), published(new_key("ES256"))],
        [published(key, x="A", y="B")],
        [published(key, x=7)],
    ):
        with pytest.raises(ProviderFailed, match="key"):
            verified(token, *keys)


def test_without_a_key_id_the_only_key_is_meant() -> None:
    registry, key = OnlyAlgorithm("ES256"), KEYS["ES256"]
    payload = json.dumps(CLAIMS).encode()
    token = jws.serialize_compact({"alg": "ES256"}, payload, key, registry=registry)
    assert verified(token, published(key), published(KEYS["RS256"]))["sub"] == "subject"
    with pytest.raises(ProviderFailed, match="or several"):
        verified(token, published(key), published(new_key("ES256"), kid="two"))


def test_short_rsa_keys_are_refused() -> None:
    modulus = urlsafe_b64encode(b"\xff" * 128).decode().rstrip("=")
    with pytest.raises(ProviderFailed, match="fewer than 2048 bits"):
        verified(signed("RS256"), published(KEYS["RS256"], n=modulus))


@pytest.mark.parametrize(
    ("modulus", "exponent"),
    [(b"\xff" * 1025, b"\1\0\1"), (b"\xff" * 256, b"\xff" * 5), (b"\xff" * 256, b"\1\0\0")],
)
def test_rsa_keys_that_cost_much_to_verify_with_are_not_used(
    modulus: bytes, exponent: bytes
) -> None:
    numbers = {"n": modulus, "e": exponent}
    changes = {name: urlsafe_b64encode(each).decode() for name, each in numbers.items()}
    with pytest.raises(ProviderFailed, match="more than 8192 bits, or an unusual exponent"):
        verified(signed("RS256"), published(KEYS["RS256"], **changes))


INSIDE = ("http://127.0.0.1:9000", "https://sso.internal", "http://[::1]:80")


@pytest.mark.parametrize(
    "url",
    [
        *("https://login.example.com", "https://LOGIN.example.com:8443/a", "https://8.8.8.8/x"),
        *("http://127.0.0.1:9000/realms/a", "https://sso.internal:443/"),
    ],
)
def test_a_url_that_may_be_asked(url: str) -> None:
    check_url(url, INSIDE)


@pytest.mark.parametrize(
    "url",
    [
        *("", "login.example.com", "http://login.example.com", "ftp://login.example.com"),
        *("https://", "https://user@login.example.com"),
        *("https://user:password@login.example.com", "https://login.example.com/#a"),
        *("https://login.example.com/#", "https://login.example.com:99999"),
        *("https://login.example.com/a b", "https://login.example.com/\n"),
        "https://lögin.example.com",
        f"https://login.example.com/{'a' * 1000}",
        # Not listed: another port, another scheme.
        "http://127.0.0.1:9001",
        "https://127.0.0.1:9000",
        "http://sso.internal",
        # Addresses that are not public, in all their spellings of a URL.
        "https://127.0.0.1",
        *("https://10.0.0.1", "https://169.254.169.254/latest", "https://0.0.0.0"),
        *("https://[::1]", "https://[fd00::1]", "https://[fe80::1]", "https://[::ffff:10.0.0.1]"),
    ],
)
def test_a_url_that_may_not_be_asked(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_url(url, INSIDE)


def test_the_operator_is_told_where_to_list_a_provider_inside() -> None:
    with pytest.raises(ValueError, match="ENTREPOT_OIDC_INTERNAL_ORIGINS"):
        check_url("https://10.0.0.1", INSIDE)
