"""The authorization matrix of `/v2`, whole: 14 callers, 14 actions, 9 x 9 policies, 9 states.

Each row asks the decision path itself (exchange of a login, check of the bearer at the door, and
the look at live policies where a request takes one) and the oracle of `policy_oracle`. Rows of
states that nothing can be in yet are those of the state they are like, and are counted with it.
What each request asks for on the wire is checked by `test_tokens_door`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Final, NamedTuple

import pytest

from registry.distribution.auth import DELETE, PUSH
from registry.metadata.repositories.repository import find_repository
from tests.property.matrix_world import (
    ACTIONS,
    COLLAPSED,
    CREATES,
    DEAD,
    IDENTITY,
    NO_CREDENTIAL,
    PRINCIPALS,
    PULLS,
    PUSHES,
    RESOURCE,
    SECOND,
    STATES,
    Callers,
    Matrix,
    Outcome,
    StandingClock,
    open_matrix,
)
from tests.property.policy_oracle import Asked, is_allowed
from tests.tenants import Statement, deny, document, open_install, refuse

DELETES: Final = "registry:DeleteImage"
ROWS: Final = 14 * 14 * 9 * 9 * 9
OLD: Final = ("expired", "old login")
GONE: Final = deny("*")
CLOSED: Final = refuse("*", actions=(PULLS, PUSHES))


class Asker(NamedTuple):
    """Whoever asks, in which account, with the statements of its own policies."""

    crn: str | None
    """None: nobody signed in."""
    account: str
    statements: list[Statement]


class Row(NamedTuple):
    """One case: a caller by its number, a repository by its number, an action."""

    callers: Callers
    identity: int
    resource: int
    action: str


def needed(action: str, state: str) -> list[str]:
    """Return the actions of policies that a request takes."""
    need = ACTIONS[action]
    if action == "ping":
        return []
    if action == "mount from":
        return [PULLS]
    if need is PUSH:
        return [PUSHES, CREATES] if state == "absent" else [PUSHES]
    return [DELETES] if need is DELETE else [PULLS]


def asker_of(row: Row, state: str) -> Asker | None:
    """Return whom the oracle takes the caller for."""
    callers = row.callers
    is_insider = callers.principal not in ("anonymous", "another account")
    if callers.principal in DEAD or (state == "owner suspended" and is_insider):
        return None
    account = callers.home.id
    if callers.principal == "anonymous":
        return Asker(None, account, [])
    return Asker(callers.programs[row.identity].crn, account, callers.statements[row.identity])


def outcome(asker: Asker | None, takes: list[str], crn: str, attached: list[Statement]) -> Outcome:
    """Say how the door of the data plane answers who `takes` these actions.

    Without a token that holds (`asker` is None) nobody is known, and is asked to be: 401. Who has
    not signed in might be let in otherwise: 401 too. Whom policies refuse is told so: 403.
    """
    if asker is None:
        return "401"
    owner = crn.split(":")[3]
    own, theirs = [document(*asker.statements)], document(*attached)
    for action in takes:
        asked = Asked(asker.crn, asker.account, action, crn, owner, None, 0)
        if not is_allowed(asked, own, theirs):
            return "403" if asker.crn else "401"
    return "in"


def expected(row: Row, state: str, *, is_removed: bool = False) -> Outcome:
    """Ask the oracle; `is_removed`: every grant was taken away before the bearer was made."""
    asker, takes = asker_of(row, state), needed(row.action, state)
    attached: list[Statement] = row.callers.attached[row.resource]
    if asker is not None and is_removed:
        asker, attached = asker._replace(statements=[GONE]), []
    if asker is not None and state == "owner suspended" and takes:
        return "403" if asker.crn or row.action == "mount from" else "401"
    found = outcome(asker, takes, row.callers.crns[row.resource], attached)
    # Who is refused a mount is told so by the upload it gets instead.
    return "403" if row.action == "mount from" and asker is not None and found != "in" else found


def rows(callers: Callers, identity: int) -> Iterator[Row]:
    for resource, action in product(range(len(RESOURCE)), ACTIONS):
        yield Row(callers, identity, resource, action)


class Play:
    """Plays all rows of one state."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self.state = matrix.state
        self.outcomes: Counter[Outcome] = Counter()
        self.kept: dict[int, bytes | None] = {}
        self.expected: dict[tuple[object, ...], Outcome] = {}
        self.found: dict[tuple[object, ...], Outcome] = {}

    def wanted(self, row: Row, *, is_removed: bool = False) -> Outcome:
        """Return what is expected; ask the oracle once for actions that take the same rights."""
        takes, is_mount = needed(row.action, self.state), row.action == "mount from"
        question = (row.callers.principal, *row[1:3], *takes, is_mount, is_removed)
        if question not in self.expected:
            self.expected[question] = expected(row, self.state, is_removed=is_removed)
        return self.expected[question]

    async def set_up(self) -> list[Callers]:
        """Make all callers; the old ones half a day before the others."""
        matrix, found = self.matrix, {}
        for principal in (*OLD, *(each for each in PRINCIPALS if each not in OLD)):
            callers = found[principal] = await matrix.callers(principal)
            await matrix.mint(callers)
            if principal == "expired":
                for number in range(len(IDENTITY)):
                    self.kept[number] = await matrix.exchange(callers, number)
                    assert self.kept[number]
                matrix.clock.now += 1200 * SECOND
            if principal == "old login":
                matrix.clock.now += (12 * 3600 - 600) * SECOND
        return [found[principal] for principal in PRINCIPALS]

    async def bearer(self, callers: Callers, number: int) -> bytes | None:
        """Return the bearer a caller gets, or what it has instead."""
        made = await self.matrix.exchange(callers, number)
        is_out = asker_of(Row(callers, number, 0, "ping"), self.state) is None
        assert (made is None) == is_out, callers.principal
        if made is not None or callers.principal in NO_CREDENTIAL:
            return made
        if callers.principal == "expired":
            return self.kept[number]
        if callers.principal == "garbage token":
            return b"Bearer eyJhbGciOiJub25lIn0.e30."
        return b"Bearer " + callers.programs[number].access_token.encode()

    async def check(self, row: Row, credential: bytes | None, wanted: Outcome) -> None:
        """Check a row. The door gets only the need, so actions of one need are one question."""
        name = row.callers.repositories[row.resource]
        question = (self.matrix.clock.now, credential, ACTIONS[row.action] or row.action, name)
        if question not in self.found:
            self.found[question] = await self.matrix.answer(credential, row.action, name)
        found = self.found[question]
        assert found == wanted, (
            f"{self.state}, {row.callers.principal}, {row.action}, "
            f"{RESOURCE[row.resource]}, {IDENTITY[row.identity]}: {found}, not {wanted}"
        )

    async def play(self) -> None:
        """Check every row of the state."""
        everyone = await self.set_up()
        if self.state == "owner suspended":
            await self.matrix.install.suspend_account(self.matrix.owner)
        for callers, number in product(everyone, range(len(IDENTITY))):
            credential = await self.bearer(callers, number)
            for row in rows(callers, number):
                wanted = self.wanted(row)
                await self.check(row, credential, wanted)
                self.outcomes[wanted] += 1

    async def play_removal(self) -> None:
        """Check every row 299 s after all grants were removed, and with a new bearer at 301 s.

        Mounts are checked at once too. With the old bearer, each caller is refused each action at
        301 s, in one repository.
        """
        everyone = await self.set_up()
        bearers = {
            (callers.principal, number): await self.bearer(callers, number)
            for callers, number in product(everyone, range(len(IDENTITY)))
        }
        await self.remove(everyone)
        for seconds in (0, 299):
            self.matrix.clock.now += seconds * SECOND
            for callers, number in product(everyone, range(len(IDENTITY))):
                for row in rows(callers, number):
                    # Of a mount, policies are asked as they are.
                    is_mount = row.action == "mount from"
                    if is_mount or seconds:
                        wanted = self.wanted(row, is_removed=is_mount)
                        await self.check(row, bearers[callers.principal, number], wanted)
                        self.outcomes[wanted] += seconds > 0
        self.matrix.clock.now += 2 * SECOND
        for callers, number, action in product(everyone, range(len(IDENTITY)), ACTIONS):
            # The bearer is over, whatever the repository.
            row = Row(callers, number, number, action)
            await self.check(row, bearers[callers.principal, number], "401")
        for callers, number in product(everyone, range(len(IDENTITY))):
            credential = await self.bearer(callers, number)
            for row in rows(callers, number):
                await self.check(row, credential, self.wanted(row, is_removed=True))

    async def remove(self, everyone: list[Callers]) -> None:
        """Take every right away."""
        install, owner = self.matrix.install, self.matrix.owner
        for callers in everyone:
            for program in callers.programs:
                if callers.principal != "deleted":
                    await install.say(program, GONE)
            for name in callers.repositories:
                found = await install.database.read(find_repository, name.handle, name.repository)
                assert found is not None
                await install.share(found.id, owner, CLOSED)


@pytest.mark.parametrize("state", [state for state in STATES if state not in COLLAPSED])
async def test_every_row_is_as_the_oracle_says(sqlite_database: str, state: str) -> None:
    """No row differs; each state is a ninth of the matrix."""
    async with open_install(sqlite_database, clock=StandingClock()) as install:
        play = Play(await open_matrix(install, state))
        await (play.play_removal() if state == "grant removed" else play.play())
    outcomes = play.outcomes
    assert outcomes.total() == ROWS // len(STATES) == 15_876
    assert outcomes["401"] > 5_000
    if state != "owner suspended":
        assert outcomes["in"] > 2_000
        assert outcomes["403"] > 1_000


def test_all_states_are_played_or_are_like_one_that_is() -> None:
    played = [state for state in STATES if state not in COLLAPSED]
    assert set(COLLAPSED.values()) <= set(played)
    assert len(PRINCIPALS) * len(ACTIONS) * len(RESOURCE) * len(IDENTITY) * len(STATES) == ROWS
    assert ROWS == 142_884
