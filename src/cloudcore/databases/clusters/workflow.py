"""The workflow of clusters: make, start, stop, check and delete them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from cloudcore.clock import MICROSECONDS
from cloudcore.databases.archive.driver import BackupFailed, BackupProgramMissing
from cloudcore.databases.backups import restore, rows
from cloudcore.databases.backups.workflow import delete_all
from cloudcore.databases.clusters.cluster import (
    ARCHIVE_FAILING,
    ENDPOINT_UNREACHABLE,
    SERVER_CRASHING,
    SERVER_FAILED,
    SERVERS_OFF,
    VERSION_UNSUPPORTED,
    VERSIONS,
    Cluster,
)
from cloudcore.databases.clusters.endpoints import EndpointUnreachable, server_version
from cloudcore.databases.clusters.rows import CLUSTERS, restores_of
from cloudcore.databases.clusters.states import endpoint_of, open_password, spec_of, target_of
from cloudcore.databases.servers.driver import OWNER, ServerFailed
from cloudcore.nodes.rows import Placing
from cloudcore.resources.resource import DELETING
from cloudcore.resources.workflow import Goal, Problem, Step, StepAttempt, StepDone, StepRetry, Work
from cloudcore.storage.bucket_rows import remove_uses

if TYPE_CHECKING:
    from cloudcore.databases.needs import DatabaseNeeds
    from cloudcore.databases.servers.bubblewrap import BubblewrapServers
    from cloudcore.db.base import Connection

Outcome = StepDone[Cluster] | StepRetry[Cluster]
StepRun = Callable[[Cluster, Any, StepAttempt], Awaitable[Outcome]]
CHECK_SECONDS: Final = 300
"""Between two checks of a registered cluster."""
BACKUP_FAILED: Final = "BACKUP_FAILED"
_LOOK_SECONDS: Final = 1
_BATCH: Final = 100
"""How many backups are deleted at a time."""
_WATCHED: Final = (SERVER_CRASHING, ARCHIVE_FAILING)
"""Faults that only the watches remove; they remain when the server is started."""
_OFF: Final = Problem(
    SERVERS_OFF,
    "this cluster's machine runs no database servers (any more): its operator sets database_driver",
)


def goal(found: Cluster, now: int) -> Goal | None:
    """Return the goal of a cluster's next steps, or None if there is nothing to do."""
    if found.status == DELETING:
        return Goal("backups")
    if found.check_at is not None:
        return Goal("check", found.check_at) if found.check_at <= now else None
    if found.type == "registered":
        return None
    # The owner wanted it stopped while its machine was lost; now the machine is back.
    is_stopped = found.status == "unavailable" and not found.is_wanted and not found.faults
    if found.applied == found.generation and not is_stopped:
        return None
    return Goal("make" if found.is_wanted else "stop", found.generation)


def _by_servers(
    act: Callable[[Cluster, DatabaseNeeds, BubblewrapServers], Awaitable[Outcome]],
) -> StepRun:
    """Return a step that calls `act` with this machine's servers; errors of `act` become faults."""

    async def step(found: Cluster, needs: DatabaseNeeds, _attempt: StepAttempt) -> Outcome:
        if needs.servers is None:
            return StepRetry(faults=[_OFF])
        try:
            return await act(found, needs, needs.servers)
        except (ServerFailed, BackupFailed, BackupProgramMissing) as error:
            return StepRetry(change=_failed, faults=[Problem(SERVER_FAILED, str(error))])

    return step


async def _make(found: Cluster, needs: DatabaseNeeds, servers: BubblewrapServers) -> Outcome:
    """Create or restore the data of a server, unless it already has data."""
    if found.has_data:
        return StepDone(next="start", keeps_faults=True)
    if found.source is not None:
        if not await restore.restore_while_wanted(needs, found):
            return StepRetry(seconds=0)  # the owner wants something else now: take that step
        version = found.version
    else:
        version = servers.versions[-1]
        await servers.create(spec_of(structs.replace(found, version=version)))

    def made(current: Cluster, _now: int) -> Cluster:
        return structs.replace(current, has_data=True, version=version)

    return StepDone(change=made, next="start", keeps_faults=True)


async def _start(found: Cluster, needs: DatabaseNeeds, servers: BubblewrapServers) -> Outcome:
    """Start a server with a certificate from this install's own authority."""
    spec, host = spec_of(found), needs.terms.address
    issued = await needs.authority.issue([host, needs.node.name])
    await servers.reload_certificate(spec, issued.chain_pem, issued.key_pem)
    await servers.start(spec)

    def started(current: Cluster, _now: int) -> Cluster:
        return structs.replace(current, host=host, ca=issued.ca_pem)

    return StepDone(change=started, next="password", keeps_faults=True)


async def _password(found: Cluster, needs: DatabaseNeeds, servers: BubblewrapServers) -> Outcome:
    """Set the owner's password on the server, and delete it from the row."""
    if found.secret is not None:
        await servers.set_password(spec_of(found), OWNER, open_password(needs.keyring, found))
    return _has_reached("active", found)


async def _stop(found: Cluster, _needs: DatabaseNeeds, servers: BubblewrapServers) -> Outcome:
    await servers.stop(found.id)
    return _has_reached("stopped", found)


async def _check(found: Cluster, needs: DatabaseNeeds, _attempt: StepAttempt) -> Outcome:
    """Connect to a registered server; store its version, or why the connection failed."""
    endpoint = endpoint_of(needs.keyring, found)
    assert endpoint is not None
    assert found.endpoint is not None
    version: int | None = None
    problem = None
    try:
        version = await server_version(endpoint, found.endpoint.database, needs.terms.networks)
        if version not in VERSIONS:
            words = f"it is PostgreSQL {version}; {VERSIONS[0]} to {VERSIONS[-1]} are looked after"
            problem = Problem(VERSION_UNSUPPORTED, words)
    except EndpointUnreachable as error:
        problem = Problem(ENDPOINT_UNREACHABLE, str(error))

    def checked(current: Cluster, now: int) -> Cluster:
        at = now + CHECK_SECONDS * MICROSECONDS
        if current.check_at != found.check_at:  # its owner has changed it meanwhile
            at = current.check_at or at
        return structs.replace(
            current,
            status="active" if problem is None else "unavailable",
            version=version or current.version,
            checked_at=now,
            check_at=at,
            applied=current.generation,
        )

    return StepDone(change=checked, faults=[problem] if problem else [])


async def _backups(found: Cluster, needs: DatabaseNeeds, _attempt: StepAttempt) -> Outcome:
    """Begin the deletion of the cluster's backups; retry until none is left."""
    if await needs.database.write(_delete_backups, found, needs.clock()):
        return StepDone(next="remove", keeps_faults=True)
    return StepRetry(seconds=_LOOK_SECONDS)


def _delete_backups(tx: Connection, cluster: Cluster, now: int) -> bool:
    """Begin the deletion of a cluster's backups; return True if none is left.

    While a cluster is being restored from one of the backups, delete none, as that backup may need
    others. `clusters.delete` refuses to begin then, but an older version of the service may have
    allowed it.
    """
    found = rows.remaining(tx, cluster.account_id, cluster.id, _BATCH)
    if not restores_of(tx, cluster.account_id, cluster.id):
        delete_all(tx, [each for each in found if each.status != DELETING], now)
    return not found


async def _remove(found: Cluster, needs: DatabaseNeeds, _attempt: StepAttempt) -> Outcome:
    """Delete the server and all files of its cluster in the bucket."""
    if found.type == "managed":
        if needs.servers is None:
            return StepRetry(faults=[_OFF])
        try:
            await needs.servers.remove(found.id)
        except ServerFailed as error:
            return StepRetry(faults=[Problem(SERVER_FAILED, str(error))])
    if found.bucket is not None and found.version is not None:
        try:
            await needs.archive.remove_all(target_of(needs.keyring, found))
        except BackupFailed as error:
            return StepRetry(faults=[Problem(BACKUP_FAILED, str(error))])
    return StepDone(also=lambda tx, before, _after: remove_uses(tx, before.account_id, before.id))


def _has_reached(status: str, found: Cluster) -> Outcome:
    """Return the outcome of the last step, after which the server has the wanted `status`."""

    def changed(current: Cluster, _now: int) -> Cluster:
        is_newest = current.generation == found.generation
        has_it = status == "active" and current.secret == found.secret
        return structs.replace(
            current,
            status=status if is_newest else current.status,
            secret=None if has_it else current.secret,
            applied=found.generation,
            faults=tuple(each for each in current.faults if each.code in _WATCHED),
        )

    return StepDone(change=changed, keeps_faults=True)


def _failed(current: Cluster, _now: int) -> Cluster:
    """Make a cluster unavailable after a failed step, unless it is still provisioning."""
    is_new = current.status == "provisioning"
    return current if is_new else structs.replace(current, status="unavailable")


WORK: Final[Work[Cluster, DatabaseNeeds]] = Work(
    CLUSTERS,
    goal=goal,
    steps={
        "make": Step(_by_servers(_make)),
        "start": Step(_by_servers(_start)),
        "password": Step(_by_servers(_password)),
        "stop": Step(_by_servers(_stop)),
        "check": Step(_check),
        "backups": Step(_backups),
        "remove": Step(_remove),
    },
    step_seconds=12 * 3600,  # a large restore takes so long
    node_of=lambda found: found.node,
    events=lambda needs: needs.events,
)
PLACING: Final = Placing(CLUSTERS, WORK.wake, lost_status="unavailable")
