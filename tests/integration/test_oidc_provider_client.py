"""How identity providers are asked: bounded, vetted, and not believed without reason."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from typing import Any, Final

import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.identity.oauth.sessions import CodeDestination
from cloudcore.identity.oauth.sign_in import SignInForm
from cloudcore.identity.oidc import provider as provider_client
from cloudcore.identity.oidc import sign_in
from cloudcore.identity.oidc.id_tokens import Profile
from cloudcore.identity.oidc.provider import (
    KEPT_SECONDS,
    MAX_BYTES,
    MISMATCH_SECONDS,
    REFRESH_SECONDS,
    Discovery,
    ProviderClient,
    ProviderFailed,
)
from cloudcore.identity.rows.identity_providers import IdentityProvider
from cloudcore.outbound.destinations import Address
from tests.scripted_provider import CLIENT, SECRET, Provider, new_key, scripted_provider

NOW: Final = 1_800_000_000 * MICROSECONDS
BACK: Final = "https://registry.example.com/callback"
FORM: Final = SignInForm("", "", 0, CodeDestination("cli", "urn:ietf:wg:oauth:2.0:oob"))


@pytest.fixture
def provider() -> Iterator[Provider]:
    with scripted_provider() as provider:
        provider.claims = claims()
        yield provider


def claims(**changes: object) -> dict[str, Any]:
    """Return claims of Zoe, who is in one group."""
    now = NOW // MICROSECONDS
    zoe = {"sub": "zoe", "email": "zoe@example.org", "email_verified": True, "groups": ["devs"]}
    return {"iat": now, "exp": now + 300, **zoe, **changes}


def row(provider: Provider, **changes: Any) -> IdentityProvider:  # noqa: ANN401 - its columns
    made = IdentityProvider(
        id="p",
        organization_id="o",
        name="Acme",
        issuer=provider.url,
        client_id=CLIENT,
        client_secret_sealed=None,
        scopes="openid",
        groups_claim="groups",
        email_verified_claim="email_verified",
        email_domains="example.org",
        creates_people=True,
        status="active",
        created_at=0,
        updated_at=0,
    )
    return made._replace(**changes)


class Asking:
    """An install that asks a provider."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.client = ProviderClient([provider.url])
        self.discovery = Discovery(self.client)

    async def profile(
        self,
        now: int = NOW,
        secret: str | None = SECRET,
        **changes: Any,  # noqa: ANN401
    ) -> Profile:
        """Sign Zoe in."""
        found = row(self.provider, **changes)
        metadata = await self.discovery.metadata(found.issuer, now)
        pending = sign_in.new_pending(found, FORM, now)
        answer = self.provider.authorize(sign_in.authorization_url(found, metadata, pending, BACK))
        code = sign_in.check_answer(metadata, answer)
        return await sign_in.fetch_profile(
            self.client, self.discovery, found, secret, pending, code, BACK, now
        )


async def test_a_profile_is_what_may_be_believed(provider: Provider) -> None:
    asking = Asking(provider)
    found = await asking.profile()
    assert found == Profile("zoe", "zoe@example.org", frozenset({"devs"}))
    assert provider.asked["/userinfo"] == 0
    assert (await asking.profile(email_domains="example.com")).email is None
    provider.claims = claims(
        xms_edov="1", email_verified=None, groups=[1, "", "a" * 257, "a\0", "ops"]
    )
    found = await asking.profile(email_verified_claim="xms_edov")
    assert found == Profile("zoe", "zoe@example.org", frozenset({"ops"}))


async def test_what_the_token_leaves_out_is_read_from_userinfo(provider: Provider) -> None:
    asking = Asking(provider)
    provider.claims = claims(email=None, email_verified=None, groups=None)
    provider.userinfo = {**claims(), "groups": ["ops"]}
    assert await asking.profile() == Profile("zoe", "zoe@example.org", frozenset({"ops"}))
    # What is signed wins.
    provider.claims = claims(email=None)
    provider.userinfo = {**claims(), "groups": ["ops"]}
    assert (await asking.profile()).groups == {"devs"}
    provider.userinfo = claims(sub="another")
    with pytest.raises(ProviderFailed, match="told of another person"):
        await asking.profile()
    for token in ("a secret\r\n", "a secret", "é", ""):
        provider.access_token = token
        with pytest.raises(ProviderFailed, match="none that a header can hold"):
            await asking.profile()


@pytest.mark.parametrize(
    ("methods", "secret"),
    [(None, SECRET), (["client_secret_post"], SECRET), (["none"], None)],
    ids=["basic by default", "post", "none"],
)
async def test_the_secret_is_sent_as_the_provider_takes_it(
    provider: Provider, methods: list[str] | None, secret: str | None
) -> None:
    provider.metadata = {"token_endpoint_auth_methods_supported": methods}
    assert (await Asking(provider).profile(secret=secret)).subject == "zoe"


async def test_no_more_issuers_are_kept_than_the_limit(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_client, "MAX_ISSUERS", 1)
    asking = Asking(provider)
    with scripted_provider() as other:
        asking.client = ProviderClient([provider.url, other.url])
        asking.discovery = Discovery(asking.client)
        for each in (provider, other, provider):
            assert (await asking.discovery.metadata(each.url, NOW)).issuer == each.url
    assert provider.asked["/keys"] == 2


async def test_keys_rotate_and_are_kept(provider: Provider) -> None:
    asking = Asking(provider)
    await asking.profile()
    later = NOW
    for algorithm in ("ES256", "EdDSA"):
        provider.rotate(algorithm, f"of {algorithm}")
        later += REFRESH_SECONDS * MICROSECONDS
        provider.claims = claims(iat=later // MICROSECONDS)
        await asking.profile(later)
    assert provider.asked["/keys"] == 3
    # A token with an unknown key does not make every sign-in read the keys.
    provider.keys = provider.published()
    provider.kid = "unknown"
    for _ in range(3):
        with pytest.raises(ProviderFailed, match="has no key"):
            await asking.profile(later)
    assert provider.asked["/keys"] == 3


async def test_a_key_may_be_replaced_under_its_id(provider: Provider) -> None:
    asking = Asking(provider)
    await asking.profile()
    minute = MISMATCH_SECONDS * MICROSECONDS
    for number, kid in enumerate(("one", None), 1):
        provider.rotate("ES256" if kid is None else "RS256", kid)
        if kid is None:
            provider.keys = [{**provider.published()[0], "kid": "of the set"}]
        before, later = NOW + number * minute - 1, NOW + number * minute
        provider.claims = claims(iat=before // MICROSECONDS)
        for _ in range(2):  # within the minute, none is read
            with pytest.raises(ProviderFailed, match=r"signature of the ID token|has no key"):
                await asking.profile(before)
        assert provider.asked["/keys"] == number
        await asking.profile(later)
        await asking.profile(later)
        assert provider.asked["/keys"] == number + 1
    # A signature that is wrong whatever the keys are has them read once a minute, no more.
    provider.keys, provider.key = provider.published(), new_key("ES256")
    for seconds, reads in ((2 * 60, 3), (3 * 60, 4), (3 * 60 + 59, 4)):
        with pytest.raises(ProviderFailed, match="signature of the ID token"):
            await asking.profile(NOW + seconds * MICROSECONDS)
        assert provider.asked["/keys"] == reads


async def test_metadata_is_kept_for_an_hour(provider: Provider) -> None:
    asking = Asking(provider)
    for seconds, reads in ((0, 1), (KEPT_SECONDS - 1, 1), (KEPT_SECONDS, 2)):
        await asking.discovery.metadata(provider.url, NOW + seconds * MICROSECONDS)
        assert provider.asked["/.well-known/openid-configuration"] == reads


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"issuer": "https://login.example.com"}, "names another issuer"),
        ({"jwks_uri": None}, "is not what a provider says of itself"),
        ({"token_endpoint": 7}, "is not what a provider says of itself"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "authorization_endpoint"),
        ({"authorization_endpoint": "http://login.example.com"}, "it is not https"),
        ({"jwks_uri": "http://127.0.0.1:1/keys"}, "it is not https"),
        ({"jwks_uri": "https://10.0.0.1/keys"}, "has an address that is not public"),
        ({"token_endpoint": "https://169.254.169.254/token"}, "not public"),
        ({"userinfo_endpoint": "file:///etc/passwd"}, "may not be asked"),
    ],
)
async def test_metadata_that_is_refused(
    provider: Provider, metadata: dict[str, object], words: str
) -> None:
    provider.metadata = metadata
    provider.claims = claims(groups=None)
    with pytest.raises(ProviderFailed, match=words):
        await Asking(provider).profile()


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/keys", "/token"])
@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ((302, b"", {"Location": "/elsewhere"}), "redirect"),
        ((200, b"<html>", {}), "no JSON"),
        ((200, b"[]", {}), "no JSON"),
        ((200, b"{" * 100_000, {}), "no JSON"),
        ((200, b" " * (MAX_BYTES + 1), {}), f"more than {MAX_BYTES} bytes"),
        ((200, gzip.compress(b" " * 10), {"Content-Encoding": "gzip"}), "encoding"),
        ((500, b"{}", {}), "status 500"),
    ],
)
async def test_answers_that_are_refused(
    provider: Provider, path: str, lie: tuple[int, bytes, dict[str, str]], words: str
) -> None:
    provider.answer = lambda asked: lie if asked == path else None
    with pytest.raises(ProviderFailed, match=words):
        await Asking(provider).profile()
    assert provider.asked["/elsewhere"] == 0


@pytest.mark.parametrize("keys", [b"{}", b'{"keys": {}}', b'{"keys": null}'])
async def test_a_provider_without_a_list_of_keys_is_refused(
    provider: Provider, keys: bytes
) -> None:
    provider.answer = lambda path: (200, keys, {}) if path == "/keys" else None
    with pytest.raises(ProviderFailed, match="has no list of keys"):
        await Asking(provider).profile()


async def test_a_refusal_of_the_token_endpoint_is_told(provider: Provider) -> None:
    told = {"error": "invalid_grant", "error_description": "no\n\nsuch  code"}
    lie = (400, json.dumps(told).encode(), {"Content-Type": "application/json"})
    provider.answer = lambda path: lie if path == "/token" else None
    with pytest.raises(ProviderFailed, match="status 400: invalid_grant: no such code"):
        await Asking(provider).profile()


async def test_answers_of_the_browser_that_are_refused(provider: Provider) -> None:
    discovery = Asking(provider).discovery
    metadata = await discovery.metadata(provider.url, NOW)
    whole = {"code": "c", "iss": provider.url}
    assert sign_in.check_answer(metadata, whole) == "c"
    for answer, words in (
        ({"code": "c"}, "another provider answered"),
        ({**whole, "iss": "https://evil.example"}, "another provider answered"),
        ({"iss": provider.url}, "has no code"),
        ({**whole, "error": "access_denied"}, "it refused: access_denied"),
        ({**whole, "error": "a", "error_description": "b " * 999}, "it refused: a: b b"),
    ):
        with pytest.raises(ProviderFailed, match=words) as refused:
            sign_in.check_answer(metadata, answer)
        assert len(str(refused.value)) < 400
    provider.metadata = {"authorization_response_iss_parameter_supported": None}
    metadata = await Asking(provider).discovery.metadata(provider.url, NOW)
    assert sign_in.check_answer(metadata, {"code": "c"}) == "c"
    with pytest.raises(ProviderFailed, match="another provider answered"):
        sign_in.check_answer(metadata, {"code": "c", "iss": "https://evil.example"})


class Resolver:
    """Resolves every name to these addresses, and notes the names."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = [ip_address(each) for each in addresses]
        self.asked: list[str] = []

    async def __call__(self, host: str, _port: int) -> Sequence[Address]:
        self.asked.append(host)
        return self._addresses


async def test_a_name_is_vetted_by_its_addresses(provider: Provider) -> None:
    """A public name may resolve to an address inside; nothing is sent there."""
    port = provider.url.rpartition(":")[2]
    for addresses in (["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::1"], []):
        client = ProviderClient([], Resolver(*addresses))
        with pytest.raises(ProviderFailed, match=r"not public|has no address"):
            await client.get(f"https://login.example.com:{port}/keys")
    assert not provider.asked


async def test_the_vetted_address_is_the_one_that_is_asked(provider: Provider) -> None:
    resolver, port = Resolver("127.0.0.1"), provider.url.rpartition(":")[2]
    origin = f"http://sso.internal:{port}"
    assert "keys" in await ProviderClient([origin], resolver).get(f"{origin}/keys")
    assert resolver.asked == ["sso.internal"]


async def test_a_provider_that_hangs_is_given_up(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_host: str, _port: int) -> Sequence[Address]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(provider_client, "SECONDS", 0.01)
    with pytest.raises(ProviderFailed, match="did not answer within"):
        await ProviderClient([], never).get("https://login.example.com/keys")


async def test_a_provider_that_is_not_there_is_told() -> None:
    with scripted_provider() as provider:
        url = provider.url
    with pytest.raises(ProviderFailed, match="cannot be reached"):
        await ProviderClient([url]).get(f"{url}/keys")


async def test_the_next_address_is_tried(provider: Provider) -> None:
    resolver = Resolver("::1", "127.0.0.1")  # it listens on the second
    assert "keys" in await ProviderClient([provider.url], resolver).get(f"{provider.url}/keys")
