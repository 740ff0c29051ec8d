"""``/v1/clusters/{cluster_id}/backups``: make, verify, restore and delete backups of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Final

from litestar import Response, delete, post
from litestar.params import FromPath, JSONBody
from msgspec import Meta, Struct

from cloudcore.databases.archive.driver import BackupKind, BackupProgramMissing
from cloudcore.databases.backups import backups, restore_requests
from cloudcore.databases.backups import rows as backup_rows
from cloudcore.databases.backups.backup import BACKUP, Backup, read_kind
from cloudcore.databases.clusters.bodies import GivenSize
from cloudcore.databases.clusters.cluster import CLUSTER, Cluster, Source
from cloudcore.databases.clusters.clusters import METHODS, new_password, shown_bucket
from cloudcore.databases.clusters.routes import NewCluster
from cloudcore.databases.clusters.states import seal_password, target_of
from cloudcore.databases.needs import DatabaseNeeds
from cloudcore.errors import Conflict, InvalidInput
from cloudcore.resource_names import check_name, check_tags
from cloudcore.resources.bodies import Bodies, Composite
from cloudcore.web.app import Context, Needs
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageQuery, read_page
from cloudcore.wire import RequestBody, ResponseBody, Timestamp, moment_of

_SHOWN: Final = Bodies(
    BACKUP, (Composite(name="bucket", words="Where it lies.", shown=ResourceRef | None),)
)
_ANSWERS: Final = _SHOWN.answers
_ALL: Final = CLUSTER.path_of_one + "/backups"
_ONE: Final = _ALL + "/{backup_id:str}"


class CreateBackup(RequestBody):
    """A new backup."""

    kind: str | None = None
    """`base` is the whole; `incremental` is what changed since the backup before, and needs a base.
    Empty or null means `base`; `full` and `incr` mean the same as these."""


class RestoreBackup(RequestBody):
    """A new cluster with the data of a backup."""

    name: str
    size: GivenSize | None = None
    """By default as the cluster that was backed up."""
    bucket: Annotated[str, Meta(max_length=512)] | None = None
    """Bucket that the backups of the new cluster go to: name, id or CRN."""
    description: Annotated[str, Meta(max_length=1000)] = ""
    tags: dict[str, str] | None = None


class RestoreCluster(RestoreBackup):
    """A new cluster with the data of another one: from a backup, or as of a moment."""

    backup: str | None = None
    """Id of a backup."""
    target_time: Timestamp | None = None
    """A moment between the end of the first backup and now."""


class BackupsQuery(PageQuery, kw_only=True):
    """Which backups are listed."""

    kind: str | None = None
    """Only `base` or `incremental` ones; `full` and `incr` mean the same."""


class DeleteBackupQuery(Struct, kw_only=True):
    """What else is deleted."""

    cascade: bool = False
    """Delete the incremental backups that need it, too."""


@_ANSWERS.creates(_ALL, "database:CreateBackup", status=202, statuses=(409,))
async def create_backup(
    cluster_id: FromPath[str],
    ctx: Context,
    needs: Needs[DatabaseNeeds],
    data: JSONBody[CreateBackup | None] = None,
) -> Reply[ResponseBody]:
    """Back a cluster up, after the backups that were requested before.

    It is 409 if the cluster has no bucket or does not run, if a program is missing on its machine,
    and if an incremental backup is requested while no base backup has succeeded.
    """
    cluster = await METHODS.authorized(ctx, cluster_id)
    kind = read_kind(None if data is None else data.kind)
    backups.check_can_back_up(cluster)
    await _check_programs(needs, cluster, kind)
    new_id, now = needs.new_id, ctx.clock()
    return await ctx.commit(
        backups.request,
        cluster,
        kind,
        "manual",
        new_id,
        now,
        wrap=_wrap(cluster),
        location=lambda made: f"{CLUSTER.path}/{cluster.id}/backups/{made.id}",
    )


@_ANSWERS.lists(_ALL, "database:ListBackups", BackupsQuery)
async def list_backups(cluster_id: FromPath[str], ctx: Context) -> ResponseBody:
    """List the backups of a cluster, oldest first."""
    cluster = await METHODS.authorized(ctx, cluster_id)
    query = ctx.query(BackupsQuery)
    kind = read_kind(query.kind) if query.kind else ""
    rows, count, of = backup_rows.list_backups, backup_rows.count_backups, cluster.account_id
    found, meta = await read_page(
        ctx, query, rows, count, of, cluster.id, kind, key=lambda each: each.id
    )
    bucket = shown_bucket(cluster)
    shown = [_SHOWN.shown(each, bucket=bucket) for each in found]
    return _ANSWERS.many(shown, meta)


@_ANSWERS.gets(_ONE, "database:GetBackup")
async def get_backup(
    cluster_id: FromPath[str], backup_id: FromPath[str], ctx: Context
) -> ResponseBody:
    """Return a backup of a cluster."""
    cluster = await METHODS.authorized(ctx, cluster_id)
    found = await ctx.database.read(backups.find, cluster, backup_id)
    return _ANSWERS.one(found, bucket=shown_bucket(cluster))


@_ANSWERS.changes(_ONE + "/verify", "database:VerifyBackup", status=202, statuses=(409,))
async def verify_backup(
    cluster_id: FromPath[str], backup_id: FromPath[str], ctx: Context
) -> Reply[ResponseBody]:
    """Restore a backup into a temporary server and read all its data, to verify it.

    `verified_at` says when that last succeeded, and `verified_by` how. It is 409 if the backup has
    not succeeded, and where the cluster's machine runs no servers.
    """
    cluster = await METHODS.authorized(ctx, cluster_id)
    found, now = await ctx.database.read(backups.find, cluster, backup_id), ctx.clock()
    return await ctx.commit(
        backups.verify,
        found,
        now,
        wrap=_wrap(cluster),
        details=lambda told: {} if told.updated_at == now else None,
    )


@post(
    _ONE + "/restore",
    status_code=202,
    opt={"action": "database:RestoreBackup", "idempotent": True, "statuses": (409,)},
)
async def restore_backup(
    cluster_id: FromPath[str],
    backup_id: FromPath[str],
    data: JSONBody[RestoreBackup],
    ctx: Context,
    needs: Needs[DatabaseNeeds],
) -> Reply[NewCluster]:
    """Make a new cluster with the data of a backup.

    The caller needs `database:CreateCluster` for the new one. Its owner has a new password.
    """
    cluster = await METHODS.authorized(ctx, cluster_id)
    await ctx.database.read(backups.find, cluster, backup_id)
    return await _restored(ctx, needs, cluster, data, backup_id, None)


@post(
    CLUSTER.path_of_one + "/restore",
    status_code=202,
    opt={"action": "database:RestoreBackup", "idempotent": True, "statuses": (409,)},
)
async def restore_cluster(
    cluster_id: FromPath[str],
    data: JSONBody[RestoreCluster],
    ctx: Context,
    needs: Needs[DatabaseNeeds],
) -> Reply[NewCluster]:
    """Make a new cluster with the data of a backup, or the data that the cluster had at a moment.

    The caller needs `database:CreateCluster` for the new one. It is 409 for a moment before the end
    of the first backup, and for a moment in the future.
    """
    cluster = await METHODS.authorized(ctx, cluster_id)
    if (data.backup is None) == (data.target_time is None):
        words = "either a backup or a target_time says what is restored"
        raise InvalidInput(words, field="backup", reason="malformed")
    if data.backup is not None:
        await ctx.database.read(backups.find, cluster, data.backup)
    return await _restored(ctx, needs, cluster, data, data.backup, data.target_time)


@delete(
    _ONE,
    status_code=202,
    opt={"action": "database:DeleteBackup", "query": DeleteBackupQuery, "statuses": (409,)},
)
async def delete_backup(
    cluster_id: FromPath[str], backup_id: FromPath[str], ctx: Context
) -> Response[bytes]:
    """Delete a backup; it is `deleting` until none of its files are in the bucket, and then 404.

    A backup that is being made is deleted when it has ended. The answer is 409 while a cluster is
    being restored from it, and if incremental backups need it, unless `cascade` deletes them too.
    """
    cluster = await METHODS.authorized(ctx, cluster_id)
    found = await ctx.database.read(backups.find, cluster, backup_id)
    cascade, now = ctx.query(DeleteBackupQuery).cascade, ctx.clock()
    await ctx.database.write(lambda tx: backups.delete(tx, found, now, is_cascade=cascade))
    return Response(b"", status_code=202, media_type="application/json")


async def _restored(
    ctx: RequestContext,
    needs: DatabaseNeeds,
    cluster: Cluster,
    data: RestoreBackup,
    backup_id: str | None,
    target_time: datetime | None,
) -> Reply[NewCluster]:
    check_name(data.name)
    check_tags(data.tags or {})
    new_id, password, now = ctx.new_id(), new_password(), ctx.clock()
    moment = None if target_time is None else moment_of(target_time)
    new = Cluster(
        id=new_id,
        account_id=cluster.account_id,
        region=cluster.region,
        created_at=now,
        updated_at=now,
        name=data.name,
        secret=seal_password(needs.keyring, new_id, password),
        bucket=data.bucket or None,
        description=data.description,
        tags=data.tags or {},
        source=Source(cluster.id, cluster.name, backup_id, moment),
    )
    ctx.right_to(CLUSTER.action("create"))(new.crn)

    def wrap(made: Cluster) -> NewCluster:
        return NewCluster(cluster=METHODS.bodies.shown(made), password=password)

    change = new, data.size, needs.terms, ctx.right_to
    return await ctx.commit(restore_requests.create, *change, wrap=wrap, location=METHODS.location)


async def _check_programs(needs: DatabaseNeeds, cluster: Cluster, kind: BackupKind) -> None:
    """Raise `Conflict` if a program is missing; do nothing on other machines than the cluster's."""
    if cluster.node != needs.node.name:
        return
    target = target_of(needs.keyring, cluster)
    try:
        await asyncio.to_thread(needs.archive.check, target, kind)
    except BackupProgramMissing as error:
        raise Conflict(str(error), reason="program_missing") from None


def _wrap(cluster: Cluster) -> Callable[[Backup], ResponseBody]:
    return lambda found: _ANSWERS.one(found, bucket=shown_bucket(cluster))
