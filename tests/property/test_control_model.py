"""Both planes of a registry, on two workers, against `Model` after every step.

What `test_registry_model` proves of pushes and pulls, this proves of what happens to images
then: deletions, restorations, tags that move, pins, lifecycle runs, and time that passes.
``SOAK=20`` in the environment makes every machine run twenty times as many examples.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from cloudcore.wire import rfc3339
from registry.gc.purge import (
    forget_tag_history,
    purge_deleted_repositories,
    purge_deleted_tags,
    purge_tombstones,
)
from registry.services.lifecycle.runs import start_due_runs
from tests.property.control_comparison import PATH, STATUSES, TAGS, ComparingMachine
from tests.property.control_documents import BY_DIGEST, CONTENTS, DOCUMENTS, Document
from tests.property.control_model import ChangeContext, Outcome, Repository
from tests.property.control_world import check_rows, open_world, work
from tests.property.lifecycle_oracle import DAY
from tests.property.machines import run_machine
from tests.recount import check_counters
from tests.soak import time_limit

EXCLUSION: Final = "moving-*"
ORDER: Final = {digest: number for number, digest in enumerate(BY_DIGEST)}
"""Children before the indexes that list them."""

# One rule chooses among these: Hypothesis would leave out half of many rules in each example.
ACTIONS: Final = (
    *("push",) * 7,
    *("retag",) * 2,
    *("delete_image",) * 4,
    *("delete_tag",) * 3,
    *("batch_delete",) * 2,
    *("restore_images",) * 4,
    *("restore_tag",) * 2,
    *("delete_blob",) * 2,
    *("delete_repository", "restore_repository", "create_repository"),
    *("toggle_immutable", "pin", "pin", "pin", "unpin"),
    *("put_policy", "put_policy", "run_policy", "run_policy", "run_policy", "run_daily"),
    *("pass_time",) * 3,
    *("purge", "set_undelete_days", "switch_worker"),
)
POLICIES: Final[tuple[list[dict[str, Any]], ...]] = (
    [{"priority": 1, "selector": "untagged", "older_than_days": 1}],
    [{"priority": 1, "selector": "tagged", "keep_last": 1}],
    [{"priority": 1, "selector": "any", "older_than_days": 3}],
    [
        {"priority": 1, "selector": "any", "older_than_days": 1},
        {"priority": 2, "selector": "tagged", "tag_prefixes": ["v"], "action": "keep"},
    ],
    [
        {"priority": 1, "selector": "tagged", "tag_patterns": ["m*"], "older_than_days": 1},
        {"priority": 2, "selector": "untagged", "keep_last": 1},
    ],
)
SPANS: Final = tuple(minutes * 60 for minutes in (127, 1507, 1507, 11_587, 366 * 1440 + 67))
"""Seconds; no sum of some of them is about a whole number of days, where a rule has its limit."""

DATA_PLANE: Final = {
    Outcome.DONE: 202,
    Outcome.UNKNOWN: 404,
    Outcome.IMMUTABLE: 405,
    Outcome.LISTED: 405,
}
"""Of deletions on the data plane."""

NAMES = st.sampled_from(["app", "app", "lib"])
TAG = st.sampled_from(TAGS)


class ControlMachine(ComparingMachine):
    """Requests of both planes; the servers and the model must agree on each and after each."""

    @initialize(filled=st.sampled_from([True, True, False]), immutable=st.booleans())
    def open(self, filled: bool, immutable: bool) -> None:
        if not filled:
            return
        for number, document in enumerate(DOCUMENTS[:9]):
            self.put("app", document, TAGS[number % 4 : number % 4 + 1])
        if immutable:
            self.make_immutable(self.model.live["app"], [EXCLUSION])

    @rule(data=st.data(), action=st.sampled_from(ACTIONS))
    def act(self, data: st.DataObject, action: str) -> None:
        getattr(self, action)(data)

    def switch_worker(self, data: st.DataObject) -> None:
        del data
        self.worker = 1 - self.worker

    def draw_repository(self, data: st.DataObject) -> Repository:
        """Draw a repository that is there, made now if need be."""
        name = data.draw(NAMES)
        if name not in self.model.live:
            self.put(name, DOCUMENTS[0], TAGS[:1])
        self.touched = name
        return self.model.live[name]

    # Pushes

    def push(self, data: st.DataObject) -> None:
        name = data.draw(NAMES)
        here = self.model.live.get(name)
        again = [BY_DIGEST[digest] for digest in here.tombstones] if here else []
        document = data.draw(st.sampled_from(again if again and not likely(data, 2) else DOCUMENTS))
        self.put(name, document, data.draw(st.lists(TAG, max_size=2, unique=True)))

    def put(self, name: str, document: Document, tags: list[str] | tuple[str, ...]) -> None:
        """Push what a manifest refers to where it is missing, and then the manifest."""
        self.touched = name
        here = self.model.live.get(name)
        for digest in sorted(document.blobs - (here.blobs if here else set())):
            answer = self.send("POST", f"{name}/blobs/uploads/?digest={digest}", CONTENTS[digest])
            assert answer.status == 201
            self.repository_of_push(name).blobs.add(digest)
        for child in document.children:
            if here is None or child not in here.images:
                self.put(name, BY_DIGEST[child], [])
                here = self.model.live[name]
        query = "&".join(f"tag={tag}" for tag in tags)
        path = f"{name}/manifests/{document.digest}?{query}"
        answer = self.send("PUT", path, document.body, document.media_type)
        outcome = self.repository_of_push(name).put(document, tags, self.anyone)
        assert answer.status == (409 if outcome is Outcome.IMMUTABLE else 201)

    def repository_of_push(self, name: str) -> Repository:
        """Return the repository, which the push has made if it was not there."""
        if name not in self.model.live:
            (found,) = self.ask("GET", PATH, name=name).body["repositories"]
            self.model.live[name] = Repository(found["id"], name)
        return self.model.live[name]

    def retag(self, data: st.DataObject) -> None:
        repository, tag = self.draw_repository(data), data.draw(TAG)
        digest = self.draw_image(data, repository)
        reply = self.ask("PUT", f"{PATH}/{repository.id}/tags/{tag}", {"digest": digest})
        self.expect(reply, repository.retag(tag, digest, self.ours))

    def draw_image(self, data: st.DataObject, repository: Repository) -> str:
        """Draw a digest, mostly of an image that is there."""
        return self.draw_digest(data, list(repository.images))

    def draw_digest(self, data: st.DataObject, here: list[str]) -> str:
        pool = here if here and likely(data) else list(BY_DIGEST)
        return data.draw(st.sampled_from(pool))

    # Deletions

    def delete_image(self, data: st.DataObject) -> None:
        repository = self.draw_repository(data)
        free = [digest for digest in repository.images if not repository.parents_of(digest)]
        digest = self.draw_digest(data, free)
        self.delete(data, repository, digest)
        for child in BY_DIGEST[digest].children if data.draw(st.booleans()) else ():
            self.delete(data, repository, child)

    def delete(self, data: st.DataObject, repository: Repository, digest: str) -> None:
        """Delete an image, if that can be, on one of the planes."""
        on_data_plane, force = data.draw(st.booleans()), not likely(data)
        if on_data_plane:
            answer = self.send("DELETE", f"{repository.name}/manifests/{digest}")
            refusal = repository.refusal(digest, self.now, heeds_pins=False)
            assert answer.status == DATA_PLANE[refusal or Outcome.DONE]
        else:
            path = f"{PATH}/{repository.id}/images/{digest}"
            reply = self.ask("DELETE", path, **({"force": "true"} if force else {}))
            refusal = repository.refusal(digest, self.now, heeds_pins=True, force=force)
            parents = repository.parents_of(digest)
            self.expect(reply, refusal or Outcome.DONE, 200 if force and parents else 204)
            if reply.status == 200:
                told = [each["digest"] for each in reply.body["deleted"]["incomplete_indexes"]]
                assert told == sorted(parents)
        if refusal is None:
            change = self.anyone if on_data_plane else self.ours
            repository.soft_delete(digest, change, self.model.undelete_days)

    def delete_tag(self, data: st.DataObject) -> None:
        repository, tag = self.draw_repository(data), data.draw(TAG)
        days = self.model.undelete_days
        if data.draw(st.booleans()):
            answer = self.send("DELETE", f"{repository.name}/manifests/{tag}")
            assert answer.status == DATA_PLANE[repository.delete_tag(tag, self.anyone, days)]
        else:
            reply = self.ask("DELETE", f"{PATH}/{repository.id}/tags/{tag}")
            self.expect(reply, repository.delete_tag(tag, self.ours, days), 204)

    def batch_delete(self, data: st.DataObject) -> None:
        repository = self.draw_repository(data)
        pool = [*sorted(repository.images), DOCUMENTS[0].digest]
        digests = data.draw(st.lists(st.sampled_from(pool), max_size=4, unique=True))
        tags = data.draw(st.lists(TAG, max_size=2, unique=True))
        path = f"{PATH}/{repository.id}/images/batch-delete"
        force = not likely(data)
        query = {"force": "true"} if force else {}
        reply = self.ask("POST", path, {"digests": digests, "tags": tags}, **query)
        assert reply.status == 200
        lacking = {
            digest: sorted(set(repository.parents_of(digest)) - set(digests)) if force else []
            for digest in digests
        }
        deleted, failures = self.delete_all(repository, digests, tags, force=force)
        for each in reply.body["deleted"]:
            indexes = [index["digest"] for index in each.get("incomplete_indexes", ())]
            assert indexes in ([], lacking.get(each["digest"]))
            assert indexes or not lacking.get(each["digest"]) or each["digest"] not in digests
        told = [(each["digest"], sorted(each["tags"])) for each in reply.body["deleted"]]
        assert sorted(told) == sorted(deleted)
        refused = {each["digest"] or each["tag"]: each["code"] for each in reply.body["failures"]}
        assert refused == failures

    def delete_all(
        self, repository: Repository, digests: list[str], tags: list[str], *, force: bool = False
    ) -> tuple[list[tuple[str, list[str]]], dict[str, str]]:
        """Delete in the model what can be deleted, in whatever order that is."""
        deleted: list[tuple[str, list[str]]] = []
        # An index before its children, which it then brings back.
        waiting = sorted(digests, key=lambda digest: -ORDER[digest])

        def refusal(digest: str) -> Outcome | None:
            return repository.refusal(digest, self.now, heeds_pins=True, force=force)

        while free := [digest for digest in waiting if not refusal(digest)]:
            deleted.append((free[0], repository.tags_of(free[0])))
            repository.soft_delete(free[0], self.ours, self.model.undelete_days)
            waiting.remove(free[0])
        refusals = {digest: refusal(digest) for digest in waiting}
        failures = {digest: STATUSES[why][1] for digest, why in refusals.items() if why}
        gone = {tag for _, lost in deleted for tag in lost}
        for tag in tags:
            if tag in gone:
                continue
            digest = repository.tags.get(tag, ("", 0))[0]
            outcome = repository.delete_tag(tag, self.ours, self.model.undelete_days)
            if outcome is Outcome.DONE:
                deleted.append((digest, [tag]))
            else:
                failures[tag] = STATUSES[outcome][1]
        return deleted, failures

    def delete_blob(self, data: st.DataObject) -> None:
        repository = self.draw_repository(data)
        digest = data.draw(st.sampled_from(sorted(CONTENTS)))
        answer = self.send("DELETE", f"{repository.name}/blobs/{digest}")
        used = any(digest in image.document.blobs for image in repository.images.values())
        expected = 405 if used else 202 if digest in repository.blobs else 404
        assert answer.status == expected
        if expected == 202:
            repository.blobs.remove(digest)

    # Restorations

    def restore_images(self, data: st.DataObject) -> None:
        repository = self.draw_repository(data)
        if repository.images and not repository.restorable(self.now):
            self.delete(data, repository, repository.newest_first()[0])
        digests = [self.draw_digest(data, list(repository.tombstones)) for _ in range(2)]
        if not likely(data):
            self.let_pass(SPANS[3])
        path = f"{PATH}/{repository.id}/images/restore"
        reply = self.ask("POST", path, {"digests": digests})
        assert reply.status == 200, reply
        restored = [(each["digest"], each["tags"]) for each in reply.body["restored"]]
        failures = [(each["digest"], each["code"]) for each in reply.body["failures"]]
        for digest in dict.fromkeys(digests):
            plan = repository.plan(digest, self.now)
            if isinstance(plan, Outcome):
                if (digest, STATUSES[plan][1]) in failures:
                    failures.remove((digest, STATUSES[plan][1]))
                else:  # it came back with an index before it
                    assert plan is Outcome.CONFLICT
                    assert digest in repository.images
                continue
            # Which of an index's children comes first is not said.
            back, restored = restored[: len(plan)], restored[len(plan) :]
            assert {each for each, _ in back} == plan
            for each, tags in sorted(back, key=lambda told: ORDER[told[0]]):
                assert sorted(tags) == sorted(repository.restore_image(each, self.ours))
        assert (restored, failures) == ([], [])

    def restore_tag(self, data: st.DataObject) -> None:
        repository = self.draw_repository(data)
        restorable = sorted(repository.deleted_tags(self.now))
        tag = data.draw(st.sampled_from(restorable) if restorable and likely(data) else TAG)
        reply = self.ask("POST", f"{PATH}/{repository.id}/tags/{tag}/restore")
        self.expect(reply, repository.restore_tag(tag, self.ours))

    # Repositories

    def create_repository(self, data: st.DataObject) -> None:
        self.touched = data.draw(NAMES)
        reply = self.ask("POST", PATH, {"name": self.touched})
        if self.touched in self.model.live:
            self.expect(reply, Outcome.CONFLICT)
            return
        self.expect(reply, Outcome.NEW)
        made = reply.body["repository"]["id"]
        self.model.live[self.touched] = Repository(made, self.touched)

    def delete_repository(self, data: st.DataObject) -> None:
        repository, force = self.draw_repository(data), likely(data)
        path = f"{PATH}/{repository.id}"
        reply = self.ask("DELETE", path, **({"force": "true"} if force else {}))
        outcome = self.model.delete_repository(repository.name, self.now, force=force)
        self.expect(reply, outcome, 204)
        if outcome is Outcome.DONE:
            for gone in ("", "/images", "/tags", "/images/deleted", "/tags/v1/history"):
                self.expect(self.ask("GET", path + gone), Outcome.UNKNOWN)
            assert self.send("GET", f"{repository.name}/tags/list").status == 404

    def restore_repository(self, data: st.DataObject) -> None:
        if not self.model.deleted:
            self.delete_repository(data)
        deleted = list(self.model.deleted)  # in order of time: ids are random
        here = [each.id for each in self.model.everything]
        chosen = data.draw(st.sampled_from(deleted if deleted and likely(data) else here))
        reply = self.ask("POST", f"{PATH}/{chosen}/restore")
        self.expect(reply, self.model.restore_repository(chosen, self.now))
        if reply.status == 200:
            self.touched = reply.body["repository"]["name"]

    def toggle_immutable(self, data: st.DataObject) -> None:
        repository = self.draw_repository(data)
        self.make_immutable(repository, data.draw(st.sampled_from([None, [], [EXCLUSION]])))

    def make_immutable(self, repository: Repository, exclusions: list[str] | None) -> None:
        """Let no tags move but those excluded; None: let all move."""
        repository.is_immutable = exclusions is not None
        repository.exclusions = exclusions or []
        changes = {
            "tag_mutability": "immutable" if repository.is_immutable else "mutable",
            "immutable_tag_exclusions": repository.exclusions,
        }
        reply = self.ask("PATCH", f"{PATH}/{repository.id}", changes)
        self.expect(reply, Outcome.DONE)

    # Pins and lifecycle

    def pin(self, data: st.DataObject) -> None:
        repository = self.draw_repository(data)
        digest, name = self.draw_image(data, repository), data.draw(st.sampled_from("ab"))
        until = data.draw(st.sampled_from([None, self.now + 2 * DAY]))
        image = repository.images.get(digest)
        outcome = Outcome.UNKNOWN
        if image is not None:
            is_new = name not in image.held(self.now)
            outcome = Outcome.NEW if is_new else Outcome.DONE
            image.pins[name] = until
        document = {"expires_at": None if until is None else rfc3339(until)}
        path = f"{PATH}/{repository.id}/images/{digest}/pins/{name}"
        self.expect(self.ask("PUT", path, document), outcome)

    def unpin(self, data: st.DataObject) -> None:
        repository = self.draw_repository(data)
        pinned = [digest for digest, image in repository.images.items() if image.pins]
        digest, name = self.draw_digest(data, pinned), data.draw(st.sampled_from("ab"))
        image = repository.images.get(digest)
        is_there = image is not None and name in image.held(self.now)
        path = f"{PATH}/{repository.id}/images/{digest}/pins/{name}"
        self.expect(self.ask("DELETE", path), Outcome.DONE if is_there else Outcome.UNKNOWN, 204)
        if image is not None and is_there:
            del image.pins[name]

    def put_policy(self, data: st.DataObject) -> None:
        repository, rules = self.draw_repository(data), data.draw(st.sampled_from(POLICIES))
        path = f"{PATH}/{repository.id}/lifecycle-policy"
        self.expect(self.ask("PUT", path, {"rules": rules}), Outcome.DONE)
        if repository.rules is None:
            repository.next_run_at = self.now + DAY
        repository.rules = rules

    def run_policy(self, data: st.DataObject) -> None:
        repository = self.draw_repository(data)
        if repository.rules is None:
            self.put_policy(data)
            repository = self.model.live[self.touched]
        if data.draw(st.booleans()):
            self.let_pass(1507 * 60)
        self.preview(repository)
        path = f"{PATH}/{repository.id}/lifecycle-policy/runs"
        reply = self.ask("POST", path)
        self.expect(reply, Outcome.DONE, 202)
        self.world.run(work(self.world.installs[self.worker]))
        self.expire(repository)

    def preview(self, repository: Repository) -> None:
        """Check what the policy says that it would take."""
        path = f"{PATH}/{repository.id}/lifecycle-policy/preview"
        found = self.ask("POST", path, limit=200)
        self.expect(found, Outcome.DONE)
        expected = repository.expiring(self.now)
        assert {image["digest"] for image in found.body["images"]} == expected

    def run_daily(self, data: st.DataObject) -> None:
        """Start the runs whose time has come."""
        del data
        install = self.world.installs[self.worker]
        self.world.run(start_due_runs(install.ctx))
        self.world.run(work(install))
        for repository in self.model.everything:
            if repository.rules is not None and repository.next_run_at <= self.now:
                repository.next_run_at = self.now + DAY
                if repository.deleted_at is None:
                    self.expire(repository)

    def expire(self, repository: Repository) -> None:
        """Do in the model what the last run did."""
        path = f"{PATH}/{repository.id}/lifecycle-policy/runs"
        run = self.ask("GET", path, limit=1).body["runs"][0]
        gone = repository.expiring(self.now)
        assert (run["status"], run["expired"]) == ("succeeded", len(gone)), run
        principal = f"crn:registry:local:{self.tenant.account.id}:lifecycle-run/{run['id']}"
        for digest in sorted(gone, key=lambda digest: -ORDER[digest]):
            repository.soft_delete(
                digest, ChangeContext(principal, self.now), self.model.undelete_days
            )

    # Time

    def pass_time(self, data: st.DataObject) -> None:
        self.let_pass(data.draw(st.sampled_from(SPANS)))

    def let_pass(self, seconds: int) -> None:
        """Let time pass, and sign in again."""
        self.world.clock.advance(seconds)
        self.world.run(self.tenant.sign_in())

    def purge(self, data: st.DataObject) -> None:
        del data
        ctx = self.world.installs[self.worker].ctx
        for chore in (
            purge_deleted_repositories,
            purge_tombstones,
            purge_deleted_tags,
            forget_tag_history,
        ):
            self.world.run(chore(ctx))
        self.model.purge(self.now)

    def set_undelete_days(self, data: st.DataObject) -> None:
        days = data.draw(st.sampled_from([0, 1, 7]))
        reply = self.ask("PATCH", "/v1/registry-settings", {"undelete_days": days})
        self.expect(reply, Outcome.DONE)
        self.model.undelete_days = days

    # What everyone sees: after each step of the repository it touched, at the end of all

    @invariant()
    def the_servers_agree(self) -> None:
        self.steps += 1
        if self.touched in self.model.live:
            self.compare(self.model.live[self.touched])
        self.compare_repositories()
        query, handle = self.world.query, self.tenant.account.handle
        check_counters(query, handle)
        check_rows(query, handle, self.model.everything, self.now)

    def teardown(self) -> None:
        """Compare everything, and leave nothing that would go on working."""
        for repository in self.model.live.values():
            self.compare(repository)
            if repository.rules is not None:
                self.ask("DELETE", f"{PATH}/{repository.id}/lifecycle-policy")


def likely(data: st.DataObject, times: int = 7) -> bool:
    """Draw a truth that is so many times as often true as not."""
    return data.draw(st.integers(0, times)) < times


@time_limit(600)  # a failure takes minutes to be made small
@pytest.mark.parametrize(
    ("kind", "walks"),
    [("sqlite", 4), pytest.param("postgresql", 2, marks=pytest.mark.postgresql)],
)
def test_both_planes_are_their_model(request: pytest.FixtureRequest, kind: str, walks: int) -> None:
    with open_world(request.getfixturevalue(f"{kind}_database")) as world:
        run_machine(lambda: ControlMachine(world), walks, 50)
