"""Describe database clusters: servers of PostgreSQL, run here or registered from elsewhere."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field, structs

from cloudcore.databases.backups.cron import read_cron
from cloudcore.errors import invalid_field
from cloudcore.metering.sku import BYTE_HOURS_PER_GIB_MONTH, Sku
from cloudcore.nodes.node import NODE_LOST
from cloudcore.nodes.placed import Placed
from cloudcore.quotas.quota import Quota
from cloudcore.resources.resource import (
    Description,
    Filter,
    Resource,
    ResourceName,
    fixed,
    given,
    own,
)

SERVICE: Final = "database"
Status = Literal["provisioning", "active", "updating", "stopped", "unavailable", "deleting"]
VERSIONS: Final = (15, 16, 17)
"""Major versions that registered servers may have."""
PUT_OBJECT: Final = "storage:PutObject"
"""The action that a caller needs on the bucket that a cluster's backups are to go to."""
SERVERS_CAPABILITY: Final = "databases"
BACKUPS_CAPABILITY: Final = "backups"
"""Every machine has it: it backs up registered clusters."""
ENDPOINT_UNREACHABLE: Final = "ENDPOINT_UNREACHABLE"
VERSION_UNSUPPORTED: Final = "VERSION_UNSUPPORTED"
SERVER_FAILED: Final = "SERVER_FAILED"
SERVERS_OFF: Final = "DATABASES_OFF"
"""The machine runs no database servers any more."""
SERVER_CRASHING: Final = "SERVER_CRASHING"
"""A server ended five times in ten minutes."""
DISK_EXCEEDED: Final = "DISK_EXCEEDED"
"""A server was stopped because it has more data than its disk allows."""
ARCHIVE_FAILING: Final = "ARCHIVE_FAILING"
"""WAL could not be put into the bucket for five minutes."""
MEMORY: Final = Quota("database_memory_mb", 32 * 1024, "MiB of memory of database clusters")
DISK: Final = Quota("database_disk_mb", 1024 * 1024, "MiB of disk of database clusters")
MEMORY_HOURS: Final = Sku("database.memory_mb_hours", "Memory of databases", "GiB-hour", 1024)
CPU_HOURS: Final = Sku("database.cpu_milli_hours", "Processors of databases", "CPU-hour", 1000)
BACKUP_STORAGE: Final = Sku(
    "database.backup_storage", "Backups of databases", "GiB-month", BYTE_HOURS_PER_GIB_MONTH
)


class Endpoint(Struct, frozen=True, omit_defaults=True):
    """A server that runs elsewhere; its sealed password is in another field."""

    host: str
    port: int
    database: str
    username: str
    ca: str | None = None
    """PEM certificates of the authorities that may have issued the server's certificate, which must
    then be for `host`. None: the connection is encrypted, but the certificate is not checked."""


Cron = Annotated[str, Meta(min_length=9, max_length=100)]


class Schedule(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """When backups are made automatically, each by five fields of cron, in UTC."""

    base_cron: Cron | None = None
    incremental_cron: Cron | None = None
    verify_cron: Cron | None = None
    """When the newest backup is restored into a server of its own, to prove it."""


class Retention(Struct, frozen=True, forbid_unknown_fields=True):
    """Which backups stay."""

    base_count: Annotated[int, Meta(ge=1, le=100)] = 7
    """How many of the newest base backups stay, with the incremental ones that need them; older
    ones are deleted when the next has succeeded."""


class Source(Struct, frozen=True, omit_defaults=True):
    """The backup or the moment that a cluster was restored from."""

    cluster_id: str
    cluster_name: str
    backup_id: str | None = None
    target_time: int | None = None
    """Moment of the wanted data, in microseconds since the epoch. None: the end of the backup."""


class Cluster(Placed, frozen=True, kw_only=True):
    """A PostgreSQL server with its databases: one that is run here, or one that runs elsewhere."""

    name: ResourceName
    engine: Annotated[Literal["postgresql"], fixed("what it is; fixed")] = "postgresql"
    type: Annotated[Literal["managed", "registered"], own(heading="TYPE")] = "managed"
    """`managed`: it is run here; `registered`: it runs elsewhere, and is looked at and backed up
    here."""
    version: Annotated[int | None, own(heading="VERSION", shows_null=True)] = None
    """The major version; null before it is known."""
    status: Annotated[Status, own(heading="STATUS")] = "provisioning"
    description: Description = ""
    bucket: Annotated[
        Annotated[str, Meta(min_length=1, max_length=512)] | None,
        fixed("bucket that its backups go to: name, id or CRN; fixed", hidden=True),
    ] = None
    """Where its backups go; without one, it has none."""
    schedule: Annotated[Schedule | None, given("when backups are made, as JSON")] = None
    retention: Annotated[Retention | None, given("which backups stay, as JSON")] = None
    """Without one, all stay."""
    tags: Annotated[dict[str, str], given("a tag of the cluster")] = field(default_factory=dict)
    node: Annotated[str, own(heading="NODE")] = ""
    """The machine that it runs on, or that looks at it."""
    checked_at: Annotated[int | None, own(form="time", shows_null=True)] = None
    """When a registered one was looked at last."""
    bucket_name: Annotated[str, own(hidden=True)] = ""
    endpoint: Annotated[Endpoint | None, own(hidden=True)] = None
    """Of a registered one."""
    secret: Annotated[bytes | None, own(hidden=True)] = None
    """The sealed password of a registered one, or of a managed one until its server has it."""
    memory_mb: Annotated[int, Meta(ge=0, le=1 << 20), own(hidden=True)] = 0
    cpu_millis: Annotated[int, Meta(ge=0, le=1 << 20), own(hidden=True)] = 0
    disk_mb: Annotated[int, Meta(ge=0, le=1 << 20), own(hidden=True)] = 0
    port: Annotated[Annotated[int, Meta(ge=1, le=65535)] | None, own(hidden=True)] = None
    """Where a managed one listens; no other of its machine has it."""
    host: Annotated[str | None, own(hidden=True)] = None
    """What clients of a managed one connect to; None before it was started."""
    ca: Annotated[str | None, own(hidden=True)] = None
    """Roots of its certificate, in PEM."""
    source: Annotated[Source | None, own(hidden=True)] = None
    has_data: Annotated[bool, own(hidden=True)] = False
    """Its data were made or restored."""
    is_wanted: Annotated[bool, own(hidden=True)] = True
    """Its owner wants it to run."""
    generation: Annotated[int, own(hidden=True)] = 1
    """Counts the changes of what its owner wants."""
    applied: Annotated[int, own(hidden=True)] = 0
    """The generation that was brought about."""
    check_at: Annotated[int | None, own(hidden=True, form="time")] = None
    """When a registered one is looked at next."""

    @property
    def crn(self) -> str:
        """Return the cluster's CRN."""
        return CLUSTER.crn_of(self)


def check_cluster(new: Cluster, _old: Cluster | None, _now: int) -> Cluster:
    """Check the backup schedules of a new or changed cluster; return the cluster.

    Raise `InvalidInput`, naming the field, if a schedule is malformed or asks for backups that this
    cluster cannot have.
    """
    for name, cron in structs.asdict(new.schedule or Schedule()).items():
        if cron is not None:
            if new.bucket is None:
                raise invalid_field(
                    "schedule", "backups need a bucket, which a cluster gets when it is created"
                )
            if name == "incremental_cron" and new.type == "registered":
                raise invalid_field(
                    f"schedule.{name}", "of a registered cluster there are base backups alone"
                )
            try:
                read_cron(cron)
            except ValueError as error:
                raise invalid_field(f"schedule.{name}", str(error)) from None
    return new


CLUSTER: Final = Resource(
    record=Cluster,
    service=SERVICE,
    one="cluster",
    many="clusters",
    words="database cluster",
    table="database_clusters",
    quota=50,
    filters=(Filter("name"), Filter("status")),
    # Creation and deletion are written by hand: a creation has a secret and refers to a bucket,
    # and a deletion has conditions.
    methods=("list", "get", "update"),
    actions={"create": "CreateCluster", "delete": "DeleteCluster"},
    more_actions=(
        "ChangeClusterCredentials",
        "CreateBackup",
        "DeleteBackup",
        "GetBackup",
        "ListBackups",
        "ResetClusterPassword",
        "RestoreBackup",
        "StartCluster",
        "StopCluster",
        "VerifyBackup",
    ),
    warnings=frozenset({NODE_LOST, ENDPOINT_UNREACHABLE, SERVER_CRASHING, ARCHIVE_FAILING}),
    states={
        "active": "A database cluster takes connections",
        "stopped": "A database cluster was stopped, as its owner wanted",
        "unavailable": "A database cluster takes no connections",
    },
    sample=lambda number: {
        "name": f"cluster-{number}",
        "endpoint": {
            "host": f"db-{number}.example.com",
            "username": "postgres",
            "password": "not-a-secret",
        },
    },
)
"""The database clusters of accounts."""
