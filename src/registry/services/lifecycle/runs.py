"""Runs of lifecycle policies: started by hand or by the clock, one at a time in a repository.

A run is a job. Its first step plans; each further step deletes a portion of the plan in one
transaction, in which the selection is made again of what is to go and what it was measured
against, as these are by then. So a tag, a pull, a pin, an index or a subject that came meanwhile
saves the image, and a policy that was changed or taken away stops the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from cloudcore.db.base import Connection
from cloudcore.errors import NotFound
from cloudcore.jobs.kinds import Done, JobKind, Next
from cloudcore.jobs.queue import Job, NewJob, enqueue
from registry.metadata.images import manifests
from registry.metadata.lifecycle import images as lifecycle_images
from registry.metadata.lifecycle import policies as lifecycle
from registry.metadata.lifecycle.policies import Run
from registry.metadata.repositories.live import Repository, lock_repository
from registry.services.access import repository_crn
from registry.services.changes import Change
from registry.services.context import ServiceContext
from registry.services.events import LIFECYCLE_COMPLETED, RegistryEvent, publish
from registry.services.images.deletion import delete_image
from registry.services.lifecycle.plans import Cursor, Plan, Plans, divided_subjects
from registry.services.lifecycle.policies import RUN_EVERY, no_policy
from registry.services.lifecycle.rules import DAY, LifecyclePolicy, policy_of
from registry.services.lifecycle.scan import Images, read_all, read_some
from registry.services.lifecycle.selection import select
from registry.services.run_log import log_end

KIND: Final = "registry.lifecycle"
MAX_ATTEMPTS: Final = 10
"""How often one step is tried before the run fails."""
KEPT: Final = 90 * DAY
"""How long a repository's runs are remembered."""
_DUE: Final = 50


class Arguments(msgspec.Struct, frozen=True):
    """Which run a job is."""

    run_id: str
    repository_id: str


class Portion(NamedTuple):
    """What one transaction of a run deletes, if it is still to go."""

    plan: Plan
    policy: LifecyclePolicy
    ids: Sequence[str]
    subjects: Collection[str]
    is_last: bool


def lifecycle_kind(ctx: ServiceContext) -> JobKind:
    """Return the kind of job that runs policies."""
    # The run itself must end with its job: so the step, and not the queue, gives up.
    return JobKind(name=KIND, step=partial(run_step, ctx, Plans()), max_attempts=None)


def start_run(tx: Connection, repository_id: str, run_id: str, act: Change) -> Run:
    """Start a run of a repository's policy, or join the one under way, and return it.

    Raises:
        NotFound: there is no such repository, or it has no policy.

    """
    repository = lock_repository(tx, repository_id)
    if repository is None:
        raise NotFound("there is no such repository")
    running = lifecycle.find_running(tx, repository_id)
    if running is not None:
        return running
    policy = lifecycle.find_policy(tx, repository_id)
    if policy is None:
        raise no_policy()
    lifecycle.forget_runs(tx, repository_id, act.now - KEPT)
    lifecycle.add_run(tx, run_id, repository_id, policy.document, act.principal, act.now)
    job = NewJob(
        KIND,
        Arguments(run_id, repository_id),
        account_id=repository.account_id,
        resource=repository_crn(act.site.region, repository.account_id, repository.name),
    )
    enqueue(tx, job, act.now)
    run = lifecycle.find_run(tx, repository_id, run_id)
    assert run is not None
    return run


def get_run(tx: Connection, repository_id: str, run_id: str) -> Run:
    """Return a run of a repository, or raise `NotFound`."""
    run = lifecycle.find_run(tx, repository_id, run_id)
    if run is None:
        raise NotFound("the repository has no such run")
    return run


async def start_due_runs(ctx: ServiceContext) -> int:
    """Start the runs whose time has come, and return how many they are.

    Any number of processes may do so at once: each run is started by one of them.
    """
    started = 0
    while due := await ctx.database.read(lifecycle.list_due, ctx.clock(), _DUE):
        for repository_id in due:
            started += await ctx.database.write(
                _start_due_run, repository_id, ctx.new_id(), ctx.act("")
            )
    return started


def _start_due_run(tx: Connection, repository_id: str, run_id: str, act: Change) -> bool:
    is_live = lock_repository(tx, repository_id) is not None
    if not lifecycle.postpone(tx, repository_id, act.now, act.now + RUN_EVERY):
        return False
    return is_live and start_run(tx, repository_id, run_id, act).id == run_id


async def run_step(ctx: ServiceContext, plans: Plans, job: Job) -> Next | Done:
    """Plan a run, or delete the next portion of its plan."""
    arguments = msgspec.convert(job.arguments, Arguments)
    if job.attempts > MAX_ATTEMPTS:
        fault = f"{job.fault.code}: {job.fault.message}" if job.fault else "WORKER_LOST"
        return Done(partial(_fail, arguments, fault, ctx.clock()), partial(_log_end, job))
    run = await ctx.database.read(lifecycle.find_run, arguments.repository_id, arguments.run_id)
    if run is None or run.status != "running":
        return Done()
    policy = policy_of(run.document)
    cursor = None if job.cursor is None else msgspec.convert(job.cursor, Cursor)
    plan = None if cursor is None else plans.find(cursor.plan)
    if cursor is None or plan is None:
        plan = await make_plan(ctx, run, policy, () if cursor is None else cursor.subjects)
        plans.keep(plan)
        evaluated = plan.evaluated if cursor is None else 0
        return Next(msgspec.to_builtins(plan.cursor(0)), partial(_begin, arguments, evaluated))
    await plans.rest(plan.id)
    ids = plan.portion(cursor.position)
    position = cursor.position + len(ids)
    is_last = position >= len(plan.order)
    portion = Portion(plan, policy, ids, cursor.subjects, is_last)
    change = partial(delete_portion, run, portion, _act(ctx, run, job))
    if is_last:
        plans.drop(plan.id)
        return Done(change, partial(_log_end, job))
    plans.hand_over(plan.id)
    cursor_after = msgspec.to_builtins(plan.cursor(position))
    return Next(cursor_after, change, committed=partial(_log_end, job))


async def make_plan(
    ctx: ServiceContext, run: Run, policy: LifecyclePolicy, subjects: Collection[str] = ()
) -> Plan:
    """Return what a run is going to do; `subjects` are digests whose referrers are to follow."""
    now = ctx.clock()
    read = await read_all(ctx.database, run.repository_id, policy, now, frozenset(subjects))
    selection = await asyncio.to_thread(select, policy, *read, now)
    return Plan(
        id=ctx.new_id(),
        moment=now,
        evaluated=len(read.images),
        order=list(selection.expired),
        newest=selection.newest,
        subjects=await divided_subjects(ctx.database, run.repository_id, selection, subjects),
    )


def delete_portion(run: Run, portion: Portion, act: Change, tx: Connection) -> Run | None:
    """Delete what of a portion must still go; return the run if it has ended with that.

    With its last portion the run has succeeded.
    """
    repository = lock_repository(tx, run.repository_id)
    if repository is None:
        return lifecycle.finish_run(
            tx, run.repository_id, run.id, act.now, "REPOSITORY_DELETED: the repository is gone"
        )
    policy = lifecycle.find_policy(tx, run.repository_id)
    if policy is None or policy.document != run.document:
        return lifecycle.finish_run(
            tx, run.repository_id, run.id, act.now, "POLICY_CHANGED: the policy is another by now"
        )
    events = _delete(tx, repository, run, _still_expired(tx, run, portion, act.now), act)
    ended = None
    if portion.is_last:
        ended = lifecycle.finish_run(tx, run.repository_id, run.id, act.now)
        events.append(RegistryEvent(LIFECYCLE_COMPLETED))
    publish(tx, act, repository, events)
    return ended


def _still_expired(tx: Connection, run: Run, portion: Portion, now: int) -> list[str]:
    """Select again, of a portion and of what its images are measured against."""
    known: Images = Images([], {})
    ids = set(portion.ids)
    wanted: set[str] = set()
    while not ids <= wanted:
        wanted |= ids
        known = read_some(
            tx,
            run.repository_id,
            portion.policy,
            sorted(wanted),
            now,
            planned_at=portion.plan.moment,
            subjects=portion.subjects,
        )
        # Whatever rule sees an image measures it against the newest that the rule keeps.
        seen = {number for image in known.images for number in _numbers(image.rules)}
        ids = {name for number in seen for name in portion.plan.newest.get(number, ())}
    going = set(portion.ids)
    images = [image._replace(is_spared=image.id not in going) for image in known.images]
    return list(select(portion.policy, images, known.children, portion.plan.moment).expired)


def _delete(
    tx: Connection, repository: Repository, run: Run, ids: Sequence[str], act: Change
) -> list[RegistryEvent]:
    """Delete images and count what that frees."""
    events: list[RegistryEvent] = []
    digests = lifecycle_images.digests_of(tx, repository.id, ids)
    rows = manifests.find_manifests(tx, repository.id, list(digests.values()))
    freed = 0
    for name in ids:
        freed += lifecycle_images.sole_bytes(tx, name)
        events += delete_image(tx, repository, rows[digests[name]], act)
    lifecycle.advance_run(tx, repository.id, run.id, expired=len(ids), freed_bytes=freed)
    return events


def _begin(arguments: Arguments, evaluated: int, tx: Connection) -> None:
    lifecycle.advance_run(tx, arguments.repository_id, arguments.run_id, evaluated=evaluated)


def _fail(arguments: Arguments, fault: str, now: int, tx: Connection) -> Run | None:
    return lifecycle.finish_run(tx, arguments.repository_id, arguments.run_id, now, fault)


def _log_end(job: Job, run: Run | None) -> None:
    if run is not None:
        log_end(
            "lifecycle run",
            run,
            account_id=job.account_id or "",
            repository_id=run.repository_id,
            evaluated=run.evaluated,
            expired=run.expired,
            freed_bytes=run.freed_bytes,
        )


def _act(ctx: ServiceContext, run: Run, job: Job) -> Change:
    region = ctx.site.region
    return ctx.act(f"crn:registry:{region}:{job.account_id}:lifecycle-run/{run.id}")


def _numbers(rules: int) -> list[int]:
    return [number for number in range(rules.bit_length()) if rules >> number & 1]
