"""Create, change, start, stop and delete clusters, each in a transaction."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from msgspec import structs

from cloudcore.account_rows import lock_account
from cloudcore.databases.backups import rows as backup_rows
from cloudcore.databases.backups import schedules
from cloudcore.databases.clusters import rows
from cloudcore.databases.clusters.bodies import (
    ClusterConnection,
    ClusterSource,
    EndpointRecord,
    SizeRecord,
    shown_connection,
    shown_endpoint,
    shown_size,
    shown_source,
)
from cloudcore.databases.clusters.cluster import (
    BACKUPS_CAPABILITY,
    CLUSTER,
    PUT_OBJECT,
    SERVERS_CAPABILITY,
    Cluster,
    Endpoint,
    check_cluster,
)
from cloudcore.databases.clusters.rows import CLUSTERS, DISK_WANTED, MEMORY_WANTED
from cloudcore.databases.clusters.workflow import WORK
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.nodes.rows import can_run, choose
from cloudcore.resource_references import Authorize, RightTo
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods
from cloudcore.resources.resource import DELETING
from cloudcore.storage.bucket import BUCKET
from cloudcore.storage.bucket_rows import add_use
from cloudcore.storage.tables import BUCKET_ROWS
from cloudcore.web.bodies import ResourceRef

if TYPE_CHECKING:
    from cloudcore.databases.needs import DatabaseTerms

_PASSWORD_BYTES: Final = 24


def shown_bucket(found: Cluster) -> ResourceRef | None:
    """Return the bucket of a cluster's backups for an answer; None if it has no backups."""
    if found.bucket is None:
        return None
    crn = BUCKET.crn(found.region, found.account_id, found.bucket_name)
    return ResourceRef(id=found.bucket, crn=crn, name=found.bucket_name)


def _begin(tx: Connection, new: Cluster, old: Cluster | None) -> Cluster:
    if old is not None and new.schedule != old.schedule:
        schedules.put(tx, new)
    return WORK.begin(tx, new, old)


METHODS: Final = Methods(
    CLUSTERS,
    check=check_cluster,
    before_lock=WORK.wake,
    before_save=_begin,
    removal=WORK.delete,
    composites=(
        Composite(name="endpoint", shown=EndpointRecord | None, show=shown_endpoint),
        Composite(name="size", shown=SizeRecord | None, show=shown_size),
        Composite(name="bucket", shown=ResourceRef | None, show=shown_bucket),
        Composite(
            name="connection",
            words="What clients connect to; null before it is known.",
            shown=ClusterConnection | None,
            show=shown_connection,
        ),
        Composite(name="source", shown=ClusterSource | None, show=shown_source),
    ),
    statuses={"update": (409,)},
)


def new_password() -> str:
    """Return a random password of 192 bits."""
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def create(tx: Connection, new: Cluster, terms: DatabaseTerms, right_to: RightTo) -> Cluster:
    """Insert a cluster, with the bucket that the request refers to, and start its workflow.

    Raises:
        InvalidInput, AccessDenied, NotFound: as `cloudcore.resource_references.resolve`.
        Conflict: the cluster's name is taken, no machine runs servers, or the chosen machine has no
            free port.
        QuotaExceeded: the account has reached its quota.

    """
    if new.bucket is None:
        return _made(tx, new, terms)
    place = new.account_id, new.region
    may = _right_to_fill(new, right_to)
    found = BUCKET_ROWS.resolve(tx, *place, "bucket", new.bucket, may)
    placed = structs.replace(new, bucket=found.id, bucket_name=found.name)
    made = _made(tx, placed, terms)
    add_use(tx, found, made.id, f"{CLUSTER.noun} {made.name}")
    return made


def _made(tx: Connection, new: Cluster, terms: DatabaseTerms) -> Cluster:
    """Insert a cluster, whose bucket is resolved; errors as `create`."""
    capability = SERVERS_CAPABILITY if new.type == "managed" else BACKUPS_CAPABILITY
    lock_account(tx, new.account_id)
    now = new.created_at
    node = choose(tx, capability, now)
    if node is None:
        words = "no machine runs database servers: the operator sets database_driver"
        raise Conflict(words, reason="no_machine", setting="database_driver")
    new = structs.replace(new, node=node)
    if new.type == "managed":
        of = new.account_id
        MEMORY_WANTED.check_and_emit(
            tx, of, new.memory_mb, now, "MiB of memory of database clusters"
        )
        DISK_WANTED.check_and_emit(tx, of, new.disk_mb, now, "MiB of disk of database clusters")
        can_run(tx, node, capability)  # locks the machine's row, so that ports are unique
        port = rows.free_port(tx, node, terms.first_port, terms.last_port)
        if port is None:
            words = f"the machine {node} has no port left: the operator sets database_ports"
            raise Conflict(words, reason="no_port", setting="database_ports")
        new = structs.replace(new, port=port)
    made = METHODS.create(tx, new)
    schedules.put(tx, made)
    return made


def set_wanted(tx: Connection, found: Cluster, now: int, *, is_wanted: bool) -> Cluster:
    """Begin to start or stop a managed cluster, unless that was requested last; return the cluster.

    Raise `NotFound` if the cluster is gone, `Conflict` if it is registered or being deleted.
    """
    WORK.wake(tx, found, now)  # first: steps, too, lock the job before the record
    old = _managed(tx, found)
    if old.is_wanted == is_wanted:
        return old
    status = old.status if old.status == "provisioning" else "updating"
    return CLUSTERS.save(
        tx,
        structs.replace(
            old, is_wanted=is_wanted, status=status, generation=old.generation + 1, updated_at=now
        ),
    )


def reset_password(tx: Connection, found: Cluster, sealed: bytes, now: int) -> Cluster:
    """Store a new password for a managed cluster's owner; the workflow sets it on the server.

    Raise `NotFound` if the cluster is gone, `Conflict` if it is registered or being deleted.
    """
    WORK.wake(tx, found, now)
    old = _managed(tx, found)
    changed = structs.replace(old, secret=sealed, generation=old.generation + 1, updated_at=now)
    return CLUSTERS.save(tx, changed)


def change_credentials(
    tx: Connection, found: Cluster, endpoint: Endpoint, sealed: bytes, now: int
) -> Cluster:
    """Store a registered cluster's new credentials, which the server has accepted; check it soon.

    Raise `NotFound` if the cluster is gone; `Conflict` if it is being deleted, or another request
    has changed the credentials since `found` was read.
    """
    WORK.wake(tx, found, now)  # first: steps, too, lock the job before the record
    old = CLUSTERS.lock(tx, found.account_id, found.id)
    check_registered(old)
    if old.endpoint != found.endpoint:
        raise Conflict(
            "another request has just changed the credentials", reason="changed_meanwhile"
        )
    changed = structs.replace(
        old,
        endpoint=endpoint,
        secret=sealed,
        generation=old.generation + 1,
        check_at=now,
        updated_at=now,
    )
    return CLUSTERS.save(tx, changed)


def check_registered(found: Cluster) -> None:
    """Raise `Conflict` if a cluster is run here, or is being deleted."""
    if found.status == DELETING:
        raise Conflict("the database cluster is being deleted", reason="being_deleted")
    if found.type == "managed":
        words = "the database cluster is run here: reset its owner's password instead"
        raise Conflict(words, reason="is_managed")


def delete(tx: Connection, found: Cluster, now: int, *, is_cascade: bool) -> None:
    """Begin the deletion of a cluster with all its backups.

    Raise `NotFound` if the cluster is gone; `Conflict` if another cluster is being restored from
    its backups, or if it has backups and `is_cascade` is False.
    """
    WORK.wake(tx, found, now)
    old = CLUSTERS.lock(tx, found.account_id, found.id)  # locked, so that no restore from it begins
    if restored := rows.restores_of(tx, old.account_id, old.id):
        name = min(restored.values())
        words = f"the cluster {name} is being restored from its backups; wait for it, or delete it"
        raise Conflict(words, reason="is_being_restored", cluster=name)
    if not is_cascade and (backups := backup_rows.kept(tx, old.account_id, old.id)):
        raise Conflict(
            f"the cluster has {len(backups)} backups, such as {backups[-1].id}; delete them, or say"
            " cascade=true",
            reason="has_backups",
            backup=backups[-1].id,
        )
    WORK.delete(tx, old, now)


def _managed(tx: Connection, found: Cluster) -> Cluster:
    old = CLUSTERS.lock(tx, found.account_id, found.id)
    if old.status == DELETING:
        raise Conflict("the database cluster is being deleted", reason="being_deleted")
    if old.type != "managed":
        raise Conflict("the database cluster runs elsewhere", reason="is_registered")
    return old


def _right_to_fill(new: Cluster, right_to: RightTo) -> Authorize:
    """Return a check that the caller may see a bucket, and write the cluster's backups to it."""
    may_see, may_write = right_to(BUCKET.action("get")), right_to(PUT_OBJECT)

    def check(crn: str) -> None:
        may_see(crn)
        may_write(f"{crn}/entrepot/{new.id}")

    return check
