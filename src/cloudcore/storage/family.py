"""The storage family: buckets of objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.family import CommandGroup, Family
from cloudcore.iam.vocabulary import ResourceKind
from cloudcore.storage import bucket

if TYPE_CHECKING:
    from cloudcore.storage.needs import StorageNeeds


STORAGE: Final[Family[StorageNeeds]] = Family(
    name="storage",
    title="Buckets",
    runs="cloudcore.storage.runtime:RUNTIME",
    paths=("/v1/buckets",),
    skus=bucket.STORAGE_SKUS,
    resources=(bucket.BUCKET,),
    resource_kinds=(
        ResourceKind(
            crn="crn:storage:<region>:<account>:bucket/<name>/<key>",
            actions=(
                "storage:AbortMultipartUpload",
                "storage:DeleteObject",
                "storage:GetObject",
                "storage:ListParts",
                "storage:PutObject",
            ),
            summaries={
                "storage:GetObject": "Read an object, or its tags.",
                "storage:PutObject": "Write an object, in parts or at once, or its tags.",
                "storage:DeleteObject": "Delete an object, or its tags.",
            },
        ),
    ),
    other_events=(bucket.OBJECT_CREATED, bucket.OBJECT_DELETED),
    event_words={
        "storage.object.created": "An object was stored",
    },
    quotas=(bucket.BUCKET_BYTES,),
    commands=(CommandGroup("use the platform's services", ("cloudcore.storage.commands",)),),
)
