"""The test of a rule's upstream says how far it came, whatever the upstream answers."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cloudcore.keyring import KEY_BYTES, Keyring, KeyringError
from registry.metadata.pull_through.rules import CacheRule
from registry.oci.reference import Name
from registry.services.pull_through.remote import (
    Probed,
    Wanted,
    ask_upstream,
    credential_of,
    no_credential,
    seal_secret,
)
from tests.scripted_upstream import ScriptedUpstream, error
from tests.upstream_world import CANARY, NOW, Asking, asking

KEYRING: Final = Keyring(b"k" * KEY_BYTES)
ALPINE: Final = Wanted(Name("acme", "hub/library/alpine"), "3")


def rule(origin: str, **fields: Any) -> CacheRule:  # noqa: ANN401
    known: dict[str, Any] = dict.fromkeys(CacheRule._fields) | {
        "id": "rule",
        "prefix": "hub",
        "upstream_url": origin,
        "upstream_prefix": "",
        "username": "user",
        "secret_sealed": seal_secret(KEYRING, "rule", CANARY),
    }
    return CacheRule(**known | fields)


async def probed(asked: Asking, wanted: Wanted | None = ALPINE, **fields: Any) -> Probed:  # noqa: ANN401
    found = rule(asked.upstream.url, **fields)
    return await ask_upstream(
        asked.client, lambda each: credential_of(KEYRING, each), found, wanted, lambda: NOW
    )


async def test_an_image_is_found_and_nothing_is_pulled() -> None:
    upstream = ScriptedUpstream(auth="bearer", username="user", secret=CANARY)
    upstream.add_image("library/alpine", "3", b"layer")
    with asking(upstream) as asked:
        assert await probed(asked) == Probed(True, "manifest", 200, 0, "library/alpine:3 is there")
        answers = await probed(asked, None)
        assert (answers.ok, answers.stage, answers.http_status) == (True, "auth", 200)
        missing = await probed(asked, ALPINE._replace(tag="4"))
        assert (missing.ok, missing.stage, missing.http_status) == (False, "manifest", 404)
        assert "library/alpine:4" in missing.message
        assert not upstream.asked_for("GET", "/v2/library/alpine/manifests/3")


async def test_an_image_that_is_not_shown_is_told_apart() -> None:
    upstream = ScriptedUpstream(auth="bearer", username="user", secret=CANARY)
    with asking(upstream) as asked:
        realm = f'Bearer realm="{upstream.url}/token",error="insufficient_scope"'
        refusal = error(401, "UNAUTHORIZED", {"WWW-Authenticate": realm})
        upstream.script = lambda each: refusal if "/manifests/" in each.path else None
        hidden = await probed(asked)
    assert (hidden.ok, hidden.stage, hidden.http_status) == (False, "manifest", 401)
    assert hidden.message.endswith("or does not show it to the user user")


async def test_a_wrong_credential_fails_at_auth_and_is_not_told() -> None:
    upstream = ScriptedUpstream(auth="bearer", username="user", secret="another")
    upstream.add_image("library/alpine", "3", b"layer")
    with asking(upstream) as asked:
        refused = await probed(asked)
        assert (refused.ok, refused.stage) == (False, "auth")
        assert CANARY not in refused.message
        broken = await probed(asked, secret_sealed=KEYRING.seal(b"x", "another rule"))
        assert (broken.ok, broken.stage, broken.http_status) == (False, "auth", None)


async def test_a_host_that_is_not_there_fails_before_that() -> None:
    with asking() as asked:
        gone = await probed(asked, upstream_url="https://registry.invalid")
        assert (gone.ok, gone.stage, gone.http_status) == (False, "dns", None)
        inside = await probed(asked, upstream_url="https://127.0.0.1:1")
        assert not inside.ok
        assert inside.http_status is None


async def test_without_upstreams_it_says_so() -> None:
    found = rule("https://quay.io")
    answer = await ask_upstream(None, no_credential, found, None, lambda: NOW)
    assert (answer.ok, answer.message) == (False, "this server asks no upstreams")


def test_a_secret_of_another_rule_does_not_open() -> None:
    with pytest.raises(KeyringError):
        credential_of(KEYRING, rule("https://quay.io", id="other"))
