"""What a bucket is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import field

from cloudcore.resources.record import Record, fixed, given, own
from cloudcore.resources.resource import Filter, Resource
from cloudcore.storage.errors import NoSuchBucket
from cloudcore.storage.rules import check_bucket_name, is_bucket_name


class Bucket(Record, frozen=True, kw_only=True):
    """A bucket."""

    name: Annotated[str, fixed()]
    kms_key_id: Annotated[str | None, own(hidden=True)] = None
    """The KMS key it is bound to, or None for the account's platform key."""
    cors: Annotated[str | None, own(hidden=True)] = None
    """Its CORS rules as JSON, or None."""
    tags: Annotated[Mapping[str, str], given()] = field(default_factory=dict)

    @property
    def crn(self) -> str:
        """Return its CRN."""
        return BUCKET.crn_of(self)


BUCKET: Final = Resource(
    record=Bucket,
    service="storage",
    one="bucket",
    many="buckets",
    table="storage_buckets",
    check_key=check_bucket_name,
    filters=(Filter("name"),),
    # By hand: paths have the name, which policies judge before it matters whether there is one;
    # lists are by name; and an answer has the key, what is held and how a move to a key goes on.
    methods=(),
    actions={
        "create": "CreateBucket",
        "list": "ListBuckets",
        "get": "GetBucket",
        "update": "UpdateBucket",
        "delete": "DeleteBucket",
    },
    more_actions=("GetBucketCORS", "ListMultipartUploads", "ListObjects", "PutBucketCORS"),
    summaries={"storage:PutBucketCORS": "Set the CORS rules of a bucket, or take them away."},
    told=("create", "delete"),
)


def named_bucket_crn(region: str, account_id: str, name: str) -> str:
    """Return the CRN of the bucket that a request names, whether or not there is one.

    Raise `NoSuchBucket` if no bucket can be called so.
    """
    if not is_bucket_name(name):
        raise NoSuchBucket
    return BUCKET.crn(region, account_id, name)
