"""Run lifecycle policies: on request or on schedule, one run at a time in a repository.

A run is a job. Its first step makes a plan. Each further step deletes a portion of the plan in one
transaction, which first selects again among the images of the portion and those they are compared
with. So a tag, a pull, a pin, an index or a subject that was added meanwhile keeps the image, and a
change or deletion of the policy stops the run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.jobs import runs
from cloudcore.jobs.kinds import Done, JobKind, Next, StepFailed
from cloudcore.jobs.queue import Job
from cloudcore.jobs.runs import NewRun, Progress, Run, run_kind
from registry.metadata.images import manifests
from registry.metadata.lifecycle import images as lifecycle_images
from registry.metadata.lifecycle import policies as lifecycle
from registry.metadata.repositories.live import Repository, lock_repository
from registry.services.access import repository_crn
from registry.services.audit import log_end, record_run
from registry.services.changes import Change
from registry.services.context import ServiceContext
from registry.services.events import LIFECYCLE_COMPLETED, RegistryEvent, publish
from registry.services.images.deletion import drop_image
from registry.services.lifecycle.plans import Cursor, Plan, Plans, divided_subjects
from registry.services.lifecycle.rules import RUN_EVERY, CompiledPolicy, no_policy, policy_of
from registry.services.lifecycle.scan import SELECTING, Images, read_all, read_some
from registry.services.lifecycle.selection import select
from registry.services.repositories.locks import lock_existing_repository

KIND: Final = "registry.lifecycle"
KEPT_SECONDS: Final = 90 * 24 * 3600
"""How long the runs of a repository are kept."""
COUNTS: Final = ("evaluated", "expired", "freed_bytes")
"""The counters of a run: images evaluated, images deleted, and bytes that will be freed."""
_DUE: Final = 50


class Portion(NamedTuple):
    """The images that one transaction of a run deletes if they still expire."""

    plan: Plan
    policy: CompiledPolicy
    ids: Sequence[str]
    subjects: Collection[str]
    is_last: bool


def lifecycle_kind(ctx: ServiceContext) -> JobKind:
    """Return the kind of job that runs lifecycle policies."""
    step = partial(run_step, ctx, Plans())
    return run_kind(
        KIND,
        step,
        database=ctx.database,
        clock=ctx.clock,
        ended=partial(_log_end, ctx),
        ending=partial(_record_end, ctx),
    )


def start_run(
    tx: Connection, repository_id: str, run_id: str, change: Change, revision: int | None = None
) -> Run:
    """Start a run of a repository's policy, or return the one that is running.

    Raises:
        NotFound: there is no such repository, or it has no policy.
        Conflict: the policy has another `revision` than the one that is given.

    """
    repository = lock_existing_repository(tx, repository_id)
    policy = lifecycle.find_policy(tx, repository_id)
    if revision is not None and policy is not None and policy.revision != revision:
        raise Conflict(
            f"the policy has revision {policy.revision} by now, not {revision}; preview it again",
            revision=policy.revision,
        )
    running = runs.find_running(tx, KIND, repository_id)
    if running is not None:
        return running
    if policy is None:
        raise no_policy()
    new = NewRun(
        id=run_id,
        kind=KIND,
        account_id=repository.account_id,
        scope_id=repository_id,
        resource=repository_crn(
            change.registry_host.region, repository.account_id, repository.name
        ),
        started_by=change.principal,
        started_by_source=change.stored_source,
        counts=COUNTS,
        kept_seconds=KEPT_SECONDS,
        arguments=policy.document,
    )
    return runs.start_run(tx, new, change.now)


async def start_due_runs(ctx: ServiceContext) -> int:
    """Start the runs that are due; return their number.

    Safe in several processes at once: each run is started by one of them. Each is started in a
    transaction of its own, which locks one repository.
    """
    started = 0
    while due := await ctx.database.read(lifecycle.list_due, ctx.clock(), _DUE):
        for repository_id in due:
            started += await ctx.database.write(
                _start_due_run, repository_id, ctx.new_id(), ctx.change_by("")
            )
    return started


def _start_due_run(tx: Connection, repository_id: str, run_id: str, change: Change) -> bool:
    is_live = lock_repository(tx, repository_id) is not None
    if not lifecycle.postpone(tx, repository_id, change.now, change.now + RUN_EVERY):
        return False
    return is_live and start_run(tx, repository_id, run_id, change).id == run_id


async def run_step(ctx: ServiceContext, plans: Plans, run: Run, job: Job) -> Next | Done:
    """Plan a run, in many reads, or return the change that deletes the next portion of its plan."""
    policy = policy_of(run.arguments)
    cursor = None if job.cursor is None else msgspec.convert(job.cursor, Cursor)
    plan = None if cursor is None else plans.find(cursor.plan)
    if cursor is None or plan is None:
        plan = await make_plan(ctx, run, policy, () if cursor is None else cursor.subjects)
        plans.keep(plan)
        evaluated = plan.evaluated if cursor is None else 0
        begin = partial(_begin, run, evaluated, len(plan.order))
        return Next(msgspec.to_builtins(plan.cursor(0)), begin)
    await plans.rest(plan.id)
    ids = plan.portion(cursor.position)
    position = cursor.position + len(ids)
    is_last = position >= len(plan.order)
    portion = Portion(plan, policy, ids, cursor.subjects, is_last)
    work = partial(delete_portion, run, portion, _change_by(ctx, run))
    if is_last:
        plans.drop(plan.id)
        return Done(work)
    plans.hand_over(plan.id)
    return Next(msgspec.to_builtins(plan.cursor(position)), work)


async def make_plan(
    ctx: ServiceContext, run: Run, policy: CompiledPolicy, subjects: Collection[str] = ()
) -> Plan:
    """Return the plan of a run; referrers of the digests in `subjects` expire too.

    It takes many reads: see `read_all`.
    """
    now = ctx.clock()
    read = await read_all(ctx.database, run.scope_id, policy, now, frozenset(subjects))
    selection = await SELECTING.run(run.scope_id, select, policy, *read, now)
    return Plan(
        id=ctx.new_id(),
        moment=now,
        evaluated=len(read.images),
        order=list(selection.expired),
        newest=selection.newest,
        subjects=await divided_subjects(ctx.database, run.scope_id, selection, subjects),
    )


def delete_portion(run: Run, portion: Portion, change: Change, tx: Connection) -> None:
    """Delete the images of a portion that still expire.

    Raises:
        StepFailed: the repository was deleted, or the policy was changed or deleted.

    """
    repository = lock_repository(tx, run.scope_id)
    if repository is None:
        raise StepFailed("REPOSITORY_DELETED", "the repository is gone", is_permanent=True)
    policy = lifecycle.find_policy(tx, run.scope_id)
    if policy is None or policy.document != run.arguments:
        raise StepFailed("POLICY_CHANGED", "the policy was changed or deleted", is_permanent=True)
    expired = _still_expired(tx, run, portion, change.now)
    events, counts = _delete(tx, repository, expired, change)
    runs.progress_run(tx, run.id, Progress(counts, done=run.done + len(portion.ids)))
    if portion.is_last:
        events.append(RegistryEvent(LIFECYCLE_COMPLETED))
    publish(tx, change, repository, events)


def _still_expired(tx: Connection, run: Run, portion: Portion, now: int) -> list[str]:
    """Select again among the images of a portion and those they are compared with."""
    known: Images = Images([], {})
    ids = set(portion.ids)
    wanted: set[str] = set()
    while not ids <= wanted:
        wanted |= ids
        known = read_some(
            tx,
            run.scope_id,
            portion.policy,
            sorted(wanted),
            now,
            planned_at=portion.plan.moment,
            subjects=portion.subjects,
        )
        # A rule with `keep_last` compares the images that it selects with the newest that it keeps.
        seen = {number for image in known.images for number in _numbers(image.rules)}
        ids = {name for number in seen for name in portion.plan.newest.get(number, ())}
    going = set(portion.ids)
    images = [image._replace(is_excluded=image.id not in going) for image in known.images]
    return list(select(portion.policy, images, known.children, portion.plan.moment).expired)


def _delete(
    tx: Connection, repository: Repository, ids: Sequence[str], change: Change
) -> tuple[list[RegistryEvent], dict[str, int]]:
    """Delete images; return the events to publish and the counters of the run."""
    events: list[RegistryEvent] = []
    digests = lifecycle_images.digests_of(tx, repository.id, ids)
    rows = manifests.find_manifests(tx, repository.id, list(digests.values()))
    freed = 0
    for name in ids:
        freed += lifecycle_images.sole_bytes(tx, name)
        events += drop_image(tx, repository, rows[digests[name]], change)
    return events, {"expired": len(ids), "freed_bytes": freed}


def _begin(run: Run, evaluated: int, planned: int, tx: Connection) -> None:
    # `run.done` is what earlier plans did, made by processes that died.
    progress = Progress({"evaluated": evaluated}, total=run.done + planned)
    runs.progress_run(tx, run.id, progress)


def _log_end(ctx: ServiceContext, run: Run) -> None:
    log_end(ctx, "lifecycle run", run, repository_id=run.scope_id, **run.counts)


def _record_end(ctx: ServiceContext, tx: Connection, run: Run, job: Job) -> None:
    if ctx.audits:
        record_run("registry:RunLifecyclePolicy", _crn_of(ctx, run), ("expired",), tx, run, job)


def _change_by(ctx: ServiceContext, run: Run) -> Change:
    return ctx.change_by(_crn_of(ctx, run))


def _crn_of(ctx: ServiceContext, run: Run) -> str:
    return f"crn:registry:{ctx.registry_host.region}:{run.account_id}:lifecycle-run/{run.id}"


def _numbers(rules: int) -> list[int]:
    return [number for number in range(rules.bit_length()) if rules >> number & 1]
