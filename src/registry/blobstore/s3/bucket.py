"""Calls to S3: one bucket, below one key prefix, in bounded time.

Only this module and `responses` use boto3. Every part and object is sent with its CRC32C, which the
server checks before it stores the bytes.
"""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, TypeVar

from registry.blobstore.s3.responses import (
    MISSING,
    Circuit,
    HeadNotFound,
    KeyMissing,
    OutsideObject,
    StoreRefused,
    answered,
    check_document,
)
from registry.errors import StoreUnavailable
from registry.settings.store import StoreSettings

DELETED_AT_ONCE: Final = 1000
"""Keys in one ``DeleteObjects``, the maximum in S3."""
_ATTEMPTS: Final = 2
_CONNECTIONS: Final = 64
_UNKNOWN: Final = frozenset({"NotImplemented", "501"})
_CALLS: Final = {
    "ListMultipartUploads": "list_multipart_uploads",
    "ListObjectsV2": "list_objects_v2",
}
T = TypeVar("T")

_making: Final = threading.Lock()
"""boto3's sessions are not safe for threads; its clients are."""


class BotoMissing(Exception):
    """The package boto3 is not installed."""

    def __init__(self) -> None:
        super().__init__("a store in S3 needs the package boto3: pip install 'entrepot[s3]'")


class ObjectHead(NamedTuple):
    """The headers of an object in a bucket."""

    size: int
    etag: str
    modified: datetime
    token: str
    """The token of the writer (`Bucket.put`); empty if it passed none."""
    replaces: str = ""
    """The token of the object, at another key, that this object replaces (`Bucket.put`)."""


class BucketEntry(NamedTuple):
    """An object in a listing."""

    key: str
    size: int
    modified: datetime


class Begun(NamedTuple):
    """A multipart upload that has not ended."""

    key: str
    upload: str
    begun: datetime


class Part(NamedTuple):
    """A part of a multipart upload, as sent."""

    etag: str
    checksum: str


class Ranged(NamedTuple):
    """A range of an object, whose bytes are still being received."""

    body: Any
    """botocore's stream."""
    length: int
    """Number of bytes in the range; fewer than requested if the object ends before."""
    size: int
    """The size of the whole object."""
    etag: str


def crc32c(body: bytes | bytearray) -> str:
    """Return the CRC32C of `body` in base64, as S3 expects it."""
    from awscrt import checksums  # noqa: PLC0415 - a native library, for those who need it

    return b64encode(checksums.crc32c(body).to_bytes(4, "big")).decode()


class Bucket:
    """A bucket below a key prefix. Calls block, from any thread, and raise `StoreUnavailable`."""

    def __init__(self, settings: StoreSettings, prefix: str = "") -> None:
        """Use the bucket in the settings; `prefix` follows the key prefix in the settings.

        Raise `BotoMissing` if boto3 is not installed.
        """
        if find_spec("boto3") is None:
            raise BotoMissing
        self.settings: Final = settings
        self.prefix: Final = settings.key_prefix + prefix
        self._client: Any = None
        self._circuit = Circuit()
        self._sealing = settings.encryption_fields
        self._is_conditional = True
        self._place = {"Bucket": settings.store_s3_bucket}

    @property
    def client(self) -> Any:  # noqa: ANN401 - boto3 makes the class
        """Return boto3's client, created at the first call: forked processes must not share it."""
        with _making:
            if self._client is None:
                self._client = self._made()
            return self._client

    def _made(self) -> Any:  # noqa: ANN401 - boto3 makes the class
        from botocore.config import Config  # noqa: PLC0415

        settings = self.settings
        style = "path" if settings.store_s3_path_style == "on" else "auto"
        config = Config(
            connect_timeout=settings.store_s3_connect_seconds,
            read_timeout=settings.store_s3_read_seconds,
            retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
            max_pool_connections=_CONNECTIONS,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": style},
            signature_version="s3v4",  # of presigned URLs too
        )
        client = _session().client(
            "s3",
            endpoint_url=settings.store_s3_endpoint or None,
            region_name=settings.store_s3_region or None,
            config=config,
        )
        client.meta.events.register("before-parse.s3", check_document)
        return client

    def close(self) -> None:
        """Close the connections."""
        with _making:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def head(self, key: str) -> ObjectHead:
        """Return the headers of an object; raise `KeyMissing` if it is absent.

        For objects that should exist: if the object is absent, this makes a second request.
        """
        try:
            return self._head(key)
        except HeadNotFound:
            found = self.find(key)
        if found is None:
            raise KeyMissing(key)
        return found

    def find(self, key: str) -> ObjectHead | None:
        """Return the headers of an object, or None if it is absent.

        This requests the first byte: errors of ``HeadObject`` have no body, so they do not
        distinguish a missing key from a missing bucket.
        """
        try:
            with self._asking("GetObject"):
                found = self.client.get_object(**self._named(key), Range="bytes=0-0")
                size = found.get("ContentRange", "").rpartition("/")[2]
                if found["ContentLength"] == 1:
                    found["Body"].read()
                else:  # this S3 knows no ranges
                    found["Body"].close()
                return _head_of(found, int(size or found["ContentLength"]))
        except OutsideObject:  # it is empty
            return self._head(key)
        except KeyMissing:
            return None

    def _head(self, key: str) -> ObjectHead:
        with self._asking("HeadObject"):
            found = self.client.head_object(**self._named(key))
            return _head_of(found, found["ContentLength"])

    def get(self, key: str, start: int, stop: int, etag: str = "") -> Ranged:
        """Begin to read the range ``[start, stop)``, cut at the end of the object.

        Raises:
            KeyMissing: the object is absent.
            KeyExists: the object has another ETag than `etag`.
            OutsideObject: the object has no byte at `start` or after it.

        """
        same = {"IfMatch": etag} if etag else {}
        with self._asking("GetObject"):
            found = self.client.get_object(
                **self._named(key), Range=f"bytes={start}-{stop - 1}", **same
            )
            etag, count = found["ETag"], found["ContentLength"]
        size = found.get("ContentRange", "").rpartition("/")[2]
        if not size.isdigit():  # the response has the whole object, which may be too much
            size = str(count)
            if start or count > stop:
                found["Body"].close()
                raise StoreUnavailable("the blob store gives no ranges of objects")
        return Ranged(found["Body"], count, int(size), etag)

    def read(self, key: str) -> bytes:
        """Return all bytes of a small object; raise `KeyMissing` if it is absent."""
        with self._asking("GetObject"):
            found = self.client.get_object(**self._named(key))
            _ = found["ETag"]
            return bytes(found["Body"].read())

    def presigned(self, key: str, seconds: int) -> str:
        """Return a URL at which anybody can read the object for `seconds`; never log it.

        This makes no request, but may renew credentials that expire.
        """
        shown = {**self._named(key), "ResponseContentType": "application/octet-stream"}
        with answered("to sign", Circuit()):
            return str(
                self.client.generate_presigned_url("get_object", Params=shown, ExpiresIn=seconds)
            )

    def put(
        self,
        key: str,
        body: bytes | bytearray,
        *,
        is_new: bool = False,
        token: str = "",
        replaces: str = "",
    ) -> None:
        """Store a whole object; with `is_new`, raise `KeyExists` if the key already has one.

        `token` is stored with the object, to recognize its writer later. `replaces` is the token of
        an object at another key, which this object replaces and which the caller then deletes.
        """
        fields: dict[str, Any] = {"ChecksumCRC32C": crc32c(body), **self._sealing}
        about = {"hold": token, "replaces": replaces}
        fields["Metadata"] = {name: each for name, each in about.items() if each}
        if is_new and self._is_conditional:
            try:
                self._put(key, body, {"IfNoneMatch": "*", **fields})
            except StoreRefused as error:
                if error.code not in _UNKNOWN:
                    raise
                self._is_conditional = False  # this S3 knows no conditions
            else:
                return
        self._put(key, body, fields)

    def _put(self, key: str, body: bytes | bytearray, fields: Mapping[str, Any]) -> None:
        with self._asking("PutObject"):
            _ = self.client.put_object(**self._named(key), Body=body, **fields)["ETag"]

    def begin(self, key: str, token: str) -> str:
        """Begin a multipart upload; return its id."""
        with self._asking("CreateMultipartUpload"):
            begun = self.client.create_multipart_upload(
                **self._named(key),
                ChecksumAlgorithm="CRC32C",
                Metadata={"hold": token},
                **self._sealing,
            )
            return str(begun["UploadId"])

    def send_part(self, key: str, upload: str, number: int, body: bytes | bytearray) -> Part:
        """Send a part, numbered from 1; raise KeyMissing if the upload has ended."""
        checksum = crc32c(body)
        with self._asking("UploadPart"):
            sent = self.client.upload_part(
                **self._named(key),
                UploadId=upload,
                PartNumber=number,
                Body=body,
                ChecksumCRC32C=checksum,
            )
            etag = sent["ETag"]
        if sent.get("ChecksumCRC32C", checksum) != checksum:
            raise StoreUnavailable("the blob store has kept other bytes than were sent")
        return Part(etag, checksum)

    def complete(self, key: str, upload: str, parts: Sequence[Part]) -> None:
        """Complete a multipart upload from its parts; raise KeyMissing if the upload has ended."""
        listed = [
            {"PartNumber": number, "ETag": part.etag, "ChecksumCRC32C": part.checksum}
            for number, part in enumerate(parts, 1)
        ]
        with self._asking("CompleteMultipartUpload"):
            self.client.complete_multipart_upload(
                **self._named(key), UploadId=upload, MultipartUpload={"Parts": listed}
            )

    def abort(self, key: str, upload: str) -> None:
        """Abort a multipart upload and delete its parts; do nothing if it has already ended."""
        with suppress(KeyMissing), self._asking("AbortMultipartUpload"):
            self.client.abort_multipart_upload(**self._named(key), UploadId=upload)

    def begun(self, prefix: str) -> Iterator[Begun]:
        """Yield the multipart uploads in progress to keys that begin with `prefix`."""
        return self._paged(
            "ListMultipartUploads",
            prefix,
            lambda page: [
                Begun(each["Key"][len(self.prefix) :], each["UploadId"], each["Initiated"])
                for each in page.get("Uploads", ())
            ],
            lambda page: {
                "KeyMarker": page["NextKeyMarker"],
                # If it is absent, the next page begins after the key.
                **(
                    {"UploadIdMarker": upload} if (upload := page.get("NextUploadIdMarker")) else {}
                ),
            },
        )

    def listed(self, prefix: str) -> Iterator[BucketEntry]:
        """Yield objects whose keys begin with `prefix`, sorted by key."""
        return self._paged(
            "ListObjectsV2",
            prefix,
            lambda page: [
                BucketEntry(each["Key"][len(self.prefix) :], each["Size"], each["LastModified"])
                for each in page.get("Contents", ())
            ],
            lambda page: {"ContinuationToken": page["NextContinuationToken"]},
        )

    def _paged(
        self,
        what: str,
        prefix: str,
        entries: Callable[[Mapping[str, Any]], list[T]],
        following: Callable[[Mapping[str, Any]], Mapping[str, str]],
    ) -> Iterator[T]:
        """Yield the entries of all pages of a list.

        `entries` reads the entries of a page; `following` reads the arguments for the next page.
        """
        more: Mapping[str, str] | None = {}
        while more is not None:
            with self._asking(what):
                call = getattr(self.client, _CALLS[what])
                page = call(**self._place, Prefix=self.prefix + prefix, **more)
                found = entries(page)
                more = following(page) if page.get("IsTruncated") else None
            yield from found

    def delete(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Delete objects; skip absent ones. Return the error code of each key that is left."""
        failed: dict[str, str] = {}
        for start in range(0, len(keys), DELETED_AT_ONCE):
            named = [{"Key": self.prefix + key} for key in keys[start : start + DELETED_AT_ONCE]]
            with self._asking("DeleteObjects"):
                answer = self.client.delete_objects(
                    **self._place, Delete={"Objects": named, "Quiet": True}
                )
                for each in answer.get("Errors", ()):
                    if each.get("Code") not in MISSING:
                        failed[each["Key"][len(self.prefix) :]] = str(each.get("Code"))
        return failed

    def delete_all(self, keys: Sequence[str]) -> None:
        """Delete objects; skip absent ones.

        Raise `StoreUnavailable` if one of them was not deleted.
        """
        if keys and (failed := self.delete(keys)):
            raise StoreRefused(next(iter(failed.values())))

    def reading(self) -> AbstractContextManager[None]:
        """Return a context manager for reading the body of a response that has already begun."""
        return answered("GetObject", self._circuit)

    def _asking(self, what: str) -> AbstractContextManager[None]:
        self._circuit.check()
        return answered(what, self._circuit)

    def _named(self, key: str) -> Mapping[str, str]:
        return {**self._place, "Key": self.prefix + key}


def _head_of(found: Mapping[str, Any], size: int) -> ObjectHead:
    about = found.get("Metadata", {})
    token, replaces = about.get("hold", ""), about.get("replaces", "")
    return ObjectHead(size, found["ETag"], found["LastModified"], token, replaces)


def _session() -> Any:  # noqa: ANN401 - boto3 makes the class
    """Return a boto3 session, which finds the credentials."""
    import boto3  # noqa: PLC0415 - optional, and takes long
    import botocore.session  # noqa: PLC0415

    found = botocore.session.Session()
    found.register_component("data_loader", _loader())
    return boto3.session.Session(botocore_session=found)


@cache
def _loader() -> Any:  # noqa: ANN401 - boto3 makes the class
    """Return botocore's loader of service descriptions, shared: reading that of S3 takes 0.2 s."""
    from botocore.loaders import create_loader  # noqa: PLC0415 - optional

    return create_loader()
