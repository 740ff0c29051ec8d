"""One call of an operation of S3: its request, its caller, and what handlers ask of both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, TypeVarTuple

from cloudcore.db.base import Connection
from cloudcore.events import Events
from cloudcore.serving.body import Receive, Scope
from cloudcore.storage import buckets
from cloudcore.storage.bucket import BUCKET, Bucket, named_bucket_crn
from cloudcore.storage.needs import StorageNeeds
from cloudcore.storage.rules import object_crn
from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.forms import Form
from cloudcore.storage.s3.requests import S3Request
from cloudcore.storage.s3.signature import Claim, SigningKey
from cloudcore.web.callers import account_of
from cloudcore.web.context import RequestContext

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@dataclass(slots=True)
class S3Call:
    """A call that is authenticated; nothing is authorized yet."""

    ctx: RequestContext
    needs: StorageNeeds
    request: S3Request
    claim: Claim
    key: SigningKey
    scope: Scope
    receive: Receive
    portions: asyncio.Lock
    """Held to read a portion of a document: that takes the time of all."""
    any_region: bool = False
    """Buckets may be wanted in any region: all are in that of the install."""
    form: Form | None = None
    """Of a PostObject, whose file the body begins with anew."""
    now: int = field(init=False)
    """When it came."""

    def __post_init__(self) -> None:
        """Note the time."""
        self.now = self.needs.clock()

    @property
    def account_id(self) -> str:
        """Return the account that the caller acts in."""
        return account_of(self.ctx)

    @property
    def events(self) -> Events:
        """Return what tells of the caller's changes."""
        return self.needs.events.by(self.ctx.caller)

    @property
    def region(self) -> str:
        """Return the region of the install."""
        return self.ctx.settings.region

    def header(self, name: str) -> str | None:
        """Return a header, or None without it."""
        return self.request.headers.get(name)

    def number(self, name: str, least: int, most: int) -> int | None:
        """Return a whole number of the query, or None without it.

        Raises:
            S3Error: it is none, or out of range.

        """
        return _number(name, self.request.fields.get(name), least, most)

    def header_number(self, name: str) -> int | None:
        """Return a whole number of a header, or None without it; raise S3Error if it is none."""
        return _number(name, self.header(name), 0, 2**31 - 1)

    def bucket_crn(self, name: str) -> str:
        """Return the CRN of a bucket of the account; `name` may be a pattern."""
        return BUCKET.crn(self.region, self.account_id, name)

    async def change(
        self, change: Callable[[Connection, *Ts], T], *arguments: *Ts, **noted: str
    ) -> T:
        """Make a change, in one transaction with its event in the audit log, which has `noted`."""

        def run(tx: Connection) -> T:
            self.ctx.details.update(noted)
            return change(tx, *arguments)

        return await self.ctx.database.write(run)

    async def find_bucket(self) -> Bucket:
        """Return the request's bucket, on which the caller may do the operation.

        Raises:
            AccessDenied: policies refuse it, whether or not there is such a bucket.
            NoSuchBucket: the account has no such bucket.

        """
        self.ctx.authorize(self._crn_of(self.request.bucket))
        return await self._find(self.request.bucket)

    async def find_bucket_of_key(self) -> Bucket:
        """Return the request's bucket; the caller may do the operation on the request's object."""
        return await self.find_bucket_with(self.request.bucket, self.request.key)

    async def find_bucket_with(self, name: str, key: str, action: str | None = None) -> Bucket:
        """Return a bucket; the caller may do the operation, or `action`, on an object of it.

        Raises:
            AccessDenied: policies refuse it, whether or not there is such a bucket.
            NoSuchBucket: the account has no such bucket.

        """
        self.ctx.authorize(object_crn(self._crn_of(name), key), action=action)
        return await self._find(name)

    def named_bucket_crn(self) -> str:
        """Return the CRN of the request's bucket, whether or not there is one.

        Raises:
            NoSuchBucket: no bucket can be called so.

        """
        return self._crn_of(self.request.bucket)

    async def look_up_bucket(self) -> Bucket:
        """Return the request's bucket, with nothing authorized; for what has decided by key."""
        return await self._find(self.request.bucket)

    def _crn_of(self, name: str) -> str:
        """Return the CRN of the bucket that a request names, whether or not there is one.

        Raises:
            NoSuchBucket: no bucket can be called so.

        """
        return named_bucket_crn(self.region, self.account_id, name)

    async def _find(self, name: str) -> Bucket:
        of = self.account_id, self.region
        return await self.needs.database.read(buckets.find_bucket, *of, name)


def _number(name: str, given: str | None, least: int, most: int) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit()) or len(given) > 10:
        raise S3Error("InvalidArgument", f"{name} must be a whole number.")
    if not least <= int(given) <= most:
        raise S3Error("InvalidArgument", f"{name} must be from {least} to {most}.")
    return int(given)
