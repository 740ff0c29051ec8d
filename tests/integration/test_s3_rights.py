"""Who may do what through S3: rights, sessions, keys, presigned requests, and the audit log."""

from __future__ import annotations

import pytest

from cloudcore.iam.patterns import Patterns, StepBudget
from cloudcore.storage.s3 import object_calls
from tests.integration.s3_client import S3Client, code_of, completion, deletion, texts, v1
from tests.s3_signing import with_header
from tests.tenants import Statement, allow, document


async def program(s3: S3Client, *statements: Statement) -> S3Client:
    """Return a client of another program of acme, with these rights."""
    return S3Client(s3.served, *await s3.served.add_program("other", *statements))


async def test_rights_are_asked_for_each_call(s3: S3Client) -> None:
    await s3.done("PUT", "/bucket/public/a", b"a")
    await s3.done("PUT", "/bucket/private/a", b"a")
    crn = f"crn:storage:local:{s3.served.acme.account_id}:bucket/bucket"
    actions = ("storage:GetObject", "storage:DeleteObject")
    reader = await program(s3, allow(*actions, on=f"{crn}/public/*"))
    assert (await reader.ask("GET", "/bucket/public/a")).content == b"a"
    for method, target in (
        ("GET", "/bucket/private/a"),
        ("HEAD", "/bucket/public/a?acl"),
        ("PUT", "/bucket/public/a"),
        ("GET", "/bucket"),
        ("GET", "/"),
        ("GET", "/bucket/public/a?uploadId=1"),
        ("PUT", "/other"),
        ("DELETE", "/bucket"),
        ("GET", "/none"),
    ):
        answer = await reader.ask(method, target)
        assert answer.status_code in (400, 403), (method, target)
        assert method == "HEAD" or code_of(answer) == "AccessDenied", (method, target)
    copy = {"x_amz_copy_source": "/bucket/private/a"}
    assert await reader.code("PUT", "/bucket/public/b", b"", **copy) == "AccessDenied"
    done = await reader.done("POST", "/bucket?delete", deletion("public/a", "private/a"))
    assert (texts(done, "Key"), texts(done, "Code")) == (
        ["private/a", "public/a"],
        ["AccessDenied"],
    )
    assert (await s3.ask("GET", "/bucket/private/a")).content == b"a"
    await v1(s3, "GET", "/v1/buckets/bucket/objects/private%2Fa")


async def test_a_copy_tells_who_may_not_read_its_source_nothing_of_it(s3: S3Client) -> None:
    """Neither of the object nor of the bucket; who may is told what is missing."""
    await s3.done("PUT", "/bucket/private", b"a")
    await s3.done("PUT", "/other")
    begun = await s3.begin("/bucket/parts")
    crn = f"crn:storage:local:{s3.served.acme.account_id}:bucket"
    readable = [allow("storage:GetObject", on=f"{crn}/{on}") for on in ("bucket/mine-*", "mine-*")]
    writer = await program(s3, allow("storage:PutObject"), *readable)
    for target in ("/bucket/copy", f"{begun}&partNumber=1"):
        for source, code in (
            ("/bucket/private", "AccessDenied"),
            ("/bucket/none", "AccessDenied"),
            ("/other/a", "AccessDenied"),
            ("/none/a", "AccessDenied"),
            ("/bucket-of-globex/key-of-globex", "AccessDenied"),
            ("/bucket/mine-none", "NoSuchKey"),
            ("/mine-none/a", "NoSuchBucket"),
            ("/no bucket's name/a", "NoSuchBucket"),
        ):
            found = await writer.code("PUT", target, b"", x_amz_copy_source=source)
            assert found == code, (target, source)


async def test_the_audit_log_has_each_refused_key_of_a_batch(s3: S3Client) -> None:
    crn = f"crn:storage:local:{s3.served.acme.account_id}:bucket/bucket"
    deleter = await program(s3, allow("storage:DeleteObject", on=f"{crn}/public/*"))
    await deleter.done("POST", "/bucket?delete", deletion("public/a", "b", "c"))
    await s3.served.auditor.flush()
    path = "/v1/audit-events?outcome=refused&action=storage:DeleteObject"
    (event,) = (await v1(s3, "GET", path)).json()["events"]
    assert (event["times"], event["resources"]) == (2, [f"{crn}/c"])


async def test_a_batch_tells_who_may_not_delete_nothing_of_the_bucket(s3: S3Client) -> None:
    """Whether or not there is one: who may is told that it is missing."""
    crn = f"crn:storage:local:{s3.served.acme.account_id}:bucket"
    deletable = ("elsewhere/*", "missing/mine/*")
    other = await program(
        s3, *(allow("storage:DeleteObject", on=f"{crn}/{on}") for on in deletable)
    )
    body = deletion("a")
    for bucket in ("bucket", "missing"):
        done = await other.done("POST", f"/{bucket}?delete", body)
        assert texts(done, "Code") == ["AccessDenied"], bucket
    assert await other.code("POST", "/missing?delete", deletion("mine/a")) == "NoSuchBucket"
    assert await other.code("POST", "/No_Name?delete", body) == "NoSuchBucket"


async def test_decisions_about_a_batch_of_keys_share_a_budget(
    s3: S3Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond it keys are refused, each with its reason, and nothing is lost."""
    owner = await program(s3, allow("storage:*"))
    for key in range(5):
        await s3.done("PUT", f"/bucket/{key}", b"x")
    work = StepBudget(10**6)
    Patterns(("*",)).match("crn:x", work)
    monkeypatch.setattr(object_calls, "_DELETION_STEPS", 2 * (10**6 - work.left) + 1)
    done = await owner.done("POST", "/bucket?delete", deletion(*"01234"))
    assert texts(done, "Key") == ["2", "3", "4", "0", "1"]
    assert texts(done, "Code") == ["AccessDenied"] * 3
    assert all("delete fewer objects at once" in (each or "") for each in texts(done, "Message"))
    assert [(await s3.ask("GET", f"/bucket/{key}")).status_code for key in range(5)] == (
        [404, 404, 200, 200, 200]
    )


async def test_a_revoked_role_session_stops_both_presentations_at_once(s3: S3Client) -> None:
    trust = document({"effect": "allow", "principals": [s3.served.acme.account_id]})
    role = {"name": "writer", "trust_policy": trust}
    made = (await v1(s3, "POST", "/v1/roles", role)).json()["role"]
    policy = {"name": "writes", "document": document(allow("storage:*"))}
    policy_id = (await v1(s3, "POST", "/v1/policies", policy)).json()["policy"]["id"]
    await v1(s3, "POST", f"/v1/policies/{policy_id}/attachments", {"role": "writer"})
    assumed = (await v1(s3, "POST", "/v1/assume-role", {"role": made["id"]})).json()
    session = S3Client(
        s3.served, assumed["access_key_id"], assumed["secret_access_key"], assumed["session_token"]
    )
    await session.done("PUT", "/bucket/key", b"by the role")
    url = session.presign("GET", "/bucket/key")  # without its token
    assert code_of(await s3.send(url)) == "InvalidToken"
    without = S3Client(s3.served, session.key_id, session.secret)
    assert await without.code("GET", "/bucket/key") == "InvalidToken"
    borrowed = S3Client(s3.served, s3.key_id, s3.secret, session.token)
    assert await borrowed.code("GET", "/bucket/key") == "InvalidToken"
    path, token = "/v1/buckets/bucket/objects/key", assumed["access_token"]
    assert (await v1(s3, "GET", path, token=token)).content == b"by the role"
    form = f"token={session.token}".encode()
    assert (await s3.served.submit("/v1/oauth/revoke", form)).is_success
    assert await session.code("GET", "/bucket/key") == "InvalidAccessKeyId"
    assert (await s3.served.ask("GET", path, token=token)).status_code == 401


async def test_keys_that_are_inactive_deleted_or_suspended_sign_nothing(s3: S3Client) -> None:
    other = await program(s3, allow("*"))
    await other.done("GET", "/")
    programs = (await v1(s3, "GET", "/v1/service-accounts?limit=200")).json()
    (made,) = [each for each in programs["service_accounts"] if each["name"] == "other"]
    path = f"/v1/service-accounts/{made['id']}"
    (key,) = (await v1(s3, "GET", f"{path}/access-keys")).json()["access_keys"]
    for at, off, on in (
        (path, {"status": "suspended"}, {"status": "active"}),
        (f"{path}/access-keys/{key['id']}", {"status": "inactive"}, {"status": "active"}),
    ):
        await v1(s3, "PATCH", at, off)
        assert await other.code("GET", "/") == "InvalidAccessKeyId"
        await v1(s3, "PATCH", at, on)
        await other.done("GET", "/")
    await v1(s3, "DELETE", f"{path}/access-keys/{key['id']}")
    assert await other.code("GET", "/") == "InvalidAccessKeyId"
    unknown = S3Client(s3.served, "AKNONE", s3.secret)
    assert await unknown.code("GET", "/") == "InvalidAccessKeyId"
    # A bearer token is no signature, nor is that a token.
    bearer = f"Bearer {s3.served.acme.program_token}"
    request = with_header(s3.sign("GET", "/bucket"), "authorization", bearer)
    assert code_of(await s3.send(request)) == "InvalidRequest"
    headers = s3.sign("GET", "/v1/buckets").headers
    signed = {name.decode(): value.decode() for name, value in headers if name != b"host"}
    assert (await s3.served.ask("GET", "/v1/buckets", headers=signed)).status_code == 401


async def test_a_change_of_a_bucket_is_in_the_audit_log(s3: S3Client) -> None:
    await s3.done("PUT", "/second")
    await s3.done("DELETE", "/second")
    answer = await v1(s3, "GET", "/v1/audit-events?limit=2")
    events = [(each["action"], each["outcome"]) for each in answer.json()["events"]]
    assert events == [("storage:DeleteBucket", "succeeded"), ("storage:CreateBucket", "succeeded")]
    # Uploads in parts are there too, as those of /v1; objects and parts are not.
    await s3.done("PUT", "/bucket/key", b"bytes")
    one, two = [await s3.begin("/bucket/key") for _ in range(2)]
    etag = (await s3.ask("PUT", f"{one}&partNumber=1", b"x")).headers["etag"]
    await s3.done("POST", one, completion((1, etag, "")))
    await s3.done("DELETE", two)
    assert await s3.code("DELETE", two) == "NoSuchUpload"
    ids = [each.rpartition("=")[2] for each in (one, two)]
    found = (await v1(s3, "GET", "/v1/audit-events?limit=4")).json()["events"]
    assert [(each["action"], each["details"].get("upload_id")) for each in reversed(found)] == [
        ("storage:PutObject", ids[0]),
        ("storage:PutObject", ids[1]),
        ("storage:PutObject", ids[0]),
        ("storage:AbortMultipartUpload", ids[1]),
    ]
    crn = f"crn:storage:local:{s3.served.acme.account_id}:bucket/bucket/key"
    assert all(each["resources"] == [crn] for each in found)
