"""One call of an S3 operation: its request, its caller, and lookups for handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar, TypeVarTuple

from cloudcore.db.base import Connection
from cloudcore.events import Events
from cloudcore.serving.asgi import Receive, Scope
from cloudcore.storage import buckets
from cloudcore.storage.bucket import BUCKET, Bucket
from cloudcore.storage.needs import StorageNeeds
from cloudcore.storage.s3.answers import Fields
from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.forms import PostForm
from cloudcore.storage.s3.requests import S3Request
from cloudcore.storage.s3.signature import RequestSigningKey, SignatureClaim
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import RequestContext

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MAX_LISTED: Final = 1000
"""Maximum rows of a page."""
MAX_NUMBER: Final = 2**31 - 1


@dataclass(slots=True)
class S3Call:
    """An authenticated S3 call, not yet authorized."""

    ctx: RequestContext
    needs: StorageNeeds
    request: S3Request
    claim: SignatureClaim
    key: RequestSigningKey
    scope: Scope
    receive: Receive
    portions: asyncio.Lock
    """Held while a portion of a document is parsed, which occupies the event loop."""
    any_region: bool = False
    """Accept any region for a new bucket; all buckets are in the install's region anyway."""
    form: PostForm | None = None
    """The form of a PostObject; `receive` yields the body of the request from its start."""
    now: int = field(init=False)
    """When the call was received, in microseconds since the epoch."""
    bucket: Bucket = field(init=False)
    """The request's bucket, set by `find_bucket`."""

    def __post_init__(self) -> None:
        """Set the time of the call."""
        self.now = self.needs.clock()

    @property
    def account_id(self) -> str:
        """Return the id of the account in which the caller acts."""
        return account_of(self.ctx)

    @property
    def events(self) -> Events:
        """Return the event publisher that names the caller."""
        return self.needs.events.by(self.ctx.caller)

    @property
    def region(self) -> str:
        """Return the region of the install."""
        return self.ctx.settings.region

    def header(self, name: str) -> str | None:
        """Return the value of a header, or None if it is absent."""
        return self.request.headers.get(name)

    def number(self, name: str, least: int, most: int) -> int | None:
        """Return an integer in the query, or None if it is absent.

        Raise `S3Error` if the value is malformed, or not from `least` to `most`.
        """
        return _number(name, self.request.fields.get(name), least, most)

    def limit(self, name: str) -> int:
        """Return the maximum rows of the response: the query parameter `name`, at most 1,000."""
        asked = self.number(name, 0, MAX_NUMBER)
        return MAX_LISTED if asked is None else min(asked, MAX_LISTED)

    def header_number(self, name: str) -> int | None:
        """Return an integer in a header, or None if it is absent.

        Raise `S3Error` if the value is malformed or larger than `MAX_NUMBER`.
        """
        return _number(name, self.header(name), 0, MAX_NUMBER)

    def bucket_crn(self, name: str) -> str:
        """Return the CRN of a bucket of the account; `name` may be a pattern."""
        return BUCKET.crn(self.region, self.account_id, name)

    async def change(
        self, change: Callable[[Connection, *Ts], T], *arguments: *Ts, **noted: str
    ) -> T:
        """Call `change` in a transaction that also writes the audit event; return its result.

        `noted` are details for the event.
        """

        def run(tx: Connection) -> T:
            self.ctx.details.update(noted)
            return change(tx, *arguments)

        return await self.ctx.database.write(run)

    async def find_bucket(self) -> Bucket:
        """Authorize the operation on the request's bucket, or on its object; return the bucket.

        Raise the errors of `buckets.authorized_bucket`.
        """
        request = self.request
        # The operation of a form is on an object, even if the form's key is empty.
        key = request.key if request.key or self.form is not None else None
        self.bucket = await buckets.authorized_bucket(self.ctx, request.bucket, key)
        return self.bucket


def _number(name: str, given: str | None, least: int, most: int) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit()) or len(given) > 10:
        raise S3Error("InvalidArgument", f"{name} must be a whole number.")
    if not least <= int(given) <= most:
        raise S3Error("InvalidArgument", f"{name} must be from {least} to {most}.")
    return int(given)


SEALED: Final = "AES256"
"""Sealed under a key that the platform manages."""
KMS: Final = "aws:kms"
"""Sealed under the KMS key that the bucket is bound to."""
_HEADER: Final = "x-amz-server-side-encryption"


def check_read(call: S3Call) -> None:
    """Raise `S3Error` (InvalidArgument) if a read has encryption headers: these are for writes."""
    if _HEADER in call.request.headers:
        raise S3Error("InvalidArgument", f"{_HEADER} is not supported for this operation.")


def encryption_headers(call: S3Call) -> Fields:
    """Return the response headers about the encryption of the bytes that a request writes.

    Raise `S3Error` if the request demands encryption, but the install does not seal objects.
    """
    if call.needs.bytes.seals:
        return sealed_headers(call.bucket)
    if _HEADER in call.request.headers:
        raise S3Error("NotImplemented", "Nothing is sealed here: the operator has turned it off.")
    return []


def sealed_headers(bucket: Bucket) -> Fields:
    """Return the response headers about the encryption of a bucket's sealed objects."""
    if bucket.kms_key_id is None:
        return [(_HEADER, SEALED)]
    return [(_HEADER, KMS), (f"{_HEADER}-aws-kms-key-id", bucket.kms_key_id)]
