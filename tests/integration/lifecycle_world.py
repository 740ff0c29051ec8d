"""A repository with a lifecycle policy, days that pass, and a worker that carries its runs out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from cloudcore.jobs.kinds import Done, Next
from cloudcore.jobs.queue import Job
from registry.services.lifecycle.runs import lifecycle_kind
from tests.integration.pushing import Descriptor, World
from tests.jobs import run_due

DAY = 24 * 3600

Meddle = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class LifecycleWorld(World):
    """A repository whose policy is put, previewed and run."""

    @property
    def policy(self) -> str:
        """Return the path of the policy."""
        return f"{self.path}/lifecycle-policy"

    async def pass_days(self, days: float) -> None:
        """Let time pass, and sign in anew."""
        await self.pass_seconds(days * DAY)

    async def put(self, *rules: dict[str, Any]) -> dict[str, Any]:
        """Give the repository a policy."""
        answer = await self.control.put(self.policy, json={"rules": rules})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()["lifecycle_policy"]
        return found

    async def preview(self, *rules: dict[str, Any], **query: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the preview of rules, or of the stored ones."""
        answer = await self.control.post(
            f"{self.policy}/preview", json={"rules": rules} if rules else None, params=query
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def previewed(self, *rules: dict[str, Any]) -> dict[str, int]:
        """Return the digests that a preview names, each with the rule that takes it."""
        images = (await self.preview(*rules))["images"]
        return {image["digest"]: image["rule"] for image in images}

    async def run(self, *rules: dict[str, Any], meddle: Meddle | None = None) -> dict[str, Any]:
        """Run rules to the end and return the run.

        `meddle` happens once, when a portion is known and before it is deleted.
        """
        if rules:
            await self.put(*rules)
        answer = await self.control.post(f"{self.policy}/runs")
        assert answer.status_code == 202, answer.text
        await self.work(meddle)
        runs = await self.runs()
        assert runs[0]["id"] == answer.json()["run"]["id"]
        return runs[0]

    async def work(self, meddle: Meddle | None = None) -> None:
        """Carry out the runs there are."""
        kind = lifecycle_kind(self.install.ctx)
        waiting = [] if meddle is None else [meddle]

        async def step(job: Job) -> Next | Done:
            outcome = await kind.step(job)
            if job.cursor is not None and waiting:
                await waiting.pop()()
            return outcome

        await run_due(self.install.database, [replace(kind, step=step)], self.install.clock)
        assert not waiting, "nothing was left to meddle with"

    async def runs(self) -> list[dict[str, Any]]:
        """Return the runs, the newest first."""
        answer = await self.control.get(f"{self.policy}/runs")
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["runs"]
        return found

    async def digests(self) -> set[str]:
        """Return the digests of all images."""
        return {image["digest"] for image in (await self.get("/images"))["images"]}


async def pin(world: LifecycleWorld, image: Descriptor) -> None:
    """Pin an image as ``prod``."""
    path = f"{world.images}/{image['digest']}/pins/prod"
    assert (await world.control.put(path, json={})).status_code == 201
