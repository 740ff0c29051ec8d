"""Signing keys: made once, sealed, rotated after ninety days, and public where they can be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cloudcore.errors import Unauthenticated
from cloudcore.identity.tokens.access_tokens import API
from cloudcore.identity.tokens.jws import SigningKey
from cloudcore.identity.tokens.signing_keys import SIGNING_DAYS, SigningKeys, list_signing_keys
from cloudcore.keyring import Keyring, KeyringError
from registry.services.access.bearers import BEARERS, KEY_KINDS, BearerSigner
from tests.databases import on_both_databases
from tests.integration.oauth_world import ISSUER, World

DAY = 24 * 3600


def others_keys(world: World) -> SigningKeys:
    """Return the keys as another process has them."""
    return SigningKeys(world.database, world.keyring, lambda: world.now, KEY_KINDS)


async def public_kids(world: World) -> list[str]:
    keys = (await world.request("GET", "/v1/jwks")).json()["keys"]
    assert all(set(key) == {"kty", "crv", "x", "kid", "use", "alg"} for key in keys)
    return [key["kid"] for key in keys]


async def test_an_old_key_verifies_until_its_tokens_end(oauth: World) -> None:
    ci = await oauth.add_program(await oauth.add_account("acme"))
    assert await public_kids(oauth) == ["api-1"]
    oauth.pass_time((SIGNING_DAYS - 1) * DAY + 1)
    await oauth.keys.refresh()
    assert await public_kids(oauth) == ["api-1", "api-2"]  # a day before it signs
    assert oauth.keys.current(API).kid == "api-1"
    oauth.pass_time(DAY - 2)
    old = await oauth.token_of(ci, duration_seconds="43200")
    oauth.pass_time(1)
    new = await oauth.token_of(ci)
    assert oauth.keys.current(API).kid == "api-2"
    for token in (old, new):
        assert (await oauth.who(token)).status_code == 200
    oauth.pass_time(43190)
    await oauth.keys.refresh()
    assert (await oauth.who(old)).status_code == 200
    oauth.pass_time(11)
    await oauth.keys.refresh()
    assert (await oauth.who(old)).status_code == 401
    assert await public_kids(oauth) == ["api-2"]


@on_both_databases
async def test_processes_that_start_at_once_agree(oauth: World) -> None:
    oauth.pass_time(400 * DAY)  # the keys there are have ended
    several = [others_keys(oauth) for _ in range(8)]
    await asyncio.gather(*(keys.refresh() for keys in several))
    for audience in (API, BEARERS):
        assert {keys.current(audience).kid for keys in several} == {f"{audience}-2"}
        assert len({material(keys.current(audience)) for keys in several}) == 1


async def test_another_process_believes_our_tokens(oauth: World) -> None:
    other = others_keys(oauth)
    await other.refresh()

    def signer(keys: SigningKeys) -> BearerSigner:
        return BearerSigner(keys, ISSUER, "127.0.0.1:5000", lambda: oauth.now, lambda: "j")

    now = oauth.now // 1_000_000
    claims: dict[str, Any] = {"sub": "", "iat": now, "exp": now + 300, "access": []}
    bearer = signer(oauth.keys).issue_bearer(claims)
    assert signer(other).verify_bearer(bearer)["jti"] == "j"
    with pytest.raises(Unauthenticated):
        oauth.tokens.verify(bearer)


async def test_keys_are_sealed_and_shared_by_no_audience(oauth: World) -> None:
    rows = await oauth.database.read(list_signing_keys)
    assert {(row.kid, row.algorithm) for row in rows} == {
        ("api-1", "EdDSA"),
        ("registry-1", "HS256"),
    }
    secret = str(oauth.keys.current(BEARERS).key.as_dict(private=True)["k"]).encode()
    assert all(secret not in row.material_sealed for row in rows)
    assert oauth.keys.find(API, "registry-1") is None
    assert oauth.keys.find(BEARERS, "api-1") is None
    stranger = SigningKeys(oauth.database, Keyring(b"x" * 32), lambda: oauth.now, KEY_KINDS)
    with pytest.raises(KeyringError):
        await stranger.refresh()


async def test_metadata_says_where_everything_is(oauth: World) -> None:
    """RFC 8414."""
    answer = await oauth.request("GET", "/.well-known/oauth-authorization-server")
    said = answer.json()
    assert said["issuer"] == ISSUER
    assert said["code_challenge_methods_supported"] == ["S256"]
    for name in ("token_endpoint", "revocation_endpoint", "jwks_uri", "authorization_endpoint"):
        path = said[name].removeprefix(ISSUER)
        assert (await oauth.request("GET", path)).status_code in (200, 400, 405)


def material(key: SigningKey) -> str:
    return str(sorted(key.key.as_dict(private=True).items()))
