"""What both planes show of an account against `Model`: the part of the machine that looks."""

from __future__ import annotations

from typing import Any, Final

from hypothesis.stateful import RuleBasedStateMachine

from tests.inprocess import Answer
from tests.property.control_documents import BY_DIGEST, DOCUMENTS
from tests.property.control_model import ChangeContext, Model, Outcome, Repository
from tests.property.control_world import Reply, Tenant, World

TAGS: Final = ("v1", "v2", "moving-1")
PREFIXES: Final = ("v", "m", "v1")
PATH: Final = "/v1/repositories"
STATUSES: Final = {
    Outcome.UNKNOWN: (404, "NOT_FOUND"),
    Outcome.IMMUTABLE: (409, "CONFLICT"),
    Outcome.LISTED: (409, "CONFLICT"),
    Outcome.PINNED: (409, "CONFLICT"),
    Outcome.CONFLICT: (409, "CONFLICT"),
}
"""Of refusals on the control plane."""


class ComparingMachine(RuleBasedStateMachine):
    """Asks the workers in turn, and knows what each list and counter must be."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.model = Model()
        self.worker = 0
        self.touched = "app"
        self.steps = 0
        self.tenant = world.run(Tenant.of(world))

    @property
    def now(self) -> int:
        return self.world.clock.now

    @property
    def anyone(self) -> ChangeContext:
        """What happens on the data plane, where nobody has signed in."""
        return ChangeContext("", self.now)

    @property
    def ours(self) -> ChangeContext:
        return ChangeContext(self.tenant.principal, self.now)

    def send(self, method: str, path: str, body: bytes = b"", kind: str = "") -> Answer:
        """Send a request below ``/v2/<account>/``."""
        client = self.tenant.clients[self.worker]
        target = f"/v2/{self.tenant.account.handle}/{path}"
        headers = {"content-type": kind} if kind else {}
        return self.world.run(client.request(method, target, body, headers))

    def ask(self, method: str, path: str, document: object = None, **query: object) -> Reply:
        """Send a request to the control plane."""
        return self.world.run(self.tenant.ask(self.worker, method, path, document, query))

    def expect(self, reply: Reply, outcome: Outcome, done: int = 200, new: int = 201) -> None:
        """Check an answer of the control plane."""
        if outcome in STATUSES:
            status, code = STATUSES[outcome]
            assert (reply.status, reply.body["error"]["code"]) == (status, code), reply
        else:
            assert reply.status == (new if outcome is Outcome.NEW else done), reply

    def compare_repositories(self) -> None:
        live = self.walk(PATH, "repositories")
        assert [each["name"] for each in live] == sorted(self.model.live)
        deleted = self.walk(f"{PATH}/deleted", "repositories")
        assert {each["id"] for each in deleted} == self.model.restorable(self.now)

    def compare(self, repository: Repository) -> None:
        """Compare what both planes show of a repository with the model."""
        found = self.ask("GET", f"{PATH}/{repository.id}").body["repository"]
        counted = (found["image_count"], found["tag_count"], found["size_bytes"])
        assert counted == (len(repository.images), len(repository.tags), repository.size)
        self.compare_tags(repository)
        self.compare_images(repository)
        self.compare_deleted(repository)
        self.compare_referrers(repository)

    def compare_tags(self, repository: Repository) -> None:
        tags = self.send("GET", f"{repository.name}/tags/list").json()["tags"] or []
        assert tags == sorted(repository.tags)
        told = self.walk(f"{PATH}/{repository.id}/tags", "tags")
        assert [(each["name"], each["digest"], each["mutable"]) for each in told] == [
            (tag, repository.tags[tag][0], repository.may_move(tag)) for tag in tags
        ]
        prefix = PREFIXES[self.steps % len(PREFIXES)]
        told = self.walk(f"{PATH}/{repository.id}/tags", "tags", prefix=prefix)
        assert [each["name"] for each in told] == [tag for tag in tags if tag.startswith(prefix)]
        tag = TAGS[self.steps % len(TAGS)]
        reply = self.ask("GET", f"{PATH}/{repository.id}/tags/{tag}/history", limit=200)
        history = [change for change in repository.history if change.tag == tag]
        if history or tag in repository.tags:
            assert [(each["action"], each["digest"]) for each in reply.body["history"]] == [
                (change.action, change.digest) for change in reversed(history)
            ]
        else:
            assert reply.status == 404

    def compare_images(self, repository: Repository) -> None:
        path = f"{PATH}/{repository.id}/images"
        by_status: dict[str, list[str]] = {"any": repository.newest_first()}
        by_status["tagged"] = [d for d in by_status["any"] if repository.tags_of(d)]
        by_status["untagged"] = [d for d in by_status["any"] if not repository.tags_of(d)]
        for status, expected in by_status.items():
            told = self.walk(path, "images", tag_status=status)
            assert [
                (each["digest"], sorted(each["tags"]), each["size_bytes"]) for each in told
            ] == [(d, repository.tags_of(d), repository.size_of(BY_DIGEST[d])) for d in expected]
        prefix = PREFIXES[self.steps % len(PREFIXES)]
        tagged = {to for tag, (to, _) in repository.tags.items() if tag.startswith(prefix)}
        told = self.walk(path, "images", tag_prefix=prefix)
        assert [each["digest"] for each in told] == [d for d in by_status["any"] if d in tagged]
        for digest in by_status["any"][self.steps % 4 :: 4]:
            answer = self.send("GET", f"{repository.name}/manifests/{digest}")
            assert (answer.status, answer.body) == (200, BY_DIGEST[digest].body)

    def compare_deleted(self, repository: Repository) -> None:
        path = f"{PATH}/{repository.id}"
        tombstones = self.walk(f"{path}/images/deleted", "images")
        told = {each["digest"]: sorted(each["tags"]) for each in tombstones}
        assert told == repository.restorable(self.now)
        tags = self.walk(f"{path}/deleted-tags", "tags")
        told_tags = {each["tag"]: each["previous_digest"] for each in tags}
        assert told_tags == repository.deleted_tags(self.now)

    def compare_referrers(self, repository: Repository) -> None:
        digest = DOCUMENTS[self.steps % len(DOCUMENTS)].digest
        about = [d for d in repository.newest_first() if BY_DIGEST[d].subject == digest]
        told = self.walk(f"{PATH}/{repository.id}/images/{digest}/referrers", "images")
        assert [each["digest"] for each in told] == about
        answer = self.send("GET", f"{repository.name}/referrers/{digest}").json()
        assert [each["digest"] for each in answer["manifests"]] == about[::-1]

    def walk(self, path: str, field: str, **query: object) -> list[Any]:
        """Return all rows of a list: of every other one, in pages of two."""
        found: list[Any] = []
        size = 2 if (self.steps + len(path)) % 2 else 200
        marker: dict[str, object] = {}
        while True:
            reply = self.ask("GET", path, limit=size, **query, **marker)
            assert reply.status == 200, reply
            meta = reply.body["meta"]
            found += reply.body[field]
            if not meta["has_more"]:
                assert meta["total"] == len(found)
                return found
            assert len(reply.body[field]) == size
            marker = {"marker": meta["marker"]}
