"""Encrypt, decrypt and make data keys over ``/v1/keys``; what is secret stays so."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.served_world import Served

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


MALFORMED = ("", "YQ", "YQ=", "YR==", "YQ==\n", " YQ==", "YQ==YQ==", "_-8=", "Y Q==", "é===")


async def test_base64_has_one_spelling(served: Served) -> None:
    for text in MALFORMED:
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
        sealed[:-1],
        sealed + b"\0",
        bytes([2]) + sealed[1:],
        sealed[:4] + bytes([9]) + sealed[5:],
        sealed[:1] + b"\xff" * 4 + sealed[5:],
        sealed[:1] + bytes(4) + sealed[5:],
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
