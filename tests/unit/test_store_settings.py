"""Where the bytes of blobs are, by the settings, and what a bucket is found to refuse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from registry.blobstore.disk.store import FilesystemStore
from registry.blobstore.opening import make_folders, open_bucket_store, open_store
from registry.blobstore.s3.bucket import Bucket, BucketEntry, ObjectHead, Ranged
from registry.blobstore.s3.bucket_check import unsupported_calls
from registry.blobstore.s3.responses import KeyMissing
from registry.blobstore.s3.store import S3Store
from registry.blobstore.store import BlobStore
from registry.cli.server.setting_checks import refusals
from registry.oci.digest import digest_of
from registry.settings.reading import from_environment
from registry.settings.settings import Settings
from registry.settings.store import MOST_S3_BLOB_BYTES
from registry.settings.texts import SettingsError
from tests.contract.blob_stores import listed, new_id, write
from tests.s3_servers import credentials, settings_for

DEFAULTS = Settings(data=Path("here"))


def settings_of(**variables: str) -> Settings:
    environ = {f"ENTREPOT_STORE_S3_{name}": value for name, value in variables.items()}
    return from_environment(environ, DEFAULTS)


def test_a_limit_of_blobs_that_no_bucket_takes_is_refused_at_the_start() -> None:
    most = {"ENTREPOT_MAX_BLOB_BYTES": str(MOST_S3_BLOB_BYTES + 1)}
    assert from_environment(most, DEFAULTS).limits.max_blob_bytes > MOST_S3_BLOB_BYTES
    with pytest.raises(SettingsError, match=f"max_blob_bytes: .* {MOST_S3_BLOB_BYTES} bytes"):
        from_environment({"ENTREPOT_STORE_S3_BUCKET": "blobs", **most}, DEFAULTS)


def test_the_prefix_and_the_encryption_are_as_s3_takes_them() -> None:
    store = settings_of(BUCKET="blobs", PREFIX="teams/one", ENCRYPTION="aws:kms:alias/own").store
    assert store.key_prefix == "teams/one/"
    assert store.encryption_fields == {
        "ServerSideEncryption": "aws:kms",
        "SSEKMSKeyId": "alias/own",
    }
    assert settings_of(BUCKET="blobs").store.key_prefix == ""


def test_without_a_bucket_its_settings_are_not_looked_at() -> None:
    found = settings_of(REDIRECTS="false", PATH_STYLE="", ENCRYPTION="none").store
    assert found.store_s3_redirects == "false"  # type: ignore[comparison-overlap]


async def put(store: BlobStore) -> str:
    staged = await store.stage(new_id(), None)
    write(staged, b"bytes")
    object_id = staged.commit(digest_of(b"bytes")).object_id
    await staged.aclose()
    return object_id


async def test_the_settings_name_the_store(tmp_path: Path) -> None:
    on_disk = Settings(data=tmp_path / "data")
    async with open_bucket_store(on_disk) as store:
        assert isinstance(store, FilesystemStore)
    with credentials():
        in_bucket = replace(Settings(data=tmp_path / "other"), store=settings_for("moto"))
        make_folders(in_bucket)
        async with open_store(in_bucket) as blobs, open_bucket_store(in_bucket) as pieces:
            assert isinstance(blobs, S3Store)
            made = await put(blobs)
            assert await listed(pieces.list_objects()) == []
            await put(pieces)
            assert [each.object_id for each in await listed(blobs.list_objects())] == [made]
    assert not (tmp_path / "other").exists()


def test_a_bucket_is_tried_and_left_empty() -> None:
    with credentials():
        settings = settings_for("moto")
        with closing(Bucket(settings)) as bucket:
            assert list(unsupported_calls(bucket)) == []
            assert list(bucket.listed("")) == []
        with closing(Bucket(replace(settings, store_s3_bucket="absent"))) as bucket:
            (refusal,) = unsupported_calls(bucket)
            assert refusal == "the bucket does not store an object: NoSuchBucket"
        nowhere = replace(settings, store_s3_endpoint="http://127.0.0.1:9")
        with closing(Bucket(nowhere)) as bucket:
            (refusal,) = unsupported_calls(bucket)
            assert "does not answer" in refusal


def test_what_a_bucket_does_not_do_is_a_refusal_of_the_settings(tmp_path: Path) -> None:
    with credentials():
        in_bucket = replace(Settings(data=tmp_path), store=settings_for("moto"))
        assert list(refusals(in_bucket)) == []
        absent = replace(in_bucket.store, store_s3_bucket="absent")
        (refusal,) = refusals(replace(in_bucket, store=absent))
    assert refusal == "store_s3_bucket: the bucket does not store an object: NoSuchBucket"


class Other(Bucket):
    """A bucket that takes everything, and tells of other objects than it was given."""

    def put(self, key: str, body: bytes | bytearray, **_: Any) -> None:  # noqa: ANN401 - any options
        super().put(key, body)

    def head(self, key: str) -> ObjectHead:
        if key.endswith("-parts"):
            return super().head(key)._replace(token="")
        raise KeyMissing(key)

    def get(self, key: str, start: int, stop: int, etag: str = "") -> Ranged:
        return super().get(key, start + 1, stop + 1, etag)

    def listed(self, prefix: str) -> Iterator[BucketEntry]:
        yield from list(super().listed(prefix)) * 2


def test_a_bucket_that_keeps_other_than_it_was_given_is_refused() -> None:
    with credentials(), closing(Other(settings_for("moto"))) as bucket:
        refusals = [each.removeprefix("the bucket does not ") for each in unsupported_calls(bucket)]
        told, *others = refusals
        assert told.startswith("tell of an object: ")
        assert told.endswith(" says that it is absent, or another")
        assert others == [
            "read a range of an object: other bytes came",
            "refuse to store a second object of a key (If-None-Match): it was replaced",
            "list objects: it is not in the list",
            "store an object in parts: its metadata are lost",
        ]
        assert list(bucket.listed("")) == []
