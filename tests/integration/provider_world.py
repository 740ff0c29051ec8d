"""A served install with a scripted identity provider, and browsers that sign in there."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import httpx

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection
from cloudcore.identity.oauth.sessions import CodeDestination, new_code
from cloudcore.identity.oidc.id_tokens import Profile
from cloudcore.identity.rows.sessions import Session, add_session
from cloudcore.identity.services import provider_sign_ins
from cloudcore.identity.services.provider_sign_ins import SignedInPerson
from tests.integration.oauth_world import authorization_query, code_form, code_of
from tests.integration.served_world import HOUR, URL, Served, open_served
from tests.scripted_provider import CLIENT, SECRET, Provider, scripted_provider

AUTHORIZE: Final = "/v1/oauth/authorize"
_LINK: Final = re.compile(r'<a class="provider" href="([^"]*)">')
_ALERT: Final = re.compile(r'<p role="alert">([^<]*)</p>')


@dataclass
class ProviderWorld:
    """The install, the provider, and the row of it in the organization of ``acme``."""

    served: Served
    provider: Provider
    row: dict[str, Any]
    cookies: httpx.Cookies = field(default_factory=httpx.Cookies)
    """Of the browser."""
    address: str = "198.51.100.7"

    @property
    def path(self) -> str:
        """Return where `/v1` has the provider."""
        return f"/v1/organizations/{self.row['organization']}/identity-providers/{self.row['id']}"

    async def change(self, **changes: object) -> None:
        """Change the provider's row."""
        person = self.served.acme.person_token
        answer = await self.served.ask("PATCH", self.path, changes, token=person)
        assert answer.status_code == 200, answer.text

    def says(self, subject: str, email: str | None = None, **claims: object) -> None:
        """Let the next ID tokens be about this person."""
        now = self.served.clock.now // MICROSECONDS
        told = {"sub": subject, "iat": now, "exp": now + 300, "groups": [], **claims}
        if email is not None:
            told |= {"email": email, "email_verified": claims.get("email_verified", True)}
        self.provider.claims = told
        self.provider.userinfo = {"sub": subject}

    async def browse(self, path: str, *, at_most: int = 499) -> httpx.Response:
        """Open a page as the browser."""
        transport = httpx.ASGITransport(self.served.app, client=(self.address, 1))
        async with httpx.AsyncClient(
            transport=transport, base_url=URL, cookies=self.cookies
        ) as client:
            answer = await client.get(path)
            self.cookies = client.cookies
        assert answer.status_code <= at_most, answer.text
        return answer

    async def open_page(self, **changes: str) -> httpx.Response:
        """Open the sign-in page as a command asks for it, or with other parameters."""
        return await self.browse(f"{AUTHORIZE}?{urlencode(authorization_query() | changes)}")

    def link(self, page: httpx.Response) -> str:
        """Return the link of the provider on a sign-in page."""
        links = [html.unescape(link) for link in _LINK.findall(page.text)]
        (link,) = [link for link in links if self.row["id"] in link]
        return link

    async def leave(self, **changes: str) -> str:
        """Choose the provider on the sign-in page; return where the browser is sent."""
        sent = await self.browse(self.link(await self.open_page(**changes)))
        assert sent.status_code == 303, sent.text
        return sent.headers["location"]

    async def come_back(self, answer: dict[str, str], *, at_most: int = 499) -> httpx.Response:
        """Come back from the provider with its answer."""
        return await self.browse(
            f"{AUTHORIZE}/callback/{self.row['id']}?{urlencode(answer)}", at_most=at_most
        )

    async def sign_in(self) -> httpx.Response:
        """Go to the provider and come back."""
        return await self.come_back(self.provider.authorize(await self.leave()))

    async def person(
        self, subject: str, email: str | None = None, **claims: object
    ) -> dict[str, Any]:
        """Sign this person in; return the person."""
        self.says(subject, email, **claims)
        return await self.redeem(await self.sign_in())

    async def complaint(self, subject: str, email: str | None = None, **claims: object) -> str:
        """Try to sign this person in; return what the page complains of."""
        self.says(subject, email, **claims)
        return complaint(await self.sign_in())

    async def exchange(self, page: httpx.Response) -> httpx.Response:
        """Send the code that a page shows to the token endpoint."""
        assert page.status_code == 200, page.text
        return await self.ask_token(code_form(code_of(page)))

    async def ask_token(self, form: dict[str, str]) -> httpx.Response:
        """Send a form to the token endpoint."""
        return await self.served.submit("/v1/oauth/token", urlencode(form))

    async def redeem(self, page: httpx.Response) -> dict[str, Any]:
        """Exchange the code that a page shows, and return the person."""
        answer = await self.exchange(page)
        assert answer.status_code == 200, answer.text
        token = answer.json()["access_token"]
        me = await self.served.ask("GET", "/v1/users/me", token=token)
        roles = await self.served.ask("GET", "/v1/users/me/roles", token=token)
        names = sorted(role["name"] for role in roles.json()["roles"])
        return {**me.json()["user"], "roles": names, "token": token}

    async def add_person(self, email: str) -> dict[str, Any]:
        """Add a person to ``acme``, as an owner does."""
        acme = self.served.acme
        body = {"email": email, "organization": acme.organization_id}
        made: dict[str, Any] = await self.served.make("/v1/users", body, token=acme.person_token)
        return made

    async def assume(self, role_id: str, token: str, *, status: int = 200) -> dict[str, Any]:
        """Assume a role, or be refused."""
        body = {"role": role_id}
        answer = await self.served.ask("POST", "/v1/assume-role", body, token=token)
        assert answer.status_code == status, answer.text
        told: dict[str, Any] = answer.json()
        return told

    async def by_password(self, person: dict[str, Any]) -> str:
        """Begin a session of a person as a password does; return its access token."""
        now = self.served.clock.now
        session = Session(uuid7(), "user", now, now + HOUR, user_id=person["id"])
        await self.served.database.write(add_session, session)
        return self.served.tokens.issue(person["crn"], uuid7(), now + HOUR, sid=session.id)

    async def assign_group(self, group: str, role: str = "") -> dict[str, Any]:
        """Assign a role of ``acme`` to a group."""
        role_id = role or self.served.acme.ids["/v1/roles/{}"]
        body = {"identity_provider": self.row["id"], "group": group}
        path = f"/v1/roles/{role_id}/group-assignments"
        made: dict[str, Any] = await self.served.make(
            path, body, token=self.served.acme.program_token
        )
        return made


def sign_in_as(
    tx: Connection, world: ProviderWorld, subject: str, email: str, *groups: str
) -> SignedInPerson:
    """Sign in the person of a profile, without the browser."""
    now = world.served.clock.now
    code = new_code("", CodeDestination("cli", "oob"), "x" * 43, now)[1]
    profile = Profile(subject, email, frozenset(groups))
    keyring, provider_id = world.served.keyring, world.row["id"]
    return provider_sign_ins.sign_in(tx, keyring, provider_id, profile, uuid7, code, now)


def complaint(page: httpx.Response) -> str:
    """Return why a page refuses, as the error says it."""
    assert page.status_code in (400, 403, 429), page.text
    (words,) = _ALERT.findall(page.text)
    return html.unescape(words[:1].lower() + words[1:])


async def add_provider(served: Served, issuer: str, **about: object) -> dict[str, Any]:
    """Add a provider to the organization of ``acme``, the authority of ``example.org``."""
    organization = served.acme.organization_id
    body = {
        "name": "Acme Login",
        "issuer": issuer,
        "client_id": CLIENT,
        "client_secret": SECRET,
        "email_domains": ["Example.org"],
        "creates_people": True,
        **about,
    }
    path = f"/v1/organizations/{organization}/identity-providers"
    row = await served.make(path, body, token=served.acme.person_token)
    return {**row, "organization": organization}


@asynccontextmanager
async def open_provider_world(
    data: Path, database_url: str = "", **changes: object
) -> AsyncIterator[ProviderWorld]:
    """Open an install with a provider that is the authority of ``example.org``."""
    with scripted_provider() as provider:
        settings: dict[str, Any] = {"founders": "nobody", "oidc_internal_origins": provider.url}
        async with open_served(data, database_url, **settings | changes) as served:
            yield ProviderWorld(served, provider, await add_provider(served, provider.url))


def query_of(url: str) -> dict[str, str]:
    """Return the parameters of a URL."""
    return dict(httpx.QueryParams(urlsplit(url).query))


async def trust_provider(
    world: ProviderWorld, role_id: str, *more: dict[str, object], by: str = ""
) -> None:
    """Let a role trust the persons of the provider; `more` are further statements."""
    trusted = {"effect": "allow", "principals": [world.row["crn"]]}
    trust = {"trust_policy": {"version": "1", "statements": [trusted, *more]}}
    token = by or world.served.acme.program_token
    changed = await world.served.ask("PATCH", f"/v1/roles/{role_id}", trust, token=token)
    assert changed.status_code == 200, changed.text
