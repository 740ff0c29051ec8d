"""Deletions, restorations, pushes, moves and purges at once: a race ends as some order would.

In each round some changes of one repository start together on two workers. What each answered,
and what the repository and its history are then, must be what `Repository` (the model of
`tests/property`) becomes in one of all their orders.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pytest

from registry.gc.purge import purge_tombstones
from tests.property.control_documents import CONTENTS, DOCUMENTS, Document
from tests.property.control_model import ChangeContext, Outcome, Repository
from tests.property.control_world import Tenant, World, open_world
from tests.property.lifecycle_oracle import DAY, HOUR
from tests.recount import check_counters
from tests.soak import time_limit, times

ROUNDS: Final = {"sqlite": times(8), "postgresql": times(16)}
"""SQLite has one writer at a time."""
TAGS: Final = ("v1", "v2")
ONE, TWO, INDEX = DOCUMENTS[0], DOCUMENTS[1], DOCUMENTS[5]
assert INDEX.children == (ONE.digest, TWO.digest)
UNDELETE: Final = 7 * DAY

Status = int | str | None
STATUSES: Final = {Outcome.UNKNOWN: 404, Outcome.CONFLICT: 409}


class Place(NamedTuple):
    """A repository, as one worker reaches it."""

    tenant: Tenant
    worker: int
    name: str
    id: str

    async def send(self, method: str, path: str, document: Document | None = None) -> Any:  # noqa: ANN401
        body, headers = b"", {}
        if document is not None:
            body, headers = document.body, {"content-type": document.media_type}
        target = f"/v2/{self.tenant.account.handle}/{self.name}/{path}"
        return await self.tenant.clients[self.worker].request(method, target, body, headers)

    async def ask(self, method: str, path: str, document: object = None, **query: object) -> Any:  # noqa: ANN401
        target = f"/v1/repositories/{self.id}{path}"
        return await self.tenant.ask(self.worker, method, target, document, query)


class Moment(NamedTuple):
    """What chance decides of a change in the model: when it looked at the clock, and an order."""

    now: int
    is_reversed: bool
    """In which order an index's children are restored, which is not said."""


class Change(NamedTuple):
    """A change, of the registry and of the model; both return what the client is told."""

    name: str
    ask: Callable[[Place], Awaitable[Status]]
    apply: Callable[[Repository, Moment], Status]


def by_status(
    name: str,
    apply: Callable[[Repository, Moment], Status],
    method: str,
    path: str,
    body: object = None,
    **query: object,
) -> Change:
    """Return a change that the control plane answers with its status alone."""

    async def ask(at: Place) -> Status:
        return int((await at.ask(method, path, body, **query)).status)

    return Change(name, ask, apply)


def delete(document: Document) -> Change:
    async def ask(at: Place) -> Status:
        return int((await at.send("DELETE", f"manifests/{document.digest}")).status)

    def apply(repository: Repository, moment: Moment) -> Status:
        refusal = repository.refusal(document.digest, moment.now, heeds_pins=False)
        if refusal is None:
            repository.soft_delete(document.digest, ChangeContext("", moment.now), UNDELETE // DAY)
        return {None: 202, Outcome.UNKNOWN: 404, Outcome.LISTED: 405}[refusal]

    return Change("delete", ask, of_live(apply))


def restore(document: Document) -> Change:
    async def ask(at: Place) -> Status:
        answer = await at.ask("POST", "/images/restore", {"digests": [document.digest]})
        if answer.status != 200:
            return int(answer.status)
        return next((str(each["code"]) for each in answer.body["failures"]), "RESTORED")

    def apply(repository: Repository, moment: Moment) -> Status:
        plan = repository.plan(document.digest, moment.now)
        if isinstance(plan, Outcome):
            return {Outcome.UNKNOWN: "NOT_FOUND", Outcome.CONFLICT: "CONFLICT"}[plan]
        children = sorted(plan - {document.digest}, reverse=moment.is_reversed)
        for digest in [*children, document.digest]:
            repository.restore_image(digest, ChangeContext("", moment.now))
        return "RESTORED"

    return Change("restore", ask, of_live(apply))


def push(document: Document, tag: str) -> Change:
    async def ask(at: Place) -> Status:
        return int((await at.send("PUT", f"manifests/{tag}", document)).status)

    def apply(repository: Repository, moment: Moment) -> Status:
        if document.digest not in repository.images and any(
            child not in repository.images for child in document.children
        ):
            return 404
        repository.put(document, [tag], ChangeContext("", moment.now))
        return 201

    return Change("push", ask, of_live(apply))


def move(tag: str, document: Document) -> Change:
    def apply(repository: Repository, moment: Moment) -> Status:
        outcome = repository.retag(tag, document.digest, ChangeContext("", moment.now))
        return {Outcome.NEW: 201, Outcome.DONE: 200, **STATUSES}[outcome]

    return by_status("move", of_live(apply), "PUT", f"/tags/{tag}", {"digest": document.digest})


def delete_tag(tag: str) -> Change:
    def apply(repository: Repository, moment: Moment) -> Status:
        outcome = repository.delete_tag(tag, ChangeContext("", moment.now), UNDELETE // DAY)
        return {Outcome.DONE: 204, **STATUSES}[outcome]

    return by_status("delete tag", of_live(apply), "DELETE", f"/tags/{tag}")


def restore_tag(tag: str) -> Change:
    def apply(repository: Repository, moment: Moment) -> Status:
        outcome = repository.restore_tag(tag, ChangeContext("", moment.now))
        return {Outcome.DONE: 200, **STATUSES}[outcome]

    return by_status("restore tag", of_live(apply), "POST", f"/tags/{tag}/restore")


def of_live(
    apply: Callable[[Repository, Moment], Status],
) -> Callable[[Repository, Moment], Status]:
    """Let a change find nothing in a deleted repository."""
    return lambda repository, moment: (
        404 if repository.deleted_at is not None else apply(repository, moment)
    )


async def _purge(at: Place) -> None:
    await purge_tombstones(at.tenant.world.installs[at.worker].ctx)


def _purged(repository: Repository, moment: Moment) -> None:
    repository.purge(moment.now)


def _deleted(repository: Repository, moment: Moment) -> Status:
    repository.deleted_at = moment.now
    return 204


def _restored(repository: Repository, moment: Moment) -> Status:
    del moment
    if repository.deleted_at is None:
        return 409
    repository.deleted_at = None
    return 200


PURGE: Final = Change("purge", _purge, _purged)
PUSHES: Final = (push(ONE, "v1"), push(TWO, "v1"), push(INDEX, "v2"))
CHANGES: Final = (
    *map(delete, (ONE, ONE, TWO, INDEX, INDEX)),
    *map(restore, (ONE, ONE, TWO, INDEX, INDEX)),
    *(move("v1", TWO), move("v2", ONE), delete_tag("v1"), restore_tag("v1"), restore_tag("v2")),
    PURGE,
)
OF_REPOSITORIES: Final = (
    by_status("delete repository", of_live(_deleted), "DELETE", "", force="true"),
    by_status("restore repository", _restored, "POST", "/restore"),
)


async def make_place(tenant: Tenant, name: str) -> tuple[Place, Repository]:
    """Make a repository with two images and an index of both, and its model."""
    reply = await tenant.ask(0, "POST", "/v1/repositories", {"name": name})
    place = Place(tenant, 0, name, reply.body["repository"]["id"])
    model = Repository(place.id, name, blobs=set(ONE.blobs | TWO.blobs))
    for digest in sorted(model.blobs):
        client, data = tenant.clients[0], CONTENTS[digest]
        path = f"/v2/{tenant.account.handle}/{name}/blobs/uploads/?digest={digest}"
        assert (await client.request("POST", path, data)).status == 201
    for change in (push(ONE, "v1"), push(TWO, "v2"), push(INDEX, "v2")):
        moment = Moment(tenant.world.clock.now, is_reversed=False)
        assert await change.ask(place) == change.apply(model, moment) == 201
    return place, model


async def prepare(
    place: Place, model: Repository, rng: random.Random, pool: Sequence[Change]
) -> Repository:
    """Make some changes one after another; return what the model may be then."""
    clock = place.tenant.world.clock
    models = [model]
    for change in rng.choices(pool, k=3):
        clock.advance(1800)
        told = await change.ask(place)
        seen = await state_of(place)
        models = [
            after
            for reverse in (False, True)
            for status, after in [applied(models[0], change, Moment(clock.now, reverse))]
            if status == told and snapshot(after) == seen
        ]
        assert models, change.name
    return models[0]


async def race(place: Place, model: Repository, changes: Sequence[Change]) -> None:
    """Make changes at once, and find an order that explains what came of it."""
    clock = place.tenant.world.clock
    near = min((tombstone.until for tombstone in model.tombstones.values()), default=0)
    if near and PURGE in changes:
        clock.now = near - HOUR
        await place.tenant.sign_in()
        clock.now = near - 20_000  # each look at the clock takes a thousand
        moments = [near - HOUR // 10, near + HOUR // 10]
    else:
        moments = [clock.now]
    told = await asyncio.gather(
        *(change.ask(place._replace(worker=n % 2)) for n, change in enumerate(changes))
    )
    seen = await state_of(place)
    for order in itertools.permutations(range(len(changes))):
        for answers, after in outcomes(model, [changes[n] for n in order], moments):
            if answers == [told[n] for n in order] and snapshot(after) == seen:
                return
    pytest.fail(f"no order of {[each.name for each in changes]} explains {told} and {seen}")


def outcomes(
    model: Repository, changes: Sequence[Change], moments: Sequence[int]
) -> Iterator[tuple[list[Status], Repository]]:
    """Yield what changes in this order can answer, and what can come of them."""
    if not changes:
        yield [], model
        return
    for moment in itertools.starmap(Moment, itertools.product(moments, (False, True))):
        status, after = applied(model, changes[0], moment)
        for answers, last in outcomes(after, changes[1:], moments):
            yield [status, *answers], last


def applied(model: Repository, change: Change, moment: Moment) -> tuple[Status, Repository]:
    """Return what a change answers, and what the model is after it."""
    after = copy.copy(model)
    after.images, after.tags = dict(model.images), dict(model.tags)
    after.tombstones, after.history = dict(model.tombstones), list(model.history)
    after.deleted = dict(model.deleted)
    return change.apply(after, moment), after


async def state_of(place: Place) -> Any:  # noqa: ANN401 - compared with `snapshot`
    """Return a repository as its rows have it."""
    query = place.tenant.world.query
    check_counters(query, place.tenant.account.handle)
    images = query("SELECT digest FROM manifests WHERE repository_id = ?", place.id)
    tags = query(
        "SELECT t.name, m.digest FROM tags t JOIN manifests m ON m.id = t.manifest_id"
        " WHERE t.repository_id = ?",
        place.id,
    )
    tombstones = query(
        "SELECT digest, tags FROM deleted_manifests WHERE repository_id = ?", place.id
    )
    history = query(
        "SELECT tag, action, digest, previous_digest FROM tag_events"
        " WHERE repository_id = ? ORDER BY sequence",
        place.id,
    )
    deleted = query(
        "SELECT name, digest, has_image FROM deleted_tags WHERE repository_id = ?", place.id
    )
    ((deleted_at,),) = query("SELECT deleted_at FROM repositories WHERE id = ?", place.id)
    assert len(tombstones) == len({digest for digest, _ in tombstones}), (
        "an image has two tombstones"
    )
    return (
        {digest for (digest,) in images},
        {row[0]: row[1] for row in tags},
        {digest: sorted(tag for tag, _ in json.loads(kept)) for digest, kept in tombstones},
        {row[0]: (row[1], bool(row[2])) for row in deleted},
        {tag: [tuple(row[1:]) for row in history if row[0] == tag] for tag in TAGS},
        deleted_at is not None,
    )


def snapshot(model: Repository) -> Any:  # noqa: ANN401 - compared with `state_of`
    """Return the model's part of what `state_of` returns."""
    return (
        set(model.images),
        {tag: digest for tag, (digest, _) in model.tags.items()},
        {digest: sorted(tombstone.tags) for digest, tombstone in model.tombstones.items()},
        {tag: (each.digest, each.digest in model.images) for tag, each in model.deleted.items()},
        {
            tag: [
                (each.action, each.digest, each.previous)
                for each in model.history
                if each.tag == tag
            ]
            for tag in TAGS
        },
        model.deleted_at is not None,
    )


async def play(world: World, pool: Sequence[Change], rounds: int) -> None:
    tenant = await Tenant.of(world)
    for number in range(rounds):
        rng = random.Random(number)
        if number % 5 == 0:
            await tenant.sign_in()
        place, model = await make_place(tenant, f"r{number}")
        model = await prepare(place, model, rng, pool)
        await race(place, model, rng.choices(pool, k=3))


@time_limit(300)
@pytest.mark.parametrize("pool", [(*CHANGES, *PUSHES), (*CHANGES, *OF_REPOSITORIES)])
def test_a_race_ends_as_some_order_would(database_url: str, pool: Sequence[Change]) -> None:
    with open_world(database_url) as world:
        world.run(play(world, pool, ROUNDS[database_url.partition(":")[0]]))
