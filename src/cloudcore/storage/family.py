"""The family of storage: buckets of objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from cloudcore.family import CommandGroup, Family
from cloudcore.iam.vocabulary import ResourceKind
from cloudcore.storage.bucket import (
    BUCKET,
    BUCKET_BYTES,
    OBJECT_CREATED,
    OBJECT_DELETED,
    STORAGE_SKUS,
)
from cloudcore.storage.bucket import STORAGE as STORED

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.db.rows import Forget
    from cloudcore.jobs.kinds import JobKind
    from cloudcore.jobs.schedule import Scheduled
    from cloudcore.metering.sampling import Measure
    from cloudcore.ports import Opening
    from cloudcore.quotas.limits import Counted
    from cloudcore.storage.needs import StorageNeeds


async def _open(opening: Opening) -> StorageNeeds:
    from cloudcore.storage import needs  # noqa: PLC0415 - SQLAlchemy

    return await needs.open_needs(opening)


def _routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.storage import bucket_routes, multipart_routes, object_routes  # noqa: PLC0415 - the web framework

    return (*bucket_routes.HANDLERS, *object_routes.HANDLERS, *multipart_routes.HANDLERS)


def _job_kinds(needs: StorageNeeds) -> Sequence[JobKind]:
    from cloudcore.storage.rewrapping import rewrap_kind  # noqa: PLC0415 - SQLAlchemy

    return (rewrap_kind(needs),)


def _schedule(needs: StorageNeeds) -> Sequence[Scheduled]:
    from cloudcore.jobs.schedule import Scheduled  # noqa: PLC0415
    from cloudcore.storage import cleanup  # noqa: PLC0415 - SQLAlchemy

    return tuple(
        Scheduled(name, seconds, partial(chore, needs))
        for name, seconds, chore in (
            ("storage.abandoned_uploads", cleanup.ABORT_SECONDS, cleanup.abort_abandoned),
            ("storage.condemned_pieces", cleanup.DELETE_SECONDS, cleanup.delete_condemned),
            ("storage.deleted_keys", cleanup.DELETE_SECONDS, cleanup.shred_deleted_keys),
            ("storage.orphaned_bytes", cleanup.SCAN_SECONDS, cleanup.scan_bytes),
        )
    )


def _expiry() -> Sequence[Forget]:
    from cloudcore.storage import cleanup  # noqa: PLC0415 - SQLAlchemy

    return (cleanup.forget_completed,)


def _samples() -> Mapping[str, Measure]:
    from cloudcore.storage.bucket_rows import bytes_by_account  # noqa: PLC0415 - SQLAlchemy

    return {STORED.name: bytes_by_account}


def _uses() -> Sequence[Counted]:
    from cloudcore.storage import bucket_rows, tables  # noqa: PLC0415 - SQLAlchemy

    return (tables.BUCKET_ROWS.counted, bucket_rows.BYTES)


STORAGE: Final[Family[StorageNeeds]] = Family(
    name="storage",
    title="Buckets",
    paths=("/v1/buckets",),
    open=_open,
    uses=_uses,
    routes=_routes,
    job_kinds=_job_kinds,
    schedule=_schedule,
    expiry=_expiry,
    skus=STORAGE_SKUS,
    samples=_samples,
    resources=(BUCKET,),
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
    other_events=(OBJECT_CREATED, OBJECT_DELETED),
    event_words={
        "storage.object.created": "An object was stored",
    },
    quotas=(BUCKET_BYTES,),
    commands=(CommandGroup("use the platform's services", ("cloudcore.storage.commands",)),),
)
