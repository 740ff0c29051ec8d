"""The identity endpoints on a real socket, with a program and persons to sign in."""

from __future__ import annotations

import asyncio
import html
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import uvicorn

from cloudcore.clock import system_clock, uuid7
from cloudcore.db.opening import open_database
from cloudcore.identity.rows.identity_providers import IDENTITY_PROVIDERS, IdentityProvider
from cloudcore.identity.rows.organizations import ORGANIZATIONS, Organization
from cloudcore.identity.services.identity_providers import seal_client_secret
from tests.integration.oauth_world import PASSWORD, Program, World, make_world, may
from tests.scripted_provider import CLIENT, SECRET

EMAIL = "ann@example.com"
NEWCOMER = "bob@example.com"
"""Has a one-time password."""
OUT_OF_BAND = "urn:ietf:wg:oauth:2.0:oob"


@dataclass(frozen=True)
class OAuthServer:
    """Where it answers, and the program it knows."""

    url: str
    program: Program

    @property
    def token_url(self) -> str:
        return f"{self.url}/v1/oauth/token"

    @property
    def authorize_url(self) -> str:
        return f"{self.url}/v1/oauth/authorize"

    @property
    def revoke_url(self) -> str:
        return f"{self.url}/v1/oauth/revoke"

    def who(self, token: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.get(f"{self.url}/v1/whoami", headers=headers, timeout=60)

    def sign_in(self, authorization_url: str) -> str:
        """Open a URL as a browser would, sign in there, and return the code that is shown."""
        assert urlsplit(authorization_url).path == "/v1/oauth/authorize"
        with httpx.Client(timeout=60) as browser:
            page = browser.get(authorization_url)
            assert page.status_code == 200, page.text
            hidden = html.unescape(_field(r'name="form" value="([^"]*)"', page.text))
            filled = {"form": hidden, "email": EMAIL, "password": PASSWORD}
            shown = browser.post(self.authorize_url, data=filled)
        assert shown.status_code == 200, shown.text
        return _field(r'<output id="code">([^<]*)<', shown.text)


def _field(pattern: str, page: str) -> str:
    found = re.search(pattern, page)
    assert found, page
    return found[1]


async def _add_provider(world: World, issuer: str, provider_id: str) -> None:
    """Add an organization with an identity provider that creates people of example.org."""
    organization = Organization(uuid7(), "Acme", world.now, world.now)
    provider = IdentityProvider(
        id=provider_id,
        organization_id=organization.id,
        name="Acme Login",
        issuer=issuer,
        client_id=CLIENT,
        client_secret_sealed=seal_client_secret(world.keyring, provider_id, SECRET),
        scopes="openid email",
        groups_claim="groups",
        email_verified_claim="email_verified",
        email_domains="example.org",
        creates_people=True,
        status="active",
        created_at=world.now,
        updated_at=world.now,
    )
    await world.database.write(ORGANIZATIONS.add, organization)
    await world.database.write(IDENTITY_PROVIDERS.add, provider)


@contextmanager
def serve_oauth(
    database_url: str, *, issuer: str = "", port: int = 0, provider_id: str = ""
) -> Iterator[OAuthServer]:
    """Serve over a migrated database until the block ends; with an identity provider, if given."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        port = listener.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        started = threading.Event()
        made: list[tuple[Program, uvicorn.Server]] = []

        async def serve() -> None:
            database = open_database(database_url)
            world = make_world(database, url, [issuer] if issuer else [])
            world.now = system_clock()
            await world.keys.refresh()
            program = await world.add_program(await world.add_account("acme"), "ci", may("test:*"))
            await world.add_user(EMAIL)
            await world.add_user(NEWCOMER, one_time=True)
            if issuer:
                await _add_provider(world, issuer, provider_id)
            config = uvicorn.Config(world.app, log_config=None, lifespan="off")
            server = uvicorn.Server(config)
            made.append((program, server))
            started.set()
            await server.serve(sockets=[listener])
            await database.close()

        thread = threading.Thread(target=asyncio.run, args=(serve(),))
        thread.start()
        try:
            assert started.wait(30)
            program, server = made[0]
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield OAuthServer(url, program)
        finally:
            if made:
                made[0][1].should_exit = True
            thread.join(30)
