"""A new trust policy ends the sessions of a role, unless it only adds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import uuid4

import pytest

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.identity.rows.roles import Role
from cloudcore.identity.rows.sessions import Session, add_session, find_live_session
from cloudcore.identity.services.roles import create_role, update_role
from tests.integration.oauth_world import World

PERSON: Final = f"crn:iam::{uuid4()}:user/{uuid4()}"
FIRST: Final = {"effect": "allow", "principals": ["acme"]}
SECOND: Final = {"effect": "allow", "principals": ["partner"]}
NOBODY: Final = {"effect": "allow", "principals": ["nobody"]}
ROLE: Final = {"effect": "allow", "principals": ["crn:iam::partner:role/deploy"]}
MORE: Final = {"effect": "allow", "principals": [PERSON]}
DENIAL: Final = {"effect": "deny", "principals": [PERSON]}


def trust(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"version": "1", "statements": [*statements]}


Trust = dict[str, Any]


async def begin(oauth: World, account_id: str, before: Trust) -> Callable[[Trust], Awaitable[bool]]:
    """Begin a session of a role; return whether it outlives a change of its trust policy."""
    row = Role(uuid7(), account_id, uuid4().hex, "", "", 43200, oauth.now, oauth.now)
    role = await oauth.database.write(create_role, row, before)
    end = oauth.now + 3600 * MICROSECONDS
    session = Session(uuid7(), "role", oauth.now, end, role_id=role.id)
    await oauth.database.write(add_session, session)

    async def outlives(after: Trust) -> bool:
        changes = {"trust_policy": after}
        await oauth.database.write(update_role, account_id, role.id, changes, oauth.now)
        return await oauth.database.read(find_live_session, session.id, oauth.now) is not None

    return outlives


async def test_sessions_outlive_what_only_adds(oauth: World) -> None:
    account = await oauth.add_account("acme")
    await oauth.add_account("partner")
    for before, after, kept in (
        (trust(FIRST), trust(FIRST), True),
        (trust(FIRST), trust(FIRST, MORE), True),
        (trust(FIRST, SECOND), trust(MORE, SECOND, FIRST), True),
        (trust(FIRST, DENIAL), trust(FIRST, DENIAL, MORE), True),
        (trust(FIRST, DENIAL), trust(FIRST, DENIAL, SECOND), True),
        (trust(FIRST, DENIAL), trust(FIRST, DENIAL, NOBODY), True),
        (trust(FIRST, DENIAL), trust(FIRST, DENIAL, ROLE), True),
        (trust(FIRST, DENIAL, ROLE), trust(FIRST, DENIAL, ROLE, SECOND), True),
        (trust(FIRST, MORE), trust(FIRST), False),
        (trust(FIRST), trust(MORE), False),
        (trust(FIRST), trust(FIRST, DENIAL), False),
        (trust(FIRST), trust(FIRST | {"conditions": {"ip_address": ["192.0.2.0/24"]}}), False),
    ):
        outlives = await begin(oauth, account.id, before)
        assert await outlives(after) is kept, (before, after)


@pytest.mark.parametrize("effect", ["allow", "deny"])
async def test_a_name_that_means_another_now_ends_them(oauth: World, effect: str) -> None:
    account = await oauth.add_account("acme")
    await oauth.add_account("partner")
    named = {"effect": effect, "principals": ["partner", "unknown"]}
    policy = trust(FIRST, named)
    outlives = await begin(oauth, account.id, policy)
    assert await outlives(policy)
    await oauth.add_account("unknown")
    is_kept = effect == "allow"
    assert await outlives(policy) is is_kept, "a denial has begun to deny; an allow admits more"
    await oauth.run("UPDATE accounts SET handle = 'renamed' WHERE handle = 'partner'")
    await oauth.add_account("partner")
    assert not await outlives(policy)
