"""Forms of web pages that store objects: their policy, their fields, and how they are answered."""

from __future__ import annotations

from base64 import b64encode
from hashlib import md5
from typing import Any
from xml.etree.ElementTree import fromstring

import httpx

from cloudcore.quotas.limits import put_limit
from cloudcore.storage.bucket import BUCKET_BYTES
from cloudcore.storage.bucket_rows import BYTES
from cloudcore.storage.s3.signature import SignedRequest
from tests.integration.s3_client import S3Client, code_of, texts
from tests.s3_forms import CONTENT_TYPE, form_body, signed_form
from tests.tenants import allow


async def _post(
    s3: S3Client,
    fields: dict[str, str],
    file: bytes = b"the file",
    conditions: list[Any] | None = None,
    **more: Any,  # noqa: ANN401
) -> httpx.Response:
    """Send a form; its conditions are by default its fields and the bucket."""
    date, scope = s3.now()
    named = [{"bucket": "bucket"}, *({name: value} for name, value in fields.items())]
    form = signed_form(
        fields,
        named if conditions is None else conditions,
        expiration=more.pop("expiration", "2099-01-01T00:00:00Z"),
        key_id=s3.key_id,
        secret=more.pop("secret", s3.secret),
        date=more.pop("date", date),
        scope=more.pop("scope", scope),
        token=s3.token,
    )
    form |= more.pop("changed", {})
    headers = [(b"host", s3.host.encode()), (b"content-type", CONTENT_TYPE.encode())]
    headers += more.pop("headers", [])
    request = SignedRequest("POST", more.pop("path", b"/bucket"), b"", headers)
    return await s3.send(request, form_body(form, file, **more))


async def test_a_form_stores_its_file(s3: S3Client) -> None:
    fields = {
        "key": "user/${filename}",
        "Content-Type": "text/x-own",
        "x-amz-meta-colour": "blau, grün",
        "x-amz-storage-class": "STANDARD_IA",
        "acl": "private",
        "tagging": "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>",
    }
    conditions = [
        {"bucket": "bucket"},
        ["starts-with", "$key", "user/"],
        *({name: value} for name, value in fields.items() if name != "key"),
        ["content-length-range", 1, 100],
    ]
    answer = await _post(s3, fields, b"\r\n--the file", conditions, filename="C:\\é.txt")
    assert answer.status_code == 204, answer.text
    assert answer.headers["location"] == "http://s3.example/bucket/user/%C3%A9.txt"
    got = await s3.ask("GET", "/bucket/user%2F%C3%A9.txt")
    assert got.content == b"\r\n--the file"
    assert got.headers["etag"] == answer.headers["etag"]
    assert got.headers["content-type"] == "text/x-own"
    assert got.headers["x-amz-storage-class"] == "STANDARD_IA"
    assert got.headers["x-amz-meta-colour"].startswith("=?utf-8?b?")
    assert texts(await s3.done("GET", "/bucket/user%2F%C3%A9.txt?tagging"), "Key") == ["a"]
    large = bytes(range(256)) * 5000
    assert (await _post(s3, {"key": "large"}, large, after="submit")).status_code == 204
    assert (await s3.ask("GET", "/bucket/large")).content == large
    assert (await _post(s3, {"key": "empty"}, b"")).status_code == 204
    assert (await s3.ask("GET", "/bucket/empty")).content == b""


async def test_a_form_says_how_it_is_answered(s3: S3Client) -> None:
    answer = await _post(s3, {"key": "a b", "success_action_status": "201"})
    assert answer.status_code == 201
    document = fromstring(answer.content)
    assert (texts(document, "Bucket"), texts(document, "Key")) == (["bucket"], ["a b"])
    assert texts(document, "ETag") == [answer.headers["etag"]]
    assert texts(document, "Location") == ["http://s3.example/bucket/a%20b"]
    answer = await _post(s3, {"key": "a", "success_action_status": "200"})
    assert (answer.status_code, answer.content) == (200, b"")
    answer = await _post(s3, {"key": "a", "success_action_status": "500"})
    assert answer.status_code == 204
    target = "https://a.example/done?x=1"
    answer = await _post(s3, {"key": "a&b", "success_action_redirect": target})
    etag = answer.headers["etag"].replace('"', "%22")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"{target}&bucket=bucket&key=a%26b&etag={etag}"
    for bad in ("javascript:alert(1)", "https://a.example/\r\nx: y", ""):
        answer = await _post(s3, {"key": "a", "success_action_redirect": bad})
        assert answer.status_code == 204, bad


async def test_a_form_that_is_not_as_its_policy_says_stores_nothing(s3: S3Client) -> None:
    fields = {"key": "a"}
    date, scope = s3.now()
    own = [{"bucket": "bucket"}, {"key": "a"}]
    old = str(int(date[:4]) - 1) + date[4:]
    tried: list[tuple[str, dict[str, Any]]] = [
        ("AccessDenied", {"conditions": [{"key": "a"}]}),
        ("AccessDenied", {"conditions": [{"bucket": "bucket"}, {"key": "b"}]}),
        ("AccessDenied", {"conditions": [{"bucket": "other"}, {"key": "a"}]}),
        ("AccessDenied", {"changed": {"x-amz-meta-a": "b"}}),
        ("AccessDenied", {"changed": {"success_action_redirect": "https://evil.example"}}),
        ("AccessDenied", {"expiration": "2020-01-01T00:00:00Z"}),
        ("AccessDenied", {"date": old, "scope": old[:8] + scope[8:]}),
        ("InvalidArgument", {"changed": {"bucket": "other"}}),
        ("InvalidArgument", {"changed": {"x-amz-algorithm": "AWS4-ECDSA-P256-SHA256"}}),
        ("InvalidArgument", {"changed": {"x-amz-meta-a": "b\r\nc"}}),
        ("InvalidArgument", {"scope": scope.replace("/local/", "/eu-west-1/")}),
        ("SignatureDoesNotMatch", {"secret": "another"}),
        ("SignatureDoesNotMatch", {"changed": {"policy": "e30="}}),
        ("SignatureDoesNotMatch", {"changed": {"x-amz-signature": "0" * 64}}),
        ("InvalidAccessKeyId", {"changed": {"x-amz-credential": f"AKNONE/{scope}"}}),
        ("InvalidToken", {"changed": {"x-amz-security-token": "t"}}),
        ("InvalidRequest", {"changed": {"AWSAccessKeyId": s3.key_id, "signature": "x"}}),
        ("EntityTooLarge", {"conditions": [*own, ["content-length-range", 0, 7]]}),
        ("EntityTooSmall", {"conditions": [*own, ["content-length-range", 9, 10]]}),
        ("InvalidPolicyDocument", {"conditions": [*own, ["like", "$key", "a"]]}),
    ]
    for code, more in tried:
        assert code_of(await _post(s3, fields, **more)) == code, more
    assert code_of(await _post(s3, {"x-amz-meta-a": "b"})) == "InvalidArgument"
    named = {"key": "${filename}"}
    assert code_of(await _post(s3, named, filename="a\0b")) == "InvalidArgument"
    assert code_of(await _post(s3, {"key": "a", "acl": "public-read"})) == (
        "AccessControlListNotSupported"
    )
    wrong = {"key": "a", "x-amz-checksum-crc32": "AAAAAA=="}
    assert code_of(await _post(s3, wrong)) == "BadDigest"
    assert code_of(await _post(s3, fields, path=b"/none")) == "AccessDenied"
    headers = [(b"host", b"s3.example"), (b"content-type", CONTENT_TYPE.encode())]
    unsigned = SignedRequest("POST", b"/bucket", b"", headers)
    undated = form_body({"key": "a", "policy": "e30="}, b"x")
    assert code_of(await s3.send(unsigned, undated)) == "InvalidArgument"
    assert code_of(await s3.send(unsigned, form_body({"key": "a"}, b"x"))) == "AccessDenied"
    assert texts(await s3.done("GET", "/bucket"), "Key") == []
    answer = await _post(s3, {"key": "a", "x-amz-checksum-algorithm": "CRC32"})
    crc = "x-amz-checksum-crc32"
    assert (await _post(s3, {"key": "a", crc: answer.headers[crc]})).status_code == 204


async def test_a_form_is_bound_by_what_binds_a_put(s3: S3Client) -> None:
    """Its fields are headers: tags, digests and conditions are not less for coming in a form."""
    await s3.done("PUT", "/bucket/a", b"before")
    tags = "".join(f"<Tag><Key>{n}</Key><Value>v</Value></Tag>" for n in range(11))
    long = f"<Tag><Key>{'k' * 129}</Key><Value>v</Value></Tag>"
    odd = "<Tag><Key>k</Key><Value>a&lt;b</Value></Tag>"
    for each in (tags, long, odd):
        tagging = {"key": "a", "tagging": f"<Tagging><TagSet>{each}</TagSet></Tagging>"}
        assert code_of(await _post(s3, tagging)) == "InvalidTag", each
    for value, code in (("AAAAAAAAAAAAAAAAAAAAAA==", "BadDigest"), ("AAAA", "InvalidDigest")):
        assert code_of(await _post(s3, {"key": "a", "Content-MD5": value})) == code
    for name, value in (("If-None-Match", "*"), ("If-Match", '"other"')):
        refused = await _post(s3, {"key": "a", name: value})
        assert code_of(refused) == "PreconditionFailed", name
    sha1 = {"x-amz-checksum-algorithm": "SHA1", "x-amz-checksum-crc32": "AAAAAA=="}
    assert code_of(await _post(s3, {"key": "a"} | sha1)) == "BadDigest"
    assert (await s3.ask("GET", "/bucket/a")).content == b"before"
    right = b64encode(md5(b"the file").digest()).decode()
    fields = {"key": "b", "Content-MD5": right, "If-None-Match": "*"}
    assert (await _post(s3, fields)).status_code == 204


async def test_what_follows_the_file_of_a_form_takes_no_quota(s3: S3Client) -> None:
    account, database = s3.served.acme.account_id, s3.served.database
    held = (await database.read(BYTES.read, account)).used
    await database.write(put_limit, account, BUCKET_BYTES.name, held + 1000, s3.served.clock.now)
    answer = await _post(s3, {"key": "fits"}, b"x" * 1000, after="submit")
    assert answer.status_code == 204, answer.text
    assert code_of(await _post(s3, {"key": "a"}, b"x")) == "QuotaExceeded"


async def test_a_form_whose_key_comes_out_empty_is_authorized_on_an_object(s3: S3Client) -> None:
    """Never on the bucket: such a key is as malformed as one that is too long."""
    conditions = [{"bucket": "bucket"}, ["starts-with", "$key", ""]]
    crn = f"crn:storage:local:{s3.served.acme.account_id}:bucket/bucket"
    for on, code in ((crn, "AccessDenied"), (f"{crn}/*", "KeyTooLongError")):
        rights = allow("storage:PutObject", on=on)
        other = S3Client(s3.served, *await s3.served.add_program(code.lower(), rights))
        fields = {"key": "${filename}"}
        answer = await _post(other, fields, conditions=conditions, filename="")
        assert code_of(answer) == code, on
    assert texts(await s3.done("GET", "/bucket"), "Key") == []


async def test_a_web_page_may_send_a_form_as_the_rules_of_cors_say(s3: S3Client) -> None:
    rule = (
        b"<CORSConfiguration><CORSRule><AllowedOrigin>https://a.example</AllowedOrigin>"
        b"<AllowedMethod>POST</AllowedMethod><ExposeHeader>ETag</ExposeHeader></CORSRule>"
        b"</CORSConfiguration>"
    )
    await s3.done("PUT", "/bucket?cors", rule)
    for origin, allowed in ((b"https://a.example", "https://a.example"), (b"https://b", None)):
        answer = await _post(s3, {"key": "a"}, headers=[(b"origin", origin)])
        assert answer.status_code == 204
        assert answer.headers.get("access-control-allow-origin") == allowed
    refused = await _post(s3, {"key": "a"}, secret="x", headers=[(b"origin", b"https://a.example")])
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (
        403,
        "https://a.example",
    )
