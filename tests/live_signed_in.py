"""A real ``entrepot serve`` with two accounts, and the credentials of a program in each."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from cloudcore.clock import MICROSECONDS, system_clock, uuid7
from cloudcore.db.base import Connection
from cloudcore.identity.names import iam_crn
from cloudcore.identity.rows.sessions import Session, add_session
from cloudcore.identity.rows.users import list_users_by_email
from cloudcore.keyring import load_keyring
from tests.entrepot import ADMIN, copied_install, initialized
from tests.inprocess import ManualClock
from tests.live import LiveRegistry, start_registry
from tests.postgresql import free_port
from tests.tenants import ALLOW_ALL, Install, Statement, open_install


@dataclass(frozen=True)
class Tenant:
    """An account, with the access token and the container login of a program in it."""

    handle: str
    access_token: str
    password: str

    @property
    def headers(self) -> dict[str, str]:
        """Return what signs a request to the control plane."""
        return {"Authorization": f"Bearer {self.access_token}"}


@dataclass(frozen=True)
class SignedIn:
    """The process and its tenants."""

    registry: LiveRegistry
    acme: Tenant
    partner: Tenant
    person_token: str
    """Access token of the person who owns the install."""

    @property
    def host(self) -> str:
        """Return host and port, as clients name the registry."""
        return self.registry.url.removeprefix("http://")

    def call(self, tenant: Tenant, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        """Call the control plane and return its answer, which must be a success."""
        answer = httpx.request(
            method, self.registry.url + path, headers=tenant.headers, json=body, timeout=30
        )
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def pull_token(self, name: str) -> str:
        """Return a bearer of acme's that may pull a repository."""
        login = self.call(self.acme, "POST", "/v1/authorization-token")
        answer = httpx.get(
            f"{self.registry.url}/v2/token",
            params={"scope": f"repository:{name}:pull", "service": self.host},
            auth=(login["username"], login["password"]),
        )
        answer.raise_for_status()
        token: str = answer.json()["token"]
        return token


class LoggingInKey(NamedTuple):
    """An access key of a service account of ``acme``."""

    id: str
    secret: str
    path: str
    """Where `/v1` has it."""


def access_key_that_logs_in(signed_in: SignedIn, *statements: Statement) -> LoggingInKey:
    """Make an access key, in an account that lets access keys log in.

    Its service account may do what `statements` say; without any, everything.
    """

    def post(path: str, body: object) -> Any:  # noqa: ANN401
        (made,) = signed_in.call(signed_in.acme, "POST", path, body).values()
        return made

    signed_in.call(signed_in.acme, "PATCH", "/v1/registry-settings", {"access_key_login": True})
    name = f"puller-{uuid7()[-12:]}"
    program = post("/v1/service-accounts", {"name": name})
    document = {"version": "1", "statements": statements or [ALLOW_ALL]}
    policy = post("/v1/policies", {"name": name, "document": document})
    attached = {"service_account": program["id"]}
    post(f"/v1/policies/{policy['id']}/attachments", attached)
    keys = f"/v1/service-accounts/{program['id']}/access-keys"
    key = post(keys, None)
    return LoggingInKey(key["access_key_id"], key["secret_access_key"], f"{keys}/{key['id']}")


@contextmanager
def serving(
    data: Path,
    *options: str,
    settings: Callable[[int], Mapping[str, str]] = lambda _: {},
    database: str | None = None,
) -> Iterator[SignedIn]:
    """Set an install up as its operator does, add a second account, and serve it meanwhile.

    `options` are those of ``entrepot serve``, and `settings` its variables, given its port. It is
    over the migrated `database`, or one in its folder.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    elsewhere = {} if database is None else {"ENTREPOT_DATABASE_URL": database}
    shown = copied_install(data) if database is None else initialized(data, elsewhere)
    pair = tuple(
        re.findall(rf"{label} +(\S+)", shown)[0] for label in ("access key id", "secret access key")
    )
    database = database or f"sqlite:///{data / 'metadata.db'}"
    partner_token, person_token = asyncio.run(_add_partner(data, database, url))
    env = {**settings(port), **elsewhere}
    registry = start_registry(data, "--port", str(port), *options, command="serve", env=env)
    try:
        answer = httpx.post(
            f"{url}/v1/oauth/token",
            data={"grant_type": "client_credentials"},
            auth=pair,
            timeout=60,
        )
        answer.raise_for_status()
        yield SignedIn(
            registry,
            _tenant(url, "acme", answer.json()["access_token"]),
            _tenant(url, "partner", partner_token),
            person_token,
        )
    finally:
        assert registry.stop() == 0, registry.log


async def _add_partner(data: Path, database: str, url: str) -> tuple[str, str]:
    """Add an account with a program that may do everything in it, and sign the owner in.

    Return the access tokens of both.
    """
    clock = ManualClock(system_clock())
    keyring = load_keyring(data / "root.key")
    async with open_install(database, clock=clock, keyring=keyring, issuer=url) as install:
        account = await install.add_account("partner")
        program_token = (await install.add_program(account, "ci", ALLOW_ALL)).access_token
        return program_token, await install.database.write(_sign_in, install)


def _sign_in(tx: Connection, install: Install) -> str:
    """Sign the first person in, without the page; return the access token."""
    (user,) = list_users_by_email(tx, ADMIN)
    now = install.clock()
    end = now + 3600 * MICROSECONDS
    session = Session(uuid7(), "user", now, end, user_id=user.id)
    add_session(tx, session)
    crn = iam_crn(user.organization_id, "user", user.id)
    return install.access_tokens.issue(crn, uuid7(), end, sid=session.id)


def _tenant(url: str, handle: str, access_token: str) -> Tenant:
    answer = httpx.post(
        f"{url}/v1/authorization-token",
        headers={"Authorization": f"Bearer {access_token}"},
        timeout=60,
    )
    answer.raise_for_status()
    return Tenant(handle, access_token, answer.json()["password"])
