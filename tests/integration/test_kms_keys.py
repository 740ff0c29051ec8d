"""``/v1/keys``: the life of a key, to the erasure of its material, and what it encrypts."""

from __future__ import annotations

import asyncio
import json
import threading
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from cloudcore.kms.chores import delete_due_keys
from cloudcore.kms.key import KEY, Key, KeySpec
from cloudcore.kms.rows import KeyVersion, count_versions, find_platform_key
from cloudcore.kms.services import MAX_VERSIONS, KeyMaker, rotate_key
from cloudcore.quotas.limits import EVERY_ACCOUNT, put_limit
from tests.integration.served_world import Served

DAY = 24 * 3600


async def ask(served: Served, method: str, path: str, body: object = None) -> httpx.Response:
    return await served.ask(method, f"/v1/keys{path}", body, token=served.acme.program_token)


async def key_of(served: Served, method: str, path: str, body: object = None) -> dict[str, Any]:
    answer = await ask(served, method, path, body)
    assert answer.is_success, (method, path, answer.text)
    return dict(answer.json()["key"])


async def conflict(served: Served, method: str, path: str) -> dict[str, Any]:
    answer = await ask(served, method, path)
    assert answer.status_code == 409, (method, path, answer.text)
    return dict(answer.json()["error"].get("params", {}))


async def test_a_key_is_made_shown_changed_and_listed(served: Served) -> None:
    tags = {"team": "web"}
    made = await ask(served, "POST", "", {"name": "app", "description": "Of app.", "tags": tags})
    key = made.json()["key"]
    assert made.status_code == 201
    assert made.headers["location"] == f"/v1/keys/{key['id']}"
    moments = {"created_at", "updated_at"}
    assert {name: value for name, value in key.items() if name not in {"id", *moments}} == {
        "crn": f"crn:kms:local:{served.acme.account_id}:key/app",
        "name": "app",
        "description": "Of app.",
        "key_spec": "aes-256",
        "key_usage": "encrypt_decrypt",
        "state": "enabled",
        "origin": "customer",
        "current_version": 1,
        "deletion_at": None,
        "tags": tags,
    }
    assert await key_of(served, "GET", f"/{key['id']}") == key
    changed = await key_of(served, "PATCH", f"/{key['id']}", {"tags": {}})
    assert changed == {**key, "tags": {}, "updated_at": changed["updated_at"]}
    listed = (await ask(served, "GET", "")).json()
    assert [each["name"] for each in listed["keys"]] == ["platform", "key", "app"]
    for state, found in (("enabled", [changed]), ("disabled", [])):
        assert (await ask(served, "GET", f"?name=app&state={state}")).json()["keys"] == found


_UNFIT_USAGE: Final = "key_usage", "not_allowed"
MALFORMED: Final[tuple[tuple[dict[str, Any], str, str], ...]] = (
    ({}, "name", "missing"),
    ({"name": "App"}, "name", "malformed"),
    ({"name": "01890000-0000-7000-8000-0000000000ff"}, "name", "malformed"),
    ({"name": "a" * 64}, "name", "out_of_range"),
    ({"name": "a", "key_spec": "aes-128"}, "key_spec", "not_allowed"),
    ({"name": "a", "key_usage": "sign_verify"}, *_UNFIT_USAGE),
    ({"name": "a", "key_spec": "hmac-256", "key_usage": "encrypt_decrypt"}, *_UNFIT_USAGE),
    ({"name": "a", "tags": {"": "x"}}, "tags", "malformed"),
    ({"name": "a", "tags": {"a": "\x07"}}, "tags", "malformed"),
)


async def test_a_malformed_key_is_refused(served: Served) -> None:
    for body, field, reason in MALFORMED:
        answer = await ask(served, "POST", "", body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["params"] == {"field": field, "reason": reason}


async def test_every_spec_and_usage_is_made(served: Served) -> None:
    wanted = {
        ("aes-256", None): "encrypt_decrypt",
        ("hmac-256", None): "generate_verify_mac",
        ("rsa-2048", None): "encrypt_decrypt",
        ("rsa-2048", "sign_verify"): "sign_verify",
        ("ecdsa-p256", "sign_verify"): "sign_verify",
    }
    for number, ((spec, usage), found) in enumerate(wanted.items()):
        body = {"name": f"k{number}", "key_spec": spec} | ({"key_usage": usage} if usage else {})
        key = await key_of(served, "POST", "", body)
        assert (key["key_spec"], key["key_usage"]) == (spec, found)


async def test_an_account_makes_one_slow_key_at_a_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another request is refused at once, also one of the same name; another account waits."""
    begun, go_on, made = asyncio.Event(), threading.Event(), []
    loop = asyncio.get_running_loop()

    def slow(spec: KeySpec) -> bytes:
        made.append(spec)
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(60)
        return bytes(32)

    monkeypatch.setattr("cloudcore.kms.services.new_material", slow)
    body = {"name": "slow", "key_spec": "rsa-4096"}
    first = asyncio.create_task(ask(served, "POST", "", body))
    await begun.wait()
    try:
        for name in ("slow", "other"):
            refused = await ask(served, "POST", "", {**body, "name": name})
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "5"
            assert refused.json()["error"]["code"] == "KEY_BEING_MADE"
            assert "x-ratelimit-limit" not in refused.headers
        token = served.globex.program_token
        other = asyncio.create_task(served.ask("POST", "/v1/keys", body, token=token))
    finally:
        go_on.set()
    assert ((await first).status_code, (await other).status_code) == (201, 201)
    assert made == ["rsa-4096"] * 2
    again = await ask(served, "POST", "", {**body, "name": "again"})
    assert again.status_code == 201


async def test_a_name_is_taken_until_the_key_is_deleted(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no material is made for a key that cannot be."""
    monkeypatch.setattr("cloudcore.kms.services.new_material", None)
    for name in ("key", "platform"):
        taken = await ask(served, "POST", "", {"name": name, "key_spec": "rsa-4096"})
        assert taken.status_code == 409
        assert taken.json()["error"]["params"] == {"name": name}


async def test_a_key_is_deleted_when_its_time_has_come(served: Served) -> None:
    key_id = served.acme.ids["/v1/keys/{}"]
    path, account_id = f"/{key_id}", served.acme.account_id
    await key_of(served, "POST", f"{path}/rotate")
    for days in ("6", "31", "x"):
        answer = await ask(served, "DELETE", f"{path}?pending_window_days={days}")
        assert answer.status_code == 400
    answer = await ask(served, "DELETE", f"{path}?pending_window_days=7")
    pending = answer.json()["key"]
    assert (answer.status_code, pending["state"]) == (202, "pending_deletion")
    for action in ("enable", "disable", "rotate", "generate-data-key"):
        await conflict(served, "POST", f"{path}/{action}")
    await conflict(served, "DELETE", path)
    await delete_due_keys(served.kms)
    assert await key_of(served, "GET", path) == pending
    served.clock.advance(7 * DAY)
    served.acme.program_token = served.fresh_token()
    late = await conflict(served, "POST", f"{path}/cancel-deletion")
    assert late["state"] == "pending_deletion"
    assert await served.database.read(count_versions, account_id, key_id) == 2
    await delete_due_keys(served.kms)
    assert await served.database.read(count_versions, account_id, key_id) == 0
    deleted = await key_of(served, "GET", path)
    gone = {"state": "deleted", "crn": None, "name": None, "updated_at": deleted["updated_at"]}
    assert deleted == {**pending, **gone}
    for action in ("enable", "disable", "rotate", "cancel-deletion"):
        assert await conflict(served, "POST", f"{path}/{action}") == {"state": "deleted"}
    assert await conflict(served, "DELETE", path) == {"state": "deleted"}
    for change in ({}, {"description": "New."}):
        refused = await ask(served, "PATCH", path, change)
        assert refused.status_code == 409, refused.text
        assert refused.json()["error"]["params"] == {"state": "deleted"}
    answer = await ask(served, "POST", f"{path}/generate-data-key")
    assert answer.status_code == 404
    assert answer.json()["error"]["params"] == {"reason": "key_not_found"}
    assert (await ask(served, "GET", f"{path}/versions")).json()["versions"] == []
    listed = (await ask(served, "GET", "?state=deleted")).json()["keys"]
    assert listed == [deleted]
    again = await key_of(served, "POST", "", {"name": "key"})
    assert again["id"] != key_id
    query, token = "/v1/audit-events?action=kms:DeleteKey", served.acme.program_token
    (event,) = (await served.ask("GET", query, token=token)).json()["events"]
    assert (event["principal"], event["resources"]) == (None, [pending["crn"]])
    assert event["details"] == {"key_id": key_id, "versions": 2}


async def test_a_deletion_is_cancelled_in_time(served: Served) -> None:
    path = f"/{served.acme.ids['/v1/keys/{}']}"
    assert await conflict(served, "POST", f"{path}/cancel-deletion") == {"state": "enabled"}
    await key_of(served, "DELETE", path)
    kept = await key_of(served, "POST", f"{path}/cancel-deletion")
    assert (kept["state"], kept["deletion_at"], kept["name"]) == ("disabled", None, "key")
    assert (await key_of(served, "POST", f"{path}/enable"))["state"] == "enabled"


async def test_a_key_is_disabled_and_enabled_and_the_platforms_stays(served: Served) -> None:
    path = f"/{served.acme.ids['/v1/keys/{}']}"
    for action in ("enable", "disable", "disable", "enable"):
        assert (await key_of(served, "POST", f"{path}/{action}"))["state"] == f"{action}d"
    platform = (await ask(served, "GET", "")).json()["keys"][0]
    path = f"/{platform['id']}"
    assert platform["origin"] == "platform"
    assert await conflict(served, "DELETE", path) == {"origin": "platform"}
    assert await conflict(served, "POST", f"{path}/disable") == {"origin": "platform"}
    assert (await key_of(served, "POST", f"{path}/rotate"))["current_version"] == 2


async def test_a_key_is_rotated(served: Served) -> None:
    path = f"/{served.acme.ids['/v1/keys/{}']}"
    for number in (2, 3):
        assert (await key_of(served, "POST", f"{path}/rotate"))["current_version"] == number
    first = (await ask(served, "GET", f"{path}/versions?limit=2")).json()
    rest = (await ask(served, "GET", f"{path}/versions?marker={first['meta']['marker']}")).json()
    versions = [*first["versions"], *rest["versions"]]
    found = [(each["version"], each["is_current"]) for each in versions]
    assert (len(first["versions"]), found) == (2, [(1, False), (2, False), (3, True)])
    for spec in ("hmac-256", "ecdsa-p256"):
        other = await key_of(served, "POST", "", {"name": spec, "key_spec": spec})
        assert (await ask(served, "POST", f"/{other['id']}/rotate")).status_code == 400


async def test_rotations_at_once_make_a_version_each(served: Served) -> None:
    path = f"/{served.acme.ids['/v1/keys/{}']}"
    made = await asyncio.gather(*(key_of(served, "POST", f"{path}/rotate") for _ in range(4)))
    assert sorted(key["current_version"] for key in made) == [2, 3, 4, 5]
    versions = (await ask(served, "GET", f"{path}/versions")).json()["versions"]
    assert [each["version"] for each in versions] == [1, 2, 3, 4, 5]


async def test_a_rotation_that_others_always_overtake_is_a_conflict(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what clients do, so it is no failure of the service."""
    new_version = KeyMaker.new_version

    async def overtaken(self: KeyMaker, key: Key, number: int, now: int) -> KeyVersion:
        version = await new_version(self, key, number, now)
        await served.database.write(rotate_key, version, now)
        return version

    monkeypatch.setattr(KeyMaker, "new_version", overtaken)
    answer = await ask(served, "POST", f"/{served.acme.ids['/v1/keys/{}']}/rotate")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "CONFLICT")


async def test_a_key_has_a_bounded_number_of_versions(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_VERSIONS == 1000
    monkeypatch.setattr("cloudcore.kms.services.MAX_VERSIONS", 2)
    path = f"/{served.acme.ids['/v1/keys/{}']}/rotate"
    assert (await key_of(served, "POST", path))["current_version"] == 2
    params = await conflict(served, "POST", path)
    assert params == {"reason": "too_many_versions", "limit": 2}


async def test_an_account_has_a_bounded_number_of_keys(served: Served) -> None:
    assert KEY.quota == 1000
    await served.database.write(put_limit, EVERY_ACCOUNT, "keys", 3, 1)
    await key_of(served, "POST", "", {"name": "third"})
    error = (await ask(served, "POST", "", {"name": "fourth"})).json()["error"]
    told = (error["code"], error["params"])
    assert told == ("QUOTA_EXCEEDED", {"quota": "keys", "limit": 3, "used": 3})


async def test_a_new_account_has_its_platform_key(served: Served) -> None:
    body = {"handle": "third", "organization": served.acme.organization_id}
    made = await served.make("/v1/accounts", body, token=served.acme.person_token)
    key = await served.database.read(find_platform_key, made["id"])
    assert key is not None
    assert (key.name, key.origin, key.state) == ("platform", "platform", "enabled")
    assert await served.database.read(count_versions, made["id"], key.id) == 1


SECRET = b"the plaintext of nobody else"


def encoded(value: bytes) -> str:
    return b64encode(value).decode()


async def use(
    served: Served, action: str, body: object = None, *, key_id: str = "", token: str = ""
) -> httpx.Response:
    path = f"/v1/keys/{key_id or served.acme.ids['/v1/keys/{}']}/{action}"
    return await served.ask("POST", path, body, token=token or served.acme.program_token)


async def used(served: Served, action: str, body: object = None) -> dict[str, Any]:
    answer = await use(served, action, body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_what_is_encrypted_is_decrypted_by_every_later_version(served: Served) -> None:
    first = await used(served, "encrypt", {"plaintext": encoded(SECRET)})
    assert SECRET not in b64decode(first["ciphertext"])
    await used(served, "rotate")
    second = await used(served, "encrypt", {"plaintext": encoded(SECRET)})
    assert (first["key_version"], second["key_version"]) == (1, 2)
    for number, each in ((1, first), (2, second)):
        opened = await used(served, "decrypt", {"ciphertext": each["ciphertext"]})
        assert opened == {"plaintext": encoded(SECRET), "key_version": number}
    data_key = await used(served, "generate-data-key")
    assert len(b64decode(data_key["plaintext"])) == 32
    opened = await used(served, "decrypt", {"ciphertext": data_key["ciphertext"]})
    assert opened["plaintext"] == data_key["plaintext"]


async def test_a_plaintext_has_1_to_4096_bytes(served: Served) -> None:
    longest = encoded(bytes(4096))
    sealed = await used(served, "encrypt", {"plaintext": longest})
    opened = await used(served, "decrypt", {"ciphertext": sealed["ciphertext"]})
    assert opened["plaintext"] == longest
    for length in (4097, 4098, 5000):
        answer = await use(served, "encrypt", {"plaintext": encoded(bytes(length))})
        params = {"field": "plaintext", "reason": "out_of_range"}
        assert (answer.status_code, answer.json()["error"]["params"]) == (400, params)


NOT_BASE64 = ("", "YQ", "YQ=", "YR==", "YQ==\n", " YQ==", "YQ==YQ==", "_-8=", "Y Q==", "é===")


async def test_base64_has_one_spelling(served: Served) -> None:
    for text in NOT_BASE64:
        for action, field in (("encrypt", "plaintext"), ("decrypt", "ciphertext")):
            answer = await use(served, action, {field: text})
            params = {"field": field, "reason": "malformed"}
            assert (answer.status_code, answer.json()["error"]["params"]) == (400, params), text


async def test_what_another_key_or_nobody_encrypted_is_refused(served: Served) -> None:
    sealed = b64decode((await used(served, "encrypt", {"plaintext": "YQ=="}))["ciphertext"])
    other = await served.make("/v1/keys", {"name": "o"}, token=served.acme.program_token)
    account = served.acme.account_id
    wrapped = await served.kms.vault.wrap(account, served.acme.ids["/v1/keys/{}"], SECRET, b"")
    wrong = [
        *(sealed[:-1], sealed + b"\0", bytes([2]) + sealed[1:]),
        sealed[:4] + bytes([9]) + sealed[5:],
        *(sealed[:1] + version + sealed[5:] for version in (b"\xff" * 4, bytes(4))),
        *(sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :] for at in (5, 17, 33)),
        b"x",
        wrapped,
    ]
    expected = {"field": "ciphertext", "reason": "not_of_this_key"}
    for each in wrong:
        answer = await use(served, "decrypt", {"ciphertext": encoded(each)})
        assert (answer.status_code, answer.json()["error"]["params"]) == (400, expected)
    answer = await use(served, "decrypt", {"ciphertext": encoded(sealed)}, key_id=other["id"])
    assert (answer.status_code, answer.json()["error"]["params"]) == (400, expected)


async def test_a_key_that_cannot_be_used_says_why(served: Served) -> None:
    token = served.acme.program_token
    mac = await served.make("/v1/keys", {"name": "m", "key_spec": "hmac-256"}, token=token)
    pair = await served.make("/v1/keys", {"name": "e", "key_spec": "ecdsa-p256"}, token=token)
    off = await served.make("/v1/keys", {"name": "off"}, token=token)
    await use(served, "disable", key_id=off["id"])
    for key_id, status, reason in (
        (mac["id"], 400, "key_not_for_encryption"),
        (pair["id"], 400, "key_not_symmetric"),
        (off["id"], 409, "key_disabled"),
        (served.globex.ids["/v1/keys/{}"], 404, "key_not_found"),
        ("nonsense", 404, None),
    ):
        for action, body in (
            ("encrypt", {"plaintext": "YQ=="}),
            ("decrypt", {"ciphertext": "YQ=="}),
            ("generate-data-key", None),
        ):
            answer = await use(served, action, body, key_id=key_id)
            error = answer.json()["error"]
            assert (answer.status_code, error.get("params", {}).get("reason")) == (status, reason)


async def data_key_under_one_idempotency_key(served: Served) -> httpx.Response:
    path = f"/v1/keys/{served.acme.ids['/v1/keys/{}']}/generate-data-key"
    headers = {"Idempotency-Key": "once"}
    return await served.ask("POST", path, token=served.acme.program_token, headers=headers)


async def test_a_data_key_is_never_handed_out_again(served: Served) -> None:
    """Not by a repeated idempotency key either, after which a disabled key would still be open."""
    first, second = [await data_key_under_one_idempotency_key(served) for _ in range(2)]
    assert first.json()["plaintext"] != second.json()["plaintext"]
    await used(served, "disable")
    refused = await data_key_under_one_idempotency_key(served)
    reason = refused.json()["error"]["params"]["reason"]
    assert (refused.status_code, reason) == (409, "key_disabled")
    events = await served.ask(
        "GET", "/v1/audit-events?action=kms:UseKey", token=served.acme.program_token
    )
    assert len(events.json()["events"]) == 2


async def test_no_secret_is_kept_or_told(
    served: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in the database (also not with an idempotency key), nor in the log or the audit."""
    token = served.acme.program_token
    made = await data_key_under_one_idempotency_key(served)
    data_key = made.json()["plaintext"]
    await used(served, "encrypt", {"plaintext": encoded(SECRET)})
    refused = await use(served, "encrypt", {"plaintext": encoded(SECRET) + "="})
    events = await served.ask("GET", "/v1/audit-events?action=kms:*", token=token)
    uses = [each["details"]["use"] for each in events.json()["events"] if "use" in each["details"]]
    assert uses == ["encrypt", "generate_data_key"]
    kept = b"".join(each.read_bytes() for each in (tmp_path / "data").glob("metadata.db*"))
    for secret in (SECRET, b64decode(data_key)):
        text = encoded(secret)
        for place in (kept, refused.content, events.content, caplog.text.encode()):
            assert secret not in place
            assert text.encode() not in place
            assert json.dumps(text).encode() not in place
