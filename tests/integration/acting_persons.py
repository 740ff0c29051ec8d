"""The owner of acme, who acts in roles and signs in by a known password."""

from __future__ import annotations

from typing import Final

import httpx
from sqlalchemy import bindparam

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import users
from tests.integration.served_world import Served

EMAIL: Final = "owner-of-acme@example.org"

_SET_PASSWORD: Final = Statement(
    users.update().where(users.c.id == bindparam("user_id")).values(password=bindparam("hashed"))
)


def set_password(tx: Connection, user_id: str, hashed: str) -> None:
    """Give a person a password that is known."""
    tx.execute(_SET_PASSWORD, user_id=user_id, hashed=hashed)


async def bearer(served: Served, login: str, *actions: str) -> str:
    answer = await served.ask(
        "GET",
        f"/v2/token?scope=repository:acme/app:{','.join(actions)}",
        headers={"Authorization": httpx.BasicAuth("token", login)._auth_header},
    )
    return str(answer.json()["token"])


async def assume(served: Served, token: str, role: str, **more: object) -> str:
    answer = await served.ask("POST", "/v1/assume-role", {"role": role, **more}, token=token)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["access_token"])
