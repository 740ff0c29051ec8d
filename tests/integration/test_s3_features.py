"""What programs of AWS look for: versions, regions, access lists, configurations, and forms."""

from __future__ import annotations

from hashlib import md5
from pathlib import Path
from typing import Any, Final
from xml.etree.ElementTree import fromstring

import pytest

from cloudcore.storage import buckets
from cloudcore.storage.bucket import STORAGE_CLASSES, Bucket
from cloudcore.storage.needs import StorageNeeds
from cloudcore.storage.s3 import bucket_calls
from cloudcore.storage.s3.signature import SignedRequest
from tests.databases import on_both_databases
from tests.integration.s3_client import HOST, S3Client, client_of, code_of, texts, v1
from tests.integration.served_world import open_served
from tests.s3_signing import signed

ALL_TRUE: Final = (
    b"<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls><IgnorePublicAcls>true"
    b"</IgnorePublicAcls><BlockPublicPolicy>true</BlockPublicPolicy><RestrictPublicBuckets>true"
    b"</RestrictPublicBuckets></PublicAccessBlockConfiguration>"
)


async def test_every_object_has_the_version_null(s3: S3Client) -> None:
    for key in ("a", "b%2F1", "b%2F2", "c"):
        await s3.done("PUT", f"/bucket/{key}", key.encode())
    found = await s3.done("GET", "/bucket?versions")
    assert found.tag.endswith("}ListVersionsResult")
    assert texts(found, "Key") == ["a", "b/1", "b/2", "c"]
    assert texts(found, "VersionId") == ["null"] * 4
    assert texts(found, "IsLatest") == ["true"] * 4
    assert texts(found, "ETag")[0] == f'"{md5(b"a").hexdigest()}"'
    assert texts(found, "ID") == [s3.served.acme.account_id] * 4
    markers = ""
    for shown, marker in ((["a"], "a"), (["b/"], "b/"), (["c"], "")):
        page = await s3.done("GET", f"/bucket?versions&max-keys=1&delimiter=/{markers}")
        assert [each for each in texts(page, "Key") + texts(page, "Prefix") if each] == shown
        assert texts(page, "NextKeyMarker") == ([marker] if marker else [])
        versions = texts(page, "NextVersionIdMarker")
        assert versions == (["null"] if marker == "a" else [])
        markers = f"&key-marker={marker}" + "".join(f"&version-id-marker={v}" for v in versions)
    assert await s3.code("GET", "/bucket?versions&version-id-marker=null") == "InvalidArgument"
    assert (await s3.ask("GET", "/bucket/c?versionId=null")).content == b"c"
    assert (await s3.ask("HEAD", "/bucket/c?versionId=null")).status_code == 200
    assert await s3.code("GET", "/bucket/c?versionId=1") == "NoSuchVersion"
    listed = "".join(
        f"<Object><Key>{key}</Key><VersionId>null</VersionId></Object>" for key in ("a", "b/1")
    )
    await s3.done("POST", "/bucket?delete", f"<Delete>{listed}</Delete>".encode())
    for key in ("b%2F2", "c"):
        await s3.done("DELETE", f"/bucket/{key}?versionId=null")
    assert texts(await s3.done("GET", "/bucket?versions"), "Key") == []
    await s3.done("DELETE", "/bucket")


def _elsewhere(s3: S3Client, method: str, target: str, region: str = "us-east-1") -> SignedRequest:
    """Return a request that is signed for another region."""
    date, scope = s3.now()
    return signed(
        method,
        target,
        payload="UNSIGNED-PAYLOAD",
        date=date,
        scope=f"{scope[:8]}/{region}/s3/aws4_request",
        key_id=s3.key_id,
        secret=s3.secret,
    )


async def test_the_first_region_is_taken_for_what_finds_buckets(s3: S3Client) -> None:
    """Clients ask in it where a bucket is, before they know."""
    for method, target in (("GET", "/"), ("PUT", "/second"), ("GET", "/bucket?location")):
        assert (await s3.send(_elsewhere(s3, method, target))).status_code == 200, target
    other = _elsewhere(s3, "GET", "/bucket?location", region="eu-west-1")
    assert code_of(await s3.send(other)) == "AuthorizationHeaderMalformed"
    for method, target in (("GET", "/bucket"), ("DELETE", "/second"), ("PUT", "/bucket/key")):
        answer = await s3.send(_elsewhere(s3, method, target))
        assert code_of(answer) == "AuthorizationHeaderMalformed", target
        assert answer.headers["x-amz-bucket-region"] == "local"
        assert texts(fromstring(answer.content), "Region") == ["local"]


async def test_who_makes_a_bucket_again_is_refused_except_in_the_first_region(
    s3: S3Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await s3.code("PUT", "/bucket") == "BucketAlreadyOwnedByYou"
    monkeypatch.setattr(bucket_calls, "_NO_REGION", ("", "local"))
    await s3.done("PUT", "/bucket/key", b"bytes")
    await s3.done("PUT", "/bucket")
    assert (await s3.ask("GET", "/bucket/key")).content == b"bytes"


async def test_a_setting_takes_every_region(tmp_path: Path, metadata_url: str) -> None:
    options: dict[str, Any] = {"s3_host": HOST, "s3_any_region": "on"}
    async with open_served(tmp_path / "data", metadata_url, **options) as served:
        s3 = client_of(served, served.acme)
        where = b"<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint>"
        await s3.done("PUT", "/bucket", where + b"</CreateBucketConfiguration>")
        put = _elsewhere(s3, "PUT", "/bucket/key", region="eu-west-1")
        assert (await s3.send(put, b"bytes")).status_code == 200
        got = await s3.send(_elsewhere(s3, "GET", "/bucket/key", region="x"))
        assert got.content == b"bytes"
        location = fromstring((await s3.ask("GET", "/bucket?location")).content)
        assert location.text == "local"
        forged = _elsewhere(s3, "GET", "/bucket/key")
        forged = forged._replace(raw_path=b"/bucket/other")
        assert code_of(await s3.send(forged)) == "SignatureDoesNotMatch"


async def test_the_owners_full_control_is_taken_and_no_other_list(s3: S3Client) -> None:
    own = s3.served.acme.account_id
    await s3.done("PUT", "/bucket/key", b"x")
    grant = (
        "<AccessControlPolicy><Owner><ID>{0}</ID></Owner><AccessControlList><Grant><Grantee>"
        "<ID>{1}</ID></Grantee><Permission>{2}</Permission></Grant></AccessControlList>"
        "</AccessControlPolicy>"
    )
    acl, full = "x_amz_acl", "x_amz_grant_full_control"
    everybody = 'uri="http://acs.amazonaws.com/groups/global/AllUsers"'
    taken = [{acl: each} for each in ("private", "bucket-owner-full-control")]
    taken += [{full: f"id={own}"}, {full: f'id="{own}"'}]
    refused = [{acl: each} for each in ("public-read", "bucket-owner-read")]
    refused += [{full: each} for each in ("id=somebody", f"id={own},id=somebody", everybody)]
    refused.append({"x_amz_grant_read": f"id={own}"})
    code = "AccessControlListNotSupported"
    for target in ("/bucket?acl", "/bucket/key?acl", "/bucket/other", "/bucket/parts?uploads"):
        method = "POST" if target.endswith("uploads") else "PUT"
        for headers in taken:
            assert (await s3.ask(method, target, b"", **headers)).status_code == 200, headers
        for headers in refused:
            assert await s3.code(method, target, b"", **headers) == code, headers
    for target in ("/bucket?acl", "/bucket/key?acl"):
        await s3.done("PUT", target, grant.format(own, own, "FULL_CONTROL").encode())
        for given in ((own, own, "READ"), (own, "x", "FULL_CONTROL"), ("x", "x", "FULL_CONTROL")):
            assert await s3.code("PUT", target, grant.format(*given).encode()) == code, given
    created = await s3.code("PUT", "/new", x_amz_object_ownership="ObjectWriter")
    assert created == code
    await s3.done("PUT", "/new", x_amz_object_ownership="BucketOwnerEnforced")


@on_both_databases
async def test_all_names_of_storage_classes_are_taken(s3: S3Client) -> None:
    for name in STORAGE_CLASSES:
        await s3.done("PUT", "/bucket/key", b"x", x_amz_storage_class=name)
        assert texts(await s3.done("GET", "/bucket"), "StorageClass") == [name]
        await s3.done("POST", "/bucket/parts?uploads", x_amz_storage_class=name)
        await v1(
            s3, "POST", "/v1/buckets/bucket/multipart-uploads", {"key": "a", "storage_class": name}
        )
    for name in ("COLD", "standard", ""):
        assert await s3.code("PUT", "/bucket/key", b"x", x_amz_storage_class=name) == (
            "InvalidStorageClass"
        )


LACKING: Final = (
    ("/bucket?lifecycle", "NoSuchLifecycleConfiguration"),
    ("/bucket?object-lock", "ObjectLockConfigurationNotFoundError"),
    ("/bucket?policy", "NoSuchBucketPolicy"),
    ("/bucket?policyStatus", "NoSuchBucketPolicy"),
    ("/bucket?replication", "ReplicationConfigurationNotFoundError"),
    ("/bucket?tagging", "NoSuchTagSet"),
    ("/bucket?website", "NoSuchWebsiteConfiguration"),
    ("/bucket?inventory&id=a", "NoSuchConfiguration"),
    ("/bucket?cors", "NoSuchCORSConfiguration"),
    ("/bucket/key?legal-hold", "InvalidRequest"),
    ("/bucket/key?retention", "InvalidRequest"),
    ("/bucket/none?legal-hold", "NoSuchKey"),
    ("/none?logging", "NoSuchBucket"),
)


async def test_what_a_bucket_lacks_has_its_own_code(s3: S3Client) -> None:
    await s3.done("PUT", "/bucket/key", b"x")
    for target, code in LACKING:
        assert await s3.code("GET", target) == code, target


async def test_what_every_bucket_has_is_told_and_taken_back(s3: S3Client) -> None:
    roots = {}
    for query in (
        *("accelerate", "analytics", "intelligent-tiering", "inventory", "logging", "metrics"),
        *("notification", "ownershipControls", "publicAccessBlock", "requestPayment"),
        *("versioning", "encryption"),
    ):
        answer = await s3.ask("GET", f"/bucket?{query}")
        assert answer.status_code == 200, answer.text
        document = fromstring(answer.content)
        roots[query] = document.tag.rpartition("}")[2]
        if roots[query].startswith("List"):
            assert texts(document, "IsTruncated") == ["false"]
            continue
        assert (await s3.ask("PUT", f"/bucket?{query}", answer.content)).status_code == 200, query
        more = answer.content.replace(
            b"</" + roots[query].encode(), b"<X>1</X></" + roots[query].encode()
        )
        assert await s3.code("PUT", f"/bucket?{query}", more) == "NotImplemented", query
    assert roots["logging"] == "BucketLoggingStatus"
    assert roots["accelerate"] == "AccelerateConfiguration"
    shown = await s3.done("GET", "/bucket?publicAccessBlock")
    assert {each.tag.rpartition("}")[2]: each.text for each in shown} == dict.fromkeys(
        ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"),
        "true",
    )
    await s3.done("PUT", "/bucket?publicAccessBlock", ALL_TRUE)
    less = ALL_TRUE.replace(b"true", b"false", 1)
    assert await s3.code("PUT", "/bucket?publicAccessBlock", less) == "NotImplemented"
    code = await s3.code("DELETE", "/bucket?publicAccessBlock")
    assert code == "NoSuchPublicAccessBlockConfiguration"
    for query in ("lifecycle", "policy", "replication", "website"):
        assert (await s3.ask("DELETE", f"/bucket?{query}")).status_code == 204
    lock = b"<ObjectLockConfiguration/>"
    assert await s3.code("PUT", "/bucket?object-lock", lock) == "InvalidBucketState"


async def test_tags_are_the_same_on_both_presentations(s3: S3Client) -> None:
    tags = "<Tag><Key>a</Key><Value>b</Value></Tag><Tag><Key>c d</Key><Value/></Tag>"
    body = f"<CreateBucketConfiguration><Tags>{tags}</Tags></CreateBucketConfiguration>"
    await s3.done("PUT", "/tagged", body.encode())
    found = await s3.done("GET", "/tagged?tagging")
    assert (texts(found, "Key"), texts(found, "Value")) == (["a", "c d"], ["b", ""])
    shown = (await v1(s3, "GET", "/v1/buckets/tagged")).json()["bucket"]
    assert shown["tags"] == {"a": "b", "c d": ""}
    put = f"<Tagging><TagSet>{tags.replace('>b<', '>e<')}</TagSet></Tagging>"
    assert (await s3.ask("PUT", "/tagged?tagging", put.encode())).status_code == 204
    shown = (await v1(s3, "GET", "/v1/buckets/tagged")).json()["bucket"]
    assert shown["tags"] == {"a": "e", "c d": ""}
    many = "".join(f"<Tag><Key>{n}</Key><Value/></Tag>" for n in range(51))
    put = f"<Tagging><TagSet>{many}</TagSet></Tagging>"
    assert await s3.code("PUT", "/tagged?tagging", put.encode()) == "InvalidTag"
    await v1(s3, "PATCH", "/v1/buckets/tagged", {"tags": {"x": "y"}})
    assert texts(await s3.done("GET", "/tagged?tagging"), "Key") == ["x"]
    assert (await s3.ask("DELETE", "/tagged?tagging")).status_code == 204
    assert await s3.code("GET", "/tagged?tagging") == "NoSuchTagSet"
    await s3.served.auditor.flush()
    path = "/v1/audit-events?action=storage:UpdateBucket&outcome=succeeded"
    assert len((await v1(s3, "GET", path)).json()["events"]) == 3
    headers = {"x-amz-tagging": "a=b&c=d%20e", "x-amz-storage-class": "GLACIER_IR"}
    path = "/v1/buckets/bucket/objects/key"
    await v1(s3, "PUT", path, b"bytes", headers=headers)
    found = await s3.done("GET", "/bucket/key?tagging")
    assert (texts(found, "Key"), texts(found, "Value")) == (["a", "c"], ["b", "d e"])
    assert (await s3.ask("HEAD", "/bucket/key")).headers["x-amz-storage-class"] == "GLACIER_IR"


async def test_sealing_is_told_as_it_is(s3: S3Client) -> None:
    header, key_id = "x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id"
    asked = {"x_amz_server_side_encryption": "AES256"}
    answers = [
        await s3.ask("PUT", "/bucket/key", b"x" * 20_000, **asked),
        await s3.ask("HEAD", "/bucket/key"),
        await s3.ask("GET", "/bucket/key"),
        await s3.ask("PUT", "/bucket/copy", b"", x_amz_copy_source="/bucket/key", **asked),
        await s3.ask("POST", "/bucket/parts?uploads", b"", **asked),
    ]
    assert [each.headers.get(header) for each in answers] == ["AES256"] * 5
    shown = await s3.done("GET", "/bucket?encryption")
    assert (texts(shown, "SSEAlgorithm"), texts(shown, "KMSMasterKeyID")) == (["AES256"], [])
    assert (await s3.ask("DELETE", "/bucket?encryption")).status_code == 204
    assert await s3.code("GET", "/bucket/key", b"", **asked) == "InvalidArgument"
    (upload,) = texts(fromstring(answers[-1].content), "UploadId")
    part = f"/bucket/parts?uploadId={upload}&partNumber="
    for number, more in (("1", {}), ("2", {"x_amz_copy_source": "/bucket/key"})):
        answer = await s3.ask("PUT", part + number, b"", **more)
        assert answer.headers.get(header) == "AES256", number
    key = (await v1(s3, "POST", "/v1/keys", {"name": "photos"})).json()["key"]
    await v1(s3, "PATCH", "/v1/buckets/bucket", {"kms_key": "photos"})
    shown = await s3.done("GET", "/bucket?encryption")
    assert (texts(shown, "SSEAlgorithm"), texts(shown, "KMSMasterKeyID")) == (
        ["aws:kms"],
        [key["crn"]],
    )
    assert await s3.code("DELETE", "/bucket?encryption") == "NotImplemented"
    answer = await s3.ask("PUT", "/bucket/key", b"y")
    assert (answer.headers[header], answer.headers[key_id]) == ("aws:kms", key["id"])


async def test_nothing_is_said_to_be_sealed_where_it_is_not(
    tmp_path: Path, metadata_url: str
) -> None:
    async with open_served(tmp_path / "data", metadata_url, s3_host=HOST, sealing="off") as served:
        s3 = client_of(served, served.acme)
        await s3.done("PUT", "/bucket")
        await s3.done("PUT", "/bucket/key", b"x")
        for method in ("GET", "HEAD"):
            answer = await s3.ask(method, "/bucket/key")
            assert "x-amz-server-side-encryption" not in answer.headers
        code = await s3.code("GET", "/bucket?encryption")
        assert code == "ServerSideEncryptionConfigurationNotFoundError"
        asked = {"x_amz_server_side_encryption": "AES256"}
        assert await s3.code("PUT", "/bucket/key", b"x", **asked) == "NotImplemented"


@on_both_databases
async def test_open_uploads_end_with_their_bucket(
    s3: S3Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "_ENDED_AT_ONCE", 2)
    for presentation in ("s3", "v1"):
        for number in range(5):
            part = await s3.begin(f"/bucket/{number}")
            await s3.done("PUT", f"{part}&partNumber=1", b"x" * 20_000)
        await s3.done("PUT", "/bucket/key", b"x")
        assert await s3.code("DELETE", "/bucket") == "BucketNotEmpty"
        assert len(texts(await s3.done("GET", "/bucket?uploads"), "UploadId")) == 5
        await s3.done("DELETE", "/bucket/key")
        if presentation == "s3":
            await s3.done("DELETE", "/bucket")
            assert await s3.code("GET", "/bucket") == "NoSuchBucket"
            await s3.done("PUT", "/bucket")
        else:
            await v1(s3, "DELETE", "/v1/buckets/bucket")
    assert await s3.code("GET", "/bucket") == "NoSuchBucket"
    await s3.served.auditor.flush()
    path = "/v1/audit-events?action=storage:DeleteBucket&outcome=succeeded"
    assert len((await v1(s3, "GET", path)).json()["events"]) == 2


@on_both_databases
async def test_an_upload_that_begins_while_its_bucket_is_deleted_is_what_keeps_it(
    s3: S3Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_uploads = buckets.end_uploads

    async def end_and_begin(needs: StorageNeeds, bucket: Bucket) -> None:
        await end_uploads(needs, bucket)
        await s3.done("POST", "/bucket/new?uploads")

    monkeypatch.setattr(buckets, "end_uploads", end_and_begin)
    answer = await s3.ask("DELETE", "/bucket")
    words = "uploads began in the bucket while it was deleted; delete it again"
    assert (answer.status_code, code_of(answer)) == (409, "BucketNotEmpty")
    assert texts(fromstring(answer.content), "Message") == [words]
    token = s3.served.acme.program_token
    answer = await s3.served.ask("DELETE", "/v1/buckets/bucket", token=token)
    assert (answer.status_code, answer.json()["error"]["message"]) == (409, words)
    monkeypatch.undo()
    await s3.done("DELETE", "/bucket")


async def test_keys_of_a_batch_may_be_conditional_on_etags(s3: S3Client) -> None:
    etags = [(await s3.ask("PUT", f"/bucket/{key}", key.encode())).headers["etag"] for key in "abc"]
    listed = "".join(
        f"<Object><Key>{key}</Key><ETag>{etag}</ETag></Object>"
        for key, etag in zip("abcd", (etags[0], '"other"', etags[2].strip('"'), "x"), strict=True)
    )
    done = await s3.done("POST", "/bucket?delete", f"<Delete>{listed}</Delete>".encode())
    assert texts(done, "Key") == ["b", "d", "a", "c"]
    assert texts(done, "Code") == ["PreconditionFailed", "NoSuchKey"]
    assert texts(await s3.done("GET", "/bucket"), "Key") == ["b"]


async def test_a_presigned_request_may_be_conditional_on_etags(s3: S3Client) -> None:
    etag = (await s3.ask("PUT", "/bucket/key", b"x")).headers["etag"]
    for method, name, value, status in (
        ("GET", b"if-none-match", etag, 304),
        ("PUT", b"if-none-match", "*", 412),
        ("PUT", b"if-match", '"other"', 412),
        ("DELETE", b"if-match", '"other"', 412),
        ("PUT", b"if-match", etag, 200),
        ("DELETE", b"if-match", etag, 412),
        ("DELETE", b"if-match", "*", 204),
    ):
        presigned = s3.presign(method, "/bucket/key")
        sent = presigned._replace(headers=[*presigned.headers, (name, value.encode())])
        assert (await s3.send(sent, b"y")).status_code == status, (method, name)
