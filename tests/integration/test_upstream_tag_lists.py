"""The tags that an upstream lists, not without end; and the test of a rule's upstream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from cloudcore.keyring import KEY_BYTES, Keyring, KeyringError
from registry.metadata.pull_through.cache_rule import CacheRule
from registry.oci.manifest import MAX_BYTES
from registry.oci.reference import Name
from registry.services.pull_through.remote import (
    ImageToTest,
    UpstreamTest,
    ask_upstream,
    credential_of,
    no_credential,
    seal_secret,
)
from registry.upstream import lists
from registry.upstream.base import (
    HiddenUpstream,
    ListedTags,
    NotUpstream,
    UpstreamBroken,
    UpstreamRefused,
    UpstreamUnreachable,
)
from tests.scripted_upstream import Answer, Asked, End, ScriptedUpstream, error
from tests.upstream_world import CANARY, NOW, Asking, asking, rule_of

NAME: Final = "library/alpine"
JSON: Final = {"Content-Type": "application/json"}


@pytest.fixture
async def asked() -> AsyncIterator[Asking]:
    with asking() as asked:
        for number in range(7):
            asked.upstream.add_image(NAME, f"{number}", b"layer")
        yield asked


def page(*names: object, link: str | None = None) -> Answer:
    headers = {**JSON, "Link": f'<{link}>; rel="next"'} if link else JSON
    return Answer(200, headers, json.dumps({"name": NAME, "tags": names}).encode())


async def listed(asked: Asking, *, anonymous: bool = True) -> ListedTags:
    return await asked.client.list_tags(asked.remote(NAME, anonymous=anonymous))


async def test_pages_are_joined(asked: Asking) -> None:
    for most in (100, 7, 3, 1):
        asked.upstream.most_tags = most
        asked.upstream.asked.clear()
        assert await listed(asked) == ([str(number) for number in range(7)], True)
        assert len(asked.upstream.asked) == -(-7 // most)


async def test_an_upstream_that_takes_no_n_is_asked_without(asked: Asking) -> None:
    asked.upstream.script = lambda each: (
        error(400, "PAGINATION_NUMBER_INVALID") if "n=1000" in each.target else None
    )
    assert len((await listed(asked)).names) == 7
    assert asked.watch.failures == []


@pytest.mark.parametrize("status", [400, 404, 405, 501])
async def test_an_upstream_without_lists_has_none(asked: Asking, status: int) -> None:
    asked.upstream.script = lambda _: error(status, "UNSUPPORTED")
    with pytest.raises(NotUpstream):
        await listed(asked)
    assert asked.watch.failures == []


async def test_what_no_tag_can_be_is_left_out_and_what_is_no_list_is_a_fault(
    asked: Asking,
) -> None:
    odd = ("1", "a/b", "", "x" * 129, "-a", "a b", "ä", "1", "a\nb")
    asked.upstream.script = lambda _: page(*odd)
    assert await listed(asked) == (["1"], True)
    asked.upstream.script = lambda _: Answer(200, JSON, b'{"name": "x", "tags": null}')
    assert await listed(asked) == ([], True)
    for number, body in enumerate((b"<html>", b"[]", b'{"tags": 3}', b'{"tags": [1]}', b""), 1):
        asked.upstream.script = lambda _, sent=body: Answer(200, JSON, sent)  # type: ignore[misc]
        with pytest.raises(UpstreamBroken, match="no list"):
            await listed(asked)
        assert len(asked.watch.failures) == number


async def test_a_page_that_breaks_off_is_a_failure_and_no_shorter_list(asked: Asking) -> None:
    asked.upstream.script = lambda _: Answer(
        200, JSON | {"Content-Length": "100"}, (b"{", End.CLOSE)
    )
    with pytest.raises(UpstreamUnreachable):
        await listed(asked)
    assert len(asked.watch.failures) == 1


async def test_pages_without_end_are_cut(asked: Asking) -> None:
    asked.upstream.script = lambda each: page(
        str(len(asked.upstream.asked)), link=f"{each.path}?last={len(asked.upstream.asked)}"
    )
    found = await listed(asked)
    assert not found.is_whole
    assert len(found.names) == len(asked.upstream.asked) == lists.MAX_PAGES


async def test_a_million_tags_are_cut(asked: Asking) -> None:
    names = [f"2026.01.02-{number:010}" for number in range(150_000)]
    asked.upstream.script = lambda _: page(*names)
    found = await listed(asked)
    assert not found.is_whole
    assert sum(len(name) + 1 for name in found.names) <= lists.MAX_NAMES_BYTES
    assert found.names == names[: len(found.names)]
    asked.upstream.script = lambda _: Answer(200, JSON, b" " * (MAX_BYTES + 1))
    assert await listed(asked) == ([], False)
    assert asked.watch.failures == []


async def test_a_slow_upstream_is_asked_for_no_more_pages(
    asked: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MAX_SECONDS", 0)
    asked.upstream.most_tags = 3
    assert await listed(asked) == (["0", "1", "2"], False)


@pytest.mark.parametrize(
    "link", ["https://elsewhere.example/v2/x/tags/list", "/v2/another/tags/list?last=1"]
)
async def test_a_page_elsewhere_is_not_asked_for_and_the_list_is_cut(
    asked: Asking, link: str
) -> None:
    asked.upstream.script = lambda _: page("1", link=link)
    assert await listed(asked) == (["1"], False)
    assert len(asked.upstream.asked) == 1


async def test_who_may_pull_may_perhaps_not_list(asked: Asking) -> None:
    """As a robot of Harbor: that is no fault of the credential, if it was accepted."""

    def script(each: Asked) -> Answer | None:
        return error(403, "DENIED") if each.path.endswith("/tags/list") else None

    asked.upstream.script = script
    with pytest.raises(UpstreamRefused):
        await listed(asked, anonymous=False)
    asked.watch.accepts = NAME
    with pytest.raises(HiddenUpstream):
        await listed(asked, anonymous=False)


KEYRING: Final = Keyring(b"k" * KEY_BYTES)
ALPINE: Final = ImageToTest(Name("acme", "hub/library/alpine"), "3")


def rule(origin: str, **fields: Any) -> CacheRule:  # noqa: ANN401
    known: dict[str, Any] = {
        "id": "rule",
        "upstream_url": origin,
        "username": "user",
        "secret_sealed": seal_secret(KEYRING, "rule", CANARY),
    }
    return rule_of("", **known | fields)


async def probed(asked: Asking, wanted: ImageToTest | None = ALPINE, **fields: Any) -> UpstreamTest:  # noqa: ANN401
    found = rule(asked.upstream.url, **fields)
    return await ask_upstream(
        asked.client, lambda each: credential_of(KEYRING, each), found, wanted, lambda: NOW
    )


def upstream_with(secret: str) -> ScriptedUpstream:
    """Return an upstream with an image for the user of the rule, by a secret."""
    upstream = ScriptedUpstream(auth="bearer", username="user", secret=secret)
    upstream.add_image("library/alpine", "3", b"layer")
    return upstream


async def test_an_image_is_found_and_nothing_is_pulled() -> None:
    with asking(upstream_with(CANARY)) as asked:
        assert await probed(asked) == UpstreamTest(
            ok=True,
            stage="manifest",
            http_status=200,
            latency_ms=0,
            message="library/alpine:3 is there",
        )
        answers = await probed(asked, None)
        assert (answers.ok, answers.stage, answers.http_status) == (True, "auth", 200)
        missing = await probed(asked, ALPINE._replace(tag="4"))
        assert (missing.ok, missing.stage, missing.http_status) == (False, "manifest", 404)
        assert "library/alpine:4" in missing.message
        assert not asked.upstream.asked_for("GET", "/v2/library/alpine/manifests/3")
        realm = f'Bearer realm="{asked.upstream.url}/token",error="insufficient_scope"'
        refusal = error(401, "UNAUTHORIZED", {"WWW-Authenticate": realm})
        asked.upstream.script = lambda each: refusal if "/manifests/" in each.path else None
        hidden = await probed(asked)
    assert (hidden.ok, hidden.stage, hidden.http_status) == (False, "manifest", 401)
    assert hidden.message.endswith("or does not show it to the user user")


async def test_a_wrong_credential_fails_at_auth_and_is_not_told() -> None:
    with asking(upstream_with("another")) as asked:
        refused = await probed(asked)
        assert (refused.ok, refused.stage) == (False, "auth")
        assert CANARY not in refused.message
        broken = await probed(asked, secret_sealed=seal_secret(KEYRING, "another", CANARY))
        assert (broken.ok, broken.stage, broken.http_status) == (False, "auth", None)


def test_a_secret_of_another_rule_does_not_open() -> None:
    with pytest.raises(KeyringError):
        credential_of(KEYRING, rule("https://quay.io", id="other"))


async def test_a_host_that_is_not_there_fails_before_that() -> None:
    with asking() as asked:
        gone = await probed(asked, upstream_url="https://registry.invalid")
        assert (gone.ok, gone.stage, gone.http_status) == (False, "dns", None)
        inside = await probed(asked, upstream_url="https://127.0.0.1:1")
        assert not inside.ok
        assert inside.http_status is None
    answer = await ask_upstream(None, no_credential, rule("https://quay.io"), None, lambda: NOW)
    assert (answer.ok, answer.message) == (False, "this server asks no upstreams")
