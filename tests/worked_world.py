"""What a machine works on, over a real database, by a process that may die at any step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.identity.rows.accounts import Account
from cloudcore.jobs.kinds import JobKind
from cloudcore.resources.resource import Worked
from cloudcore.resources.rows import Rows
from tests.dying import Moment
from tests.integration.oauth_world import World as Identity
from tests.jobs import run_due

R = TypeVar("R", bound=Worked)
NODE: Final = "here"


class Died(BaseException):
    """The process was killed."""


class Death:
    """Kills the process when it has come to a place so many times, once at each place."""

    def __init__(self) -> None:
        self.time: int | None = None
        self.times: Counter[str] = Counter()
        self.died: list[str] = []

    def come_to(self, place: str) -> None:
        """Note that the process is at a place; die there if it is time."""
        self.times[place] += 1
        if self.times[place] == self.time:
            self.died.append(place)
            raise Died(place)

    async def come_to_write(self, moment: Moment, change: Callable[..., object]) -> None:
        """Note that the process is before or after a change, and die there if it is time."""
        self.come_to(f"{moment} {getattr(change, '__name__', 'change')}")


class WorkedWorld(Generic[R]):
    """Records of an account, and the one process that works on them."""

    def __init__(self, identity: Identity, account: Account, rows: Rows[R]) -> None:
        self.identity = identity
        self.account = account
        self.database = identity.database
        self.death = Death()
        self._rows = rows
        self.restart()

    def restart(self) -> None:
        """Begin a process that knows nothing of the one before."""
        raise NotImplementedError

    @property
    def kinds(self) -> list[JobKind]:
        """Return the kinds of jobs of the process."""
        raise NotImplementedError

    def base(self) -> dict[str, Any]:
        """Return the fields that all new records have."""
        now = self.identity.now
        made = {"account_id": self.account.id, "region": "local", "created_at": now}
        return {**made, "id": uuid7(now), "updated_at": now}

    async def look(self, after: float = 1) -> None:
        """Let time pass, and the process do what there is to do."""
        self.identity.now += int(after * MICROSECONDS)
        await run_due(self.database, self.kinds, lambda: self.identity.now)

    async def settle(self, looks: int = 8, after: float = 10) -> None:
        """Let the process look again and again."""
        for _ in range(looks):
            await self.look(after)

    async def find(self, seen: R) -> R | None:
        """Return a record as it is stored."""
        return await self.database.read(self._rows.find, seen.account_id, seen.id)

    async def get(self, seen: R) -> R:
        """Return a record as it is stored; fail if it is gone."""
        found = await self.find(seen)
        assert found is not None
        return found

    async def settled(self, seen: R, looks: int = 8, after: float = 10) -> R:
        """Let the process look again and again; return a record as it is stored then."""
        await self.settle(looks, after)
        return await self.get(seen)

    async def status(self, seen: R) -> str:
        """Return the status of a record that is there."""
        return (await self.get(seen)).status

    async def codes(self, seen: R) -> set[str]:
        """Return the codes of a record's faults."""
        return {each.code for each in (await self.get(seen)).faults}

    async def state(self, seen: R) -> tuple[str, set[str]]:
        """Return the status of a record, and the codes of its faults."""
        return await self.status(seen), await self.codes(seen)


def may_all(_action: str) -> Callable[[str], None]:
    """Return a check that grants every right."""
    return lambda _crn: None
