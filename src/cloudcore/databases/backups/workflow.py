"""The workflow of backups: make them, verify that they can be restored, and delete them.

One backup of a cluster at a time may change its bucket (`backup_turns`); the others wait, and are
woken when it ends. After its process was killed, a backup is looked up in the archive before it is
made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from msgspec import structs

from cloudcore.databases.archive.driver import (
    BackupFailed,
    BackupProgramMissing,
    BackupTarget,
    BucketGone,
    ListedBackup,
)
from cloudcore.databases.backups import restore, rows
from cloudcore.databases.backups.backup import (
    BACKUP_FAILED,
    FAILED,
    SUCCEEDED,
    VERIFICATION_FAILED,
    VERIFIED,
    Backup,
)
from cloudcore.databases.backups.rows import BACKUPS, beyond_retention
from cloudcore.databases.clusters.cluster import Cluster
from cloudcore.databases.clusters.rows import CLUSTERS
from cloudcore.databases.clusters.states import target_of
from cloudcore.databases.servers.driver import ServerBusy, ServerFailed
from cloudcore.errors import Unavailable
from cloudcore.nodes.rows import Placing
from cloudcore.resources.resource import DELETING
from cloudcore.resources.workflow import Goal, Problem, Step, StepAttempt, StepDone, StepRetry, Work

if TYPE_CHECKING:
    from cloudcore.databases.needs import DatabaseNeeds
    from cloudcore.db.base import Connection

Outcome = StepDone[Backup] | StepRetry[Backup]
DELETION_FAILED: Final = "BACKUP_DELETION_FAILED"
TRIES: Final = 3
"""How many times a backup is tried before it has failed."""
_LOOK_SECONDS: Final = 60
"""Between two tries to get the lock of a cluster; the end of another backup also causes a try."""
_TELL_SECONDS: Final = 2
"""Between two writes of the progress."""
_STEP_SECONDS: Final = 12 * 3600
_SLOTS: Final = 4
_RUN, _VERIFY, _REMOVE = range(3)
_NEXT: Final = {_RUN: "run", _VERIFY: "verify", _REMOVE: "remove"}


def goal(found: Backup, _now: int) -> Goal | None:
    """Return the goal of a backup's next steps, or None if there is nothing to do."""
    if found.status == DELETING:
        return Goal("wait", _REMOVE)
    if found.status in ("pending", "running"):
        return Goal("wait", _RUN)
    return Goal("wait", _VERIFY) if found.verification in ("pending", "running") else None


async def _wait(found: Backup, needs: DatabaseNeeds, attempt: StepAttempt) -> Outcome:
    """Take the cluster's lock, or retry later; delete no base while incremental backups need it."""
    doing = attempt.goal.generation

    def take(tx: Connection) -> bool:
        if doing == _REMOVE and found.kind == "base" and rows.needing(tx, found):
            return False
        return rows.take_lock(tx, found)

    def begun(current: Backup, now: int) -> Backup:
        if doing == _RUN:
            return structs.replace(current, status="running", started_at=current.started_at or now)
        return structs.replace(current, verification="running") if doing == _VERIFY else current

    if not await needs.database.write(take):
        return StepRetry(seconds=_LOOK_SECONDS)
    return StepDone(change=begun, next=_NEXT[doing], keeps_faults=True)


async def _run(found: Backup, needs: DatabaseNeeds, attempt: StepAttempt) -> Outcome:
    """Make a backup, unless the archive has it already."""
    cluster, target = await _of(found, needs)
    try:
        made = await _listed(found, needs, target)
        if made is None:
            async with _progress_writer(found, needs) as on_progress:
                await needs.archive.back_up(target, found.id, found.kind, on_progress)
            made = await _listed(found, needs, target)
        if made is None:
            return _failed(needs, cluster, "the archive does not have it; it may be full")
    except BackupProgramMissing as error:
        return _failed(needs, cluster, str(error))
    except BackupFailed as error:
        if attempt.tries + 1 < TRIES:
            return StepRetry(faults=[Problem(BACKUP_FAILED, str(error))])
        return _failed(needs, cluster, str(error))
    base_id = None
    if made.base_label is not None:
        of = found.account_id, cluster.id, made.base_label
        base_id = await needs.database.read(rows.id_of_label, *of)
    return _succeeded(needs, cluster, made, base_id)


def _succeeded(
    needs: DatabaseNeeds, cluster: Cluster, made: ListedBackup, base_id: str | None
) -> Outcome:
    def changed(current: Backup, _now: int) -> Backup:
        return structs.replace(
            current,
            status="succeeded",
            progress=100,
            label=made.label,
            size_bytes=made.size_bytes,
            stored_bytes=made.stored_bytes,
            started_at=made.started_at,
            completed_at=made.completed_at,
            base_id=base_id if current.kind == "incremental" else None,
        )

    def also(tx: Connection, before: Backup, after: Backup) -> None:
        now = after.updated_at
        of = cluster.account_id, cluster.id
        if changed := CLUSTERS.change(tx, *of, lambda one: one.without_faults(BACKUP_FAILED), now):
            delete_all(tx, beyond_retention(tx, changed[1]), now)
        _release(tx, before, after)
        needs.events.emit(tx, after.account_id, SUCCEEDED, [told(after)], now)

    return StepDone(change=changed, also=also)


def _failed(needs: DatabaseNeeds, cluster: Cluster, words: str) -> Outcome:
    def changed(current: Backup, now: int) -> Backup:
        return structs.replace(current, status="failed", completed_at=now, base_id=None)

    def also(tx: Connection, before: Backup, after: Backup) -> None:
        now = after.updated_at
        note_failed(tx, cluster, words, now)
        _release(tx, before, after)
        needs.events.emit(tx, after.account_id, FAILED, [told(after)], now)

    return StepDone(change=changed, also=also, faults=[Problem(BACKUP_FAILED, words)])


async def _verify(found: Backup, needs: DatabaseNeeds, _attempt: StepAttempt) -> Outcome:
    """Restore a backup into a temporary server and read all its data; store the result."""
    cluster, target = await _of(found, needs)
    words, proof = "", None
    try:
        proof = await restore.prove(needs, cluster, target, found)
        if proof is None:
            return StepRetry(seconds=_LOOK_SECONDS)
    except ServerBusy:
        return StepRetry(seconds=_LOOK_SECONDS)
    except (BackupFailed, BackupProgramMissing, ServerFailed) as error:
        words = str(error)

    def changed(current: Backup, now: int) -> Backup:
        if words:
            return structs.replace(current, verification="failed")
        return structs.replace(
            current, verification="succeeded", verified_at=now, verified_by=proof
        )

    def also(tx: Connection, before: Backup, after: Backup) -> None:
        _release(tx, before, after)
        event = FAILED if words else VERIFIED
        needs.events.emit(tx, after.account_id, event, [told(after)], after.updated_at)

    faults = [Problem(VERIFICATION_FAILED, words)] if words else []
    return StepDone(change=changed, also=also, faults=faults)


async def _remove(found: Backup, needs: DatabaseNeeds, _attempt: StepAttempt) -> Outcome:
    cluster, target = await _of(found, needs)
    if found.verification == "running" and needs.servers is not None:
        try:  # stop the server that a killed service has left; only this row names it
            await needs.servers.remove(found.id, at_once=True)
        except ServerFailed as error:
            return _removed_later(str(error))
    if cluster.status == DELETING:  # the cluster's last step deletes all files
        return StepDone(also=_release)
    try:
        made = await _listed(found, needs, target)
        if made is not None:
            await needs.archive.remove(target, [made.label])
    except BucketGone:
        pass  # and with it the files of the backup
    except (BackupFailed, BackupProgramMissing) as error:
        return _removed_later(str(error))
    return StepDone(also=_release)


def _removed_later(words: str) -> Outcome:
    """Return an outcome that releases the cluster's lock and retries later.

    It wakes no other backup: two whose deletions fail would wake each other forever.
    """
    problem = Problem(DELETION_FAILED, words)
    return StepDone(
        next="wait",
        seconds=_LOOK_SECONDS,
        faults=[problem],
        also=lambda tx, _before, after: rows.release_lock(tx, after),
    )


def _release(tx: Connection, _before: Backup, after: Backup) -> None:
    """Release the lock of the cluster, and wake the backups that wait for it."""
    rows.release_lock(tx, after)
    for each in rows.waiting(tx, after.account_id, after.cluster.id):
        if each.id != after.id:
            BACKUP_WORK.wake(tx, each, after.updated_at)


def delete_all(tx: Connection, found: Sequence[Backup], now: int) -> None:
    """Begin the deletion of backups; ignore those that are gone."""
    for each in found:
        BACKUP_WORK.wake(tx, each, now)  # first: steps, too, lock the job before the record
        if locked := BACKUPS.try_lock(tx, each.account_id, each.id):
            BACKUP_WORK.delete(tx, locked, now)


def note_failed(tx: Connection, cluster: Cluster, words: str, now: int) -> None:
    """Add the fault `BACKUP_FAILED` to a cluster."""
    of = cluster.account_id, cluster.id
    CLUSTERS.change(tx, *of, lambda found: found.with_fault(BACKUP_FAILED, words, now), now)


def told(found: Backup) -> dict[str, object]:
    """Return the data of a backup's events."""
    return {
        "backup": {"id": found.id, "crn": found.crn, "kind": found.kind},
        "cluster": {"id": found.cluster.id, "name": found.cluster.name},
        "status": found.status,
        "verification": found.verification,
        "verified_by": found.verified_by,
        "faults": [{"code": each.code, "message": each.message} for each in found.faults],
    }


async def _of(found: Backup, needs: DatabaseNeeds) -> tuple[Cluster, BackupTarget]:
    cluster = await needs.database.read(CLUSTERS.find, found.account_id, found.cluster.id)
    assert cluster is not None  # it has backups
    return cluster, target_of(needs.keyring, cluster)


async def _listed(found: Backup, needs: DatabaseNeeds, target: BackupTarget) -> ListedBackup | None:
    listed = await needs.archive.listed(target)
    return next((each for each in listed if each.backup_id == found.id), None)


@asynccontextmanager
async def _progress_writer(
    found: Backup, needs: DatabaseNeeds
) -> AsyncIterator[Callable[[int], None]]:
    """Yield a function to report progress in percent to; store the latest every two seconds."""
    progress, changed = 0, asyncio.Event()

    def on_progress(percent: int) -> None:
        nonlocal progress
        progress = percent
        changed.set()

    async def store() -> None:
        while True:
            await changed.wait()
            changed.clear()
            with suppress(Unavailable):
                await needs.database.write_relaxed(
                    rows.set_progress, found, progress, needs.clock()
                )
            await asyncio.sleep(_TELL_SECONDS)

    task = asyncio.create_task(store(), name=f"progress of backup {found.id}")
    try:
        yield on_progress
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


BACKUP_WORK: Final[Work[Backup, DatabaseNeeds]] = Work(
    BACKUPS,
    goal=goal,
    steps={
        "wait": Step(_wait),
        "run": Step(_run, first_retry_seconds=30),
        "verify": Step(_verify),
        "remove": Step(_remove),
    },
    slots=_SLOTS,
    step_seconds=_STEP_SECONDS,
    node_of=lambda found: found.node,
)
PLACING: Final = Placing(BACKUPS, BACKUP_WORK.wake, None, lambda found: goal(found, 0) is not None)
