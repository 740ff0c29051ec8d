"""However many passwords are hashed at once, few threads do it: each takes 32 MiB and a core."""

from __future__ import annotations

import asyncio
import threading

from tests.identity_world import World

AT_ONCE = 5


def names_of_threads() -> set[tuple[str, int | None]]:
    return {(thread.name, thread.ident) for thread in threading.enumerate()}


async def test_all_routes_hash_in_the_same_two_threads(identity: World) -> None:
    await identity.person("eve")
    before = names_of_threads()
    change = {"current_password": "not the one", "password": "a long enough password"}
    answers = await asyncio.gather(
        *(
            identity.ask(
                "POST",
                "/v1/users",
                {
                    "email": f"person-{number}@example.org",
                    "organization": identity.acme.organization_id,
                },
                token="person",
            )
            for number in range(AT_ONCE)
        ),
        *(identity.ask("PUT", "/v1/users/me/password", change, token="eve") for _ in range(2)),
    )
    assert [answer.status_code for answer in answers] == [201] * AT_ONCE + [400] * 2
    new = sorted(name for name, _ in names_of_threads() - before)
    assert new == ["scrypt_0", "scrypt_1"]
