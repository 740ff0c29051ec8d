"""``/v1/key-usage/{key_id}``: blobs, images, repositories and buckets under a key.

These are not part of ``/v1/keys``, since the family of keys knows nothing of the registry.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromPath

from cloudcore.storage.bucket import BUCKET
from cloudcore.web.bodies import KeyReference, ResourceRef, reference_to
from cloudcore.web.context import RequestContext
from cloudcore.wire import ResponseBody
from registry.control.bodies import answer_of
from registry.control.repositories import authorized_for_all, reference_of
from registry.services.encryption_bindings import KeyUsage, key_usage


class ProtectedImage(ResponseBody):
    """An image with blobs under a key."""

    repository: ResourceRef
    digest: str


class KeyUsageAnswer(ResponseBody):
    """What a key protects; when the key is deleted, all that only it opens is shredded."""

    kms_key: KeyReference
    is_account_default: bool
    """True if it seals what is pushed to repositories without a key of their own."""
    repository_count: int
    """Repositories that are bound to it themselves."""
    repositories: Sequence[ResourceRef]
    """The first 100 of them, by name."""
    blob_count: int
    """Blobs that it opens; of a deleted key, blobs that it opened."""
    exclusive_blob_count: int
    """Those that no other key opens, or only keys that are to be deleted too: its deletion shreds
    them."""
    exclusive_bytes: int
    """Their size."""
    image_count: int
    """Images with blobs that are read through it: without it they cannot be pulled."""
    images: Sequence[ProtectedImage]
    """The first 100 of them, by repository."""
    bucket_count: int
    """Buckets that are bound to it themselves."""
    buckets: Sequence[ResourceRef]
    """The first 100 of them, by name."""
    object_count: int
    """Objects of buckets with bytes that it opens: its deletion shreds them. Of a deleted key,
    objects that it opened."""
    object_bytes: int
    """The size of these bytes, and of parts of uploads."""
    is_partial: bool
    """True if more than 10,000 of a kind were found: then the counts are lower bounds."""


class OneKeyUsage(ResponseBody):
    """What a key protects, wrapped."""

    key_usage: KeyUsageAnswer


@get("/v1/key-usage/{key_id:str}", opt={"action": "registry:DescribeKeyUsage"})
async def get_key_usage(key_id: FromPath[str], ctx: NamedDependency[RequestContext]) -> OneKeyUsage:
    """Return which blobs, images and objects a key protects: what its deletion would shred."""
    account_id, region = authorized_for_all(ctx), ctx.settings.region
    return _one(ctx, await ctx.database.read(key_usage, account_id, region, key_id))


def _one(ctx: RequestContext, found: KeyUsage) -> OneKeyUsage:
    account_id, region = found.key.account_id, ctx.settings.region
    reference = partial(reference_of, ctx, account_id)
    return OneKeyUsage(
        key_usage=answer_of(
            KeyUsageAnswer,
            found,
            kms_key=reference_to(found.key),
            repositories=[reference(*each) for each in found.repositories],
            blob_count=found.blobs.total,
            exclusive_blob_count=found.blobs.exclusive_count,
            exclusive_bytes=found.blobs.exclusive_bytes,
            images=[
                ProtectedImage(
                    repository=reference(each.repository_id, each.repository), digest=each.digest
                )
                for each in found.images
            ],
            buckets=[
                ResourceRef(id=each, crn=BUCKET.crn(region, account_id, name), name=name)
                for each, name in found.buckets
            ],
            object_count=found.pieces.objects,
            object_bytes=found.pieces.size,
        )
    )
