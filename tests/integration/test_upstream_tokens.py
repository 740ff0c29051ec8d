"""Which tokens and credentials upstreams are given, and what their refusals mean."""

from __future__ import annotations

from contextlib import closing
from ipaddress import ip_address

import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.outbound.destinations import Address, Allowed
from cloudcore.outbound.http_client import HttpClient
from registry.oci.digest import Digest
from registry.upstream import authentication
from registry.upstream.authentication import Tokens
from registry.upstream.base import (
    Credential,
    HiddenUpstream,
    Remote,
    UpstreamBroken,
    UpstreamRefused,
    UpstreamUnreachable,
)
from tests.scripted_upstream import Answer, Asked, digest_of, error
from tests.upstream_world import CANARY, LAYER, NAME, NOW, Asking, asked

__all__ = ["asked"]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Return the event loop that serves."""
    return "asyncio", {"use_uvloop": True}


async def blob(asked: Asking) -> bytes:
    digest = Digest.parse(digest_of(LAYER))
    async with asked.client.open_blob(asked.remote(NAME), digest) as stream:
        return b"".join([chunk async for chunk in stream.chunks])


async def test_a_token_is_kept_by_repository_until_it_expires(asked: Asking) -> None:
    asked.upstream.auth = "bearer"
    asked.upstream.add_image("other", "3", LAYER)
    for name, seconds, tokens in (
        (NAME, 0, 1),
        ("other", 0, 2),
        (NAME, 269, 2),  # a tenth before the end of five minutes
        (NAME, 270, 3),
    ):
        asked.now = NOW + seconds * MICROSECONDS
        await asked.client.head_manifest(asked.remote(name), "3")
        assert len(asked.upstream.asked_for("GET", "/token")) == tokens


async def test_a_token_that_is_refused_is_renewed_once(asked: Asking) -> None:
    asked.upstream.auth = "bearer"
    await blob(asked)
    asked.upstream.tokens.clear()
    assert await blob(asked) == LAYER
    served = asked.upstream
    served.script = lambda each: (
        None if each.path == "/token" else served.truth(Asked(each.method, each.target, {}))
    )
    with pytest.raises(UpstreamRefused):
        await blob(asked)
    # First without a token, then anew; with the kept one, and its renewal; that one, and the last.
    assert len(served.asked_for("GET", "/token")) == 3
    assert len(served.asked_for("GET", digest_of(LAYER))) == 2 + 2 + 2


async def test_a_realm_that_gave_no_token_is_not_remembered(asked: Asking) -> None:
    """A page in between answers for the upstream once."""
    asked.upstream.auth = "bearer"
    foreign = {"WWW-Authenticate": 'Bearer realm="https://elsewhere.example/token"'}
    asked.upstream.script = lambda _: error(401, "UNAUTHORIZED", foreign)
    with pytest.raises(UpstreamBroken, match="names a realm"):
        await blob(asked)
    asked.upstream.script = lambda _: None
    assert await blob(asked) == LAYER


@pytest.mark.parametrize("status", [404, 500])
async def test_a_realm_that_has_moved_is_found(asked: Asking, status: int) -> None:
    asked.upstream.auth, served = "bearer", asked.upstream
    await blob(asked)
    asked.now += 3600 * MICROSECONDS
    moved = {"WWW-Authenticate": f'Bearer realm="{served.url}/moved"'}

    def script(each: Asked) -> Answer | None:
        if each.path == "/token":
            return Answer(status)
        if each.path == "/moved":
            return served.truth(
                Asked(each.method, each.target.replace("moved", "token"), each.headers)
            )
        truth = served.truth(each)
        return error(401, "UNAUTHORIZED", moved) if truth.status == 401 else None

    served.tokens.clear()
    served.script = script
    assert await blob(asked) == LAYER


async def test_a_realm_that_cannot_be_reached_any_more(asked: Asking) -> None:
    asked.upstream.auth = "bearer"
    await blob(asked)
    asked.now += 3600 * MICROSECONDS
    asked.upstream.asked.clear()
    asked.upstream.script = lambda each: Answer(raw=b"") if each.path == "/token" else None
    with pytest.raises(UpstreamUnreachable) as failed:
        await blob(asked)
    assert failed.value.stage == "auth"
    assert {each.path for each in asked.upstream.asked} == {"/token"}


async def test_a_realm_at_an_address_inside_is_not_asked() -> None:
    """Its name is one of the upstream's site, whose owner says to what it resolves."""

    async def inside(_host: str, _port: int) -> list[Address]:
        return [ip_address("127.0.0.1")]

    with closing(HttpClient(Allowed("X"), resolve=inside)) as http:
        tokens = Tokens(http, lambda: NOW)
        remote = Remote("rule", "https://hub.example.com", NAME, Credential("user", CANARY))
        challenges = ['Bearer realm="https://auth.example.com/token"']
        words = "auth.example.com may not be asked: "
        with pytest.raises(UpstreamUnreachable, match=words) as refused:
            await tokens.renewed(remote, "", challenges, None)
    assert (refused.value.stage, CANARY in str(refused.value)) == ("auth", False)


@pytest.mark.parametrize(("lifetime", "tokens"), [(300, 4), (1, 3)], ids=["all", "the expired"])
async def test_a_process_keeps_a_number_of_tokens(
    asked: Asking, monkeypatch: pytest.MonkeyPatch, lifetime: int, tokens: int
) -> None:
    """One more takes the place of those that have expired, or else of all."""
    monkeypatch.setattr(authentication, "MAX_KEPT", 2)
    asked.upstream.auth = "bearer"
    for number, name in enumerate(("a", "b", "c", "b")):
        asked.upstream.add_image(name, "3", LAYER)
        asked.upstream.token_seconds = lifetime if name == "a" else 300
        asked.now = NOW + number * MICROSECONDS
        await asked.client.head_manifest(asked.remote(name), "3")
    assert asked.upstream.given == tokens


async def test_a_wrong_credential_is_refused_by_its_realm(asked: Asking) -> None:
    asked.upstream.auth, asked.upstream.secret = "bearer", "another"
    with pytest.raises(UpstreamRefused, match="does not take the credential") as refused:
        await asked.client.ping(asked.remote())
    assert (refused.value.stage, refused.value.http_status) == ("auth", 401)
    asked.upstream.secret = ""
    assert await asked.client.ping(asked.remote(anonymous=True)) == 200


@pytest.mark.parametrize(
    ("why", "for_anonymous", "with_credential"),
    [
        ('error="insufficient_scope"', HiddenUpstream, HiddenUpstream),  # Docker Hub
        ('service="quay.io"', HiddenUpstream, UpstreamRefused),
        ('error="invalid_token"', UpstreamRefused, UpstreamRefused),
    ],
)
@pytest.mark.parametrize("gives_it_again", [False, True])
async def test_a_new_token_refused_for_a_repository_hides_it(
    asked: Asking,
    why: str,
    for_anonymous: type[Exception],
    with_credential: type[Exception],
    *,
    gives_it_again: bool,
) -> None:
    challenge = {"WWW-Authenticate": f'Bearer realm="{asked.upstream.url}/token",{why}'}
    token = Answer(200, {"Content-Type": "application/json"}, b'{"token": "same"}')
    asked.upstream.auth, asked.upstream.secret = "bearer", ""  # everybody gets a token

    def script(each: Asked) -> Answer | None:
        if each.path == "/token":
            return token if gives_it_again else None
        return error(401, "UNAUTHORIZED", challenge) if "/manifests/" in each.path else None

    asked.upstream.script = script
    for anonymous, expected in ((True, for_anonymous), (False, with_credential)):
        remote = asked.remote("library/alpnie", anonymous=anonymous)
        for _ in range(2):
            asked.watch.failures.clear()
            with pytest.raises(expected):
                await asked.client.head_manifest(remote, "3")
            assert len(asked.watch.failures) == (expected is UpstreamRefused)
        # Without a token, and with it; then with it, and with another, if the realm gives one.
        looks = asked.upstream.asked_for("HEAD", "/manifests/3")
        assert len(looks) == (2 + 1 if gives_it_again else 2 + 2)
        asked.upstream.asked.clear()


@pytest.mark.parametrize(("status", "place"), [(401, "realm"), (403, "realm"), (403, "registry")])
async def test_a_repository_alone_is_refused(asked: Asking, status: int, place: str) -> None:
    """GHCR and others give no token for what is private or is not there, or answer 403."""
    asked.upstream.auth, asked.upstream.secret = "bearer", ""
    is_token = place == "realm"
    asked.upstream.script = lambda each: (
        error(status, "DENIED")
        if "alpnie" in each.target and (each.path == "/token") == is_token
        else None
    )
    remote, anonymous = (asked.remote("library/alpnie", anonymous=each) for each in (False, True))

    async def refused(of: Remote, expected: type[Exception]) -> None:
        asked.watch.failures.clear()
        with pytest.raises(expected) as found:
            await asked.client.head_manifest(of, "3")
        assert getattr(found.value, "http_status", None) == status
        assert len(asked.watch.failures) == (expected is UpstreamRefused)

    await refused(anonymous, HiddenUpstream)
    await refused(remote, UpstreamRefused)  # perhaps the credential is wrong
    asked.watch.accepts = "library/alpnie"  # it was good for this one, and is no more
    await refused(remote, UpstreamRefused)
    asked.watch.accepts = NAME
    await refused(remote, HiddenUpstream)
    assert await asked.client.ping(remote) == 200


async def test_an_upstream_that_wants_basic_refuses_who_has_none(asked: Asking) -> None:
    asked.upstream.auth = "basic"
    with pytest.raises(UpstreamRefused, match="wants a credential"):
        await asked.client.head_manifest(asked.remote(NAME, anonymous=True), "3")
    asked.watch.accepts = "another"
    asked.upstream.secret = "another"
    with pytest.raises(UpstreamRefused, match="refuses the request"):
        await asked.client.head_manifest(asked.remote(NAME), "3")
    with pytest.raises(UpstreamRefused, match="does not take the credential"):
        await asked.client.head_manifest(asked.remote(NAME), "3")
    assert len(asked.upstream.asked) == 1 + 2 + 1, "without, with it, and with what is known"


async def test_a_new_token_refused_for_no_repository_is_a_refusal(asked: Asking) -> None:
    asked.upstream.auth = "bearer"
    challenge = f'Bearer realm="{asked.upstream.url}/token",error="insufficient_scope"'
    asked.upstream.script = lambda each: (
        error(401, "NO", {"WWW-Authenticate": challenge}) if each.path == "/v2/" else None
    )
    with pytest.raises(UpstreamRefused, match="refuses the request"):
        await asked.client.ping(asked.remote())
    assert len(asked.upstream.asked_for("GET", "/v2/")) == 2
