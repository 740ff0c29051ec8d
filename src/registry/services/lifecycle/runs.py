"""Run lifecycle policies: on request or on schedule, one run at a time in a repository.

A run is a job. Its first step makes a plan. Each further step deletes a portion of the plan in one
transaction, which first evaluates the rules again for the images of the portion and those they are
compared with. So a tag, pull, pin, index or subject added meanwhile saves the image, and a change
or deletion of the policy stops the run.

A plan is in the memory of the process that runs it. Another process can compute it again, with one
exception: referrers expire with their subject, and once a portion has deleted the subject, the
database no longer shows that the subject's remaining referrers must expire too. So the cursor
stores the subjects whose referrers are in later portions.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from cloudcore.db.base import Connection, Database
from cloudcore.errors import Conflict
from cloudcore.jobs import runs
from cloudcore.jobs.kinds import Done, JobKind, Next, StepFailed
from cloudcore.jobs.queue import Job
from cloudcore.jobs.runs import Progress, Run
from registry.metadata import lifecycle_policies
from registry.metadata.images import manifests
from registry.metadata.lifecycle_policies import digests_of
from registry.metadata.repositories.repository import Repository, lock_repository
from registry.services.changes import Change
from registry.services.context import ServiceContext
from registry.services.events import LIFECYCLE_COMPLETED, RegistryEvent, publish
from registry.services.images.deletion import drop_image
from registry.services.lifecycle.rules import RUN_EVERY, CompiledPolicy, no_policy, policy_of
from registry.services.lifecycle.scan import SELECTING, ScannedImages, read_all, read_some
from registry.services.lifecycle.selection import Expired, Selection, select
from registry.services.repositories.names import lock_existing_repository
from registry.services.runs import RegistryRuns

PORTION: Final = 50
"""The maximum number of images that one transaction deletes."""
_REST: Final = 3
"""The pause after a portion, as a multiple of its duration: on SQLite, pushes need the same writer
and would take many times as long without a pause."""
_LONGEST_REST: Final = 5.0
"""The longest pause, in seconds."""
_CHUNK: Final = 500
_KEPT: Final = 8


class Cursor(msgspec.Struct, frozen=True):
    """The position of a run in its plan."""

    plan: str
    """Id of the plan that `position` belongs to."""
    position: int
    subjects: Sequence[str] = ()
    """Digests of expired or expiring images that have referrers at or after `position`."""


class DeletionPlan(NamedTuple):
    """The images that a run will delete, in order."""

    id: str
    moment: int
    """The time from which ages are measured, in microseconds since the epoch."""
    evaluated: int
    """The number of images in the repository."""
    order: Sequence[str]
    """The ids of the expiring images, in an order in which they can be deleted."""
    newest: Mapping[int, Sequence[str]]
    """The ids that each rule's `keep_last` keeps, by the rule's number (see `Selection`)."""
    subjects: Mapping[int, Collection[str]]
    """For each position between portions, the digests of subjects before it whose referrers come
    after it."""

    def portion(self, position: int) -> Sequence[str]:
        """Return the ids that one transaction deletes, from `position` on."""
        return self.order[position : position + PORTION]

    def cursor(self, position: int) -> Cursor:
        """Return the cursor to store once the run has reached `position`."""
        return Cursor(self.id, position, sorted(self.subjects.get(position, ())))


class Plans:
    """A small cache of the plans of this process's runs; it also paces the runs."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, DeletionPlan] = OrderedDict()
        self._handed_over: dict[str, float] = {}

    def find(self, plan_id: str) -> DeletionPlan | None:
        """Return a plan if this process made it and still has it, else None."""
        return self._kept.get(plan_id)

    def keep(self, plan: DeletionPlan) -> None:
        """Store a plan; remove the oldest if there are more than 8."""
        self._kept[plan.id] = plan
        if len(self._kept) > _KEPT:
            self.drop(next(iter(self._kept)))

    def drop(self, plan_id: str) -> None:
        """Remove a plan."""
        self._kept.pop(plan_id, None)
        self._handed_over.pop(plan_id, None)

    def hand_over(self, plan_id: str) -> None:
        """Record that the deletion of a portion begins now; `rest` measures from here."""
        self._handed_over[plan_id] = time.monotonic()

    async def rest(self, plan_id: str) -> None:
        """Wait 3 times as long as the last portion took, up to 5 s, so that others can write."""
        begun = self._handed_over.pop(plan_id, None)
        if begun is not None:
            await asyncio.sleep(min(_REST * (time.monotonic() - begun), _LONGEST_REST))


async def _divided_subjects(
    database: Database, repository_id: str, selection: Selection, orphaned: Collection[str]
) -> dict[int, set[str]]:
    """Map each position between portions to the subjects' digests that the cursor there must store.

    `orphaned` are subjects from the cursor of an earlier plan; every position up to their last
    referrer has them. Each chunk is a transaction of its own, so that other requests run in
    between.
    """
    order = list(selection.expired)
    divided = _divided(selection.expired, order)
    ids = sorted({subject for subjects in divided.values() for subject in subjects})
    digests: dict[str, str] = {}
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        digests |= await database.read(digests_of, repository_id, chunk)
    found = {
        position: {digests[each] for each in subjects if each in digests}
        for position, subjects in divided.items()
    }
    followers = [place for place, each in enumerate(order) if selection.expired[each].rule is None]
    if followers:
        for position in range(0, followers[-1] + 1, PORTION):
            found.setdefault(position, set()).update(orphaned)
    return found


def _divided(expired: Mapping[str, Expired], order: Sequence[str]) -> dict[int, set[str]]:
    """Map positions to the ids of subjects before them that still have referrers after them."""
    last = {}
    for place, name in enumerate(order):
        subject = expired[name].subject
        if subject is not None:
            last[subject] = place
    divided = defaultdict(set)
    for place, name in enumerate(order):
        for position in range((place // PORTION + 1) * PORTION, last.get(name, 0) + 1, PORTION):
            divided[position].add(name)
    return divided


KIND: Final = "registry.lifecycle"
RUNS: Final = RegistryRuns(
    KIND,
    words="lifecycle run",
    type="lifecycle-run",
    action="registry:RunLifecyclePolicy",
    counts=("evaluated", "expired", "freed_bytes"),
    deletions=("expired",),
    kept_days=90,
)
"""Runs that count images evaluated, images deleted, and bytes that will be freed."""
_DUE: Final = 50


class Portion(NamedTuple):
    """The images that one transaction deletes, if they are still to expire."""

    plan: DeletionPlan
    policy: CompiledPolicy
    ids: Sequence[str]
    subjects: Collection[str]
    is_last: bool


def lifecycle_kind(ctx: ServiceContext) -> JobKind:
    """Return the kind of job that runs lifecycle policies."""
    return RUNS.job_kind(ctx, partial(run_step, ctx, Plans()))


def start_run(
    tx: Connection, repository_id: str, run_id: str, change: Change, revision: int | None = None
) -> Run:
    """Start a run of a repository's policy, or return the running one.

    Raise `NotFound` if there is no such repository, or it has no policy; `Conflict` if the policy
    has another revision than `revision`.
    """
    repository = lock_existing_repository(tx, repository_id)
    policy = lifecycle_policies.find_lifecycle_policy(tx, repository_id)
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
    scope = repository_id, repository.name
    return RUNS.start(tx, repository.account_id, scope, run_id, change, policy.document)


async def start_due_runs(ctx: ServiceContext) -> int:
    """Start all due runs; return the number of started runs.

    Several processes may call this at once: only one starts a given run. Each start is a separate
    transaction, which locks one repository.
    """
    started = 0
    while due := await ctx.database.read(lifecycle_policies.list_due, ctx.clock(), _DUE):
        for repository_id in due:
            started += await ctx.database.write(
                _start_due_run, repository_id, ctx.new_id(), ctx.change_by("")
            )
    return started


def _start_due_run(tx: Connection, repository_id: str, run_id: str, change: Change) -> bool:
    is_live = lock_repository(tx, repository_id) is not None
    if not lifecycle_policies.postpone(tx, repository_id, change.now, change.now + RUN_EVERY):
        return False
    return is_live and start_run(tx, repository_id, run_id, change).id == run_id


async def run_step(ctx: ServiceContext, plans: Plans, run: Run, job: Job) -> Next | Done:
    """Plan a run, in many reads, or return the change that deletes the next portion of its plan."""
    policy = policy_of(run.arguments)
    cursor = None if job.cursor is None else msgspec.convert(job.cursor, Cursor)
    plan = None if cursor is None else plans.find(cursor.plan)
    if cursor is None or plan is None:
        plan = await _make_plan(ctx, run, policy, () if cursor is None else cursor.subjects)
        plans.keep(plan)
        evaluated = plan.evaluated if cursor is None else 0
        begin = partial(_begin, run, evaluated, len(plan.order))
        return Next(msgspec.to_builtins(plan.cursor(0)), begin)
    await plans.rest(plan.id)
    ids = plan.portion(cursor.position)
    position = cursor.position + len(ids)
    is_last = position >= len(plan.order)
    portion = Portion(plan, policy, ids, cursor.subjects, is_last)
    work = partial(_delete_portion, run, portion, ctx.change_by(RUNS.crn_of(ctx, run)))
    if is_last:
        plans.drop(plan.id)
        return Done(work)
    plans.hand_over(plan.id)
    return Next(msgspec.to_builtins(plan.cursor(position)), work)


async def _make_plan(
    ctx: ServiceContext, run: Run, policy: CompiledPolicy, subjects: Collection[str]
) -> DeletionPlan:
    """Make the plan of a run; referrers of the digests in `subjects` expire too.

    There are many read transactions; see `read_all`.
    """
    now = ctx.clock()
    read = await read_all(ctx.database, run.scope_id, policy, now, frozenset(subjects))
    selection = await SELECTING.run(run.scope_id, select, policy, *read, now)
    return DeletionPlan(
        id=ctx.new_id(),
        moment=now,
        evaluated=len(read.images),
        order=list(selection.expired),
        newest=selection.newest,
        subjects=await _divided_subjects(ctx.database, run.scope_id, selection, subjects),
    )


def _delete_portion(run: Run, portion: Portion, change: Change, tx: Connection) -> None:
    """Delete the images of a portion that still expire.

    Raise `StepFailed` if the repository was deleted, or the policy was changed or deleted.
    """
    repository = lock_repository(tx, run.scope_id)
    if repository is None:
        raise StepFailed("REPOSITORY_DELETED", "the repository is gone", is_permanent=True)
    policy = lifecycle_policies.find_lifecycle_policy(tx, run.scope_id)
    if policy is None or policy.document != run.arguments:
        raise StepFailed("POLICY_CHANGED", "the policy was changed or deleted", is_permanent=True)
    expired = _still_expired(tx, run, portion, change.now)
    events, counts = _delete(tx, repository, expired, change)
    runs.progress_run(tx, run.id, Progress(counts, done=run.done + len(portion.ids)))
    if portion.is_last:
        events.append(RegistryEvent(LIFECYCLE_COMPLETED))
    publish(tx, change, repository, events)


def _still_expired(tx: Connection, run: Run, portion: Portion, now: int) -> list[str]:
    """Evaluate the rules again for a portion's images; return the ids that still expire."""
    known: ScannedImages = ScannedImages([], {})
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
        ids = {
            name
            for number, names in portion.plan.newest.items()
            if any(image.rules >> number & 1 for image in known.images)
            for name in names
        }
    going = set(portion.ids)
    images = [image._replace(is_excluded=image.id not in going) for image in known.images]
    return list(select(portion.policy, images, known.children, portion.plan.moment).expired)


def _delete(
    tx: Connection, repository: Repository, ids: Sequence[str], change: Change
) -> tuple[list[RegistryEvent], dict[str, int]]:
    """Delete images; return the events to publish and the counts for the run."""
    events: list[RegistryEvent] = []
    digests = lifecycle_policies.digests_of(tx, repository.id, ids)
    rows = manifests.find_manifests(tx, repository.id, list(digests.values()))
    freed = 0
    for name in ids:
        freed += lifecycle_policies.sole_bytes(tx, name)
        events += drop_image(tx, repository, rows[digests[name]], change)
    return events, {"expired": len(ids), "freed_bytes": freed}


def _begin(run: Run, evaluated: int, planned: int, tx: Connection) -> None:
    # `run.done` counts images of earlier plans, whose processes died.
    progress = Progress({"evaluated": evaluated}, total=run.done + planned)
    runs.progress_run(tx, run.id, progress)
