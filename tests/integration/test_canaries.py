"""A secret that is sent or handed out is not seen again, in logs, answers or files.

Each canary is a text of its own, carried where clients put secrets, to every endpoint of both
planes. What the install hands out itself is watched too, from the moment it was shown.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlencode

import httpx
import pytest

from tests.dying import Kind
from tests.integration.id_places import NOTHING, requests
from tests.integration.noting_database import NotingDatabase
from tests.integration.served_world import Served
from tests.live_signed_in import SignedIn, Tenant, serving
from tests.spec.operations import OPERATIONS

UNKNOWN: Final = NOTHING["upload"]
SCHEMES: Final = ("Bearer", "Bearer of three parts", "Basic user", "Basic password", "HMAC")
HEADERS: Final = ("Proxy-Authorization", "Cookie", "X-Amz-Security-Token", "X-Api-Key")
PARAMETERS: Final = ("access_token", "client_secret", "password", "refresh_token")
FIELDS: Final = (
    *("client_secret", "password", "code", "code_verifier", "refresh_token", "token", "form"),
    *("new_password", "current_password", "secret_access_key"),
)
"""Of forms and JSON."""


class Canaries:
    """Texts that are nowhere else; each knows what it was sent as."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}

    def __call__(self, kind: str) -> str:
        """Return the canary of a kind."""
        known = {kind: text for text, kind in self.kinds.items()}
        text = known.get(kind) or f"canary{len(known)}x{secrets.token_hex(12)}"
        self.kinds[text] = kind
        return text

    def watch(self, kind: str, secret: str) -> None:
        """Take a secret that was handed out among the canaries."""
        assert len(secret) >= 12
        self.kinds[secret] = kind

    def found_in(self, text: bytes) -> set[str]:
        """Return the kinds that are found in a text, plain or in base64."""
        return {
            kind
            for canary, kind in self.kinds.items()
            if canary.encode() in text or _inner_base64(canary) in text
        }


def _inner_base64(text: str) -> bytes:
    """Return what base64 makes of the middle of a text, where its start is a multiple of three."""
    return base64.b64encode(text.encode()[: len(text) // 3 * 3])


class Request(NamedTuple):
    """One request that carries canaries."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def endpoints() -> Iterator[tuple[str, str]]:
    """Yield method and path of every operation of both planes."""
    for operation in OPERATIONS:
        if operation.is_built:
            yield operation.method, re.sub(r"\{\w+\}", UNKNOWN, operation.path)
    for method, argument in requests():
        yield method, f"/v2/acme/app/{argument}".format(**NOTHING)
    for method in ("GET", "POST", "HEAD"):
        yield method, "/v2/token"
    yield "GET", "/v2/"
    yield "GET", "/v2/_catalog"


def authorization(scheme: str, canary: str) -> str:
    """Return a header that carries a canary."""
    pairs = {"Basic user": f"{canary}:x", "Basic password": f"token:{canary}"}
    if scheme in pairs:
        return "Basic " + base64.b64encode(pairs[scheme].encode()).decode()
    if scheme == "HMAC":
        return f"SERVICE-HMAC-SHA256 Credential=AK, Signature={canary}"
    payload = base64.urlsafe_b64encode(json.dumps({"sub": "x"}).encode()).decode().rstrip("=")
    return f"Bearer {canary}" if scheme == "Bearer" else f"Bearer {payload}.{payload}.{canary}"


def loaded(canary: Canaries, valid: str) -> Iterator[Request]:
    """Yield requests to every endpoint, with every canary in its place."""
    query = urlencode({name: canary(f"query {name}") for name in PARAMETERS})
    headers = {name: f"x={canary(name)}" for name in HEADERS}
    form = urlencode({name: canary(f"form {name}") for name in FIELDS} | {"username": "token"})
    document = json.dumps({name: canary(f"JSON {name}") for name in FIELDS}).encode()
    grants = ("password", "refresh_token", "authorization_code", "client_credentials")
    of_form = headers | {"Content-Type": "application/x-www-form-urlencoded"}
    of_json = headers | {"Content-Type": "application/json"}
    for method, path in endpoints():
        target = f"{path}?{query}"
        for number, scheme in enumerate(SCHEMES):
            sent = {"Authorization": authorization(scheme, canary(scheme))}
            body = f"{form}&grant_type={grants[number % len(grants)]}".encode()
            yield Request(method, target, of_form | sent, body)
        yield Request(method, target, of_json | {"Authorization": f"Bearer {valid}"}, document)
        yield Request(method, path, of_form, f"{form}&client_id=cli".encode())


def issue(install: SignedIn, tenant: Tenant, canary: Canaries) -> None:
    """Have the install hand out one of each secret it has, and watch them."""
    canary.watch("login password", tenant.password)
    canary.watch("access token", tenant.access_token)
    accounts = install.call(tenant, "POST", "/v1/service-accounts", {"name": "made"})
    path = f"/v1/service-accounts/{accounts['service_account']['id']}/access-keys"
    key = install.call(tenant, "POST", path, {})["access_key"]
    canary.watch("secret access key", key["secret_access_key"])
    owner = replace(tenant, access_token=install.person_token)
    organizations = install.call(owner, "GET", "/v1/organizations")["organizations"]
    (named,) = [each["id"] for each in organizations if not each["is_personal"]]
    body = {"email": "new@example.org", "organization": named}
    user = install.call(owner, "POST", "/v1/users", body)["user"]
    canary.watch("one-time password", user["one_time_password"])
    pair = (key["access_key_id"], key["secret_access_key"])
    form = {"grant_type": "client_credentials"}
    answer = httpx.post(f"{install.registry.url}/v1/oauth/token", data=form, auth=pair)
    canary.watch("access token of a key", answer.raise_for_status().json()["access_token"])
    answer = httpx.get(f"{install.registry.url}/v2/token", auth=("token", tenant.password))
    canary.watch("bearer", answer.raise_for_status().json()["token"])
    _issue_session(install, tenant, canary)


def _issue_session(install: SignedIn, tenant: Tenant, canary: Canaries) -> None:
    trust = {"version": "1", "statements": [{"effect": "allow", "principals": [tenant.handle]}]}
    install.call(tenant, "POST", "/v1/roles", {"name": "assumed", "trust_policy": trust})
    role = f"crn:iam::{tenant.handle}:role/assumed"
    session = install.call(tenant, "POST", "/v1/assume-role", {"role": role})
    for name, value in _texts(session):
        if "secret" in name or ("token" in name and name != "token_type"):
            canary.watch(f"role session {name}", value)


def _texts(document: dict[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _texts(value)
        elif isinstance(value, str):
            yield name, value


def test_no_canary_is_seen_again(tmp_path: Path) -> None:
    """A real server, its log, every answer and every file it writes."""
    canary, data = Canaries(), tmp_path / "data"
    with serving(data) as install:
        issue(install, install.acme, canary)
        issued = len(canary.kinds)
        url, sent = install.registry.url, 0
        with httpx.Client(base_url=url, timeout=60) as client:
            for request in loaded(canary, install.acme.access_token):
                answer = client.request(
                    request.method, request.path, headers=request.headers, content=request.body
                )
                assert answer.status_code < 500, request
                spoken = answer.content + repr(answer.headers.raw).encode()
                assert canary.found_in(spoken) == set(), (request.method, request.path)
                sent += 1
        root = data / "root.key"
        kept = root.read_bytes()
        canary.watch("root key", kept.decode("latin-1").strip())
        files = [path for path in data.rglob("*") if path.is_file() and path != root]
        written = {path.name: canary.found_in(path.read_bytes()) for path in files}
    assert {name: kinds for name, kinds in written.items() if kinds} == {}
    assert "metadata.db" in written
    assert install.registry.log.count("/v1/") > 300, "the log was read"
    assert canary.found_in(install.registry.log.encode()) == set()
    assert issued >= 8
    assert len(canary.kinds) >= 25 + issued
    assert sent >= 600


class FailingDatabase(NotingDatabase):
    """A database whose changes fail."""

    async def before(self, kind: Kind, _call: object) -> None:
        if kind == "write":
            raise RuntimeError("disk on fire")


async def test_failures_log_no_canary_at_any_level(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Where changes fail, tracebacks are logged, and the lowest level is on."""
    canary = Canaries()
    seen: list[int] = []

    with caplog.at_level(logging.DEBUG):
        canary.watch("login password", served.acme.login)
        canary.watch("secret access key", served.acme.secret)
        served.database.write = FailingDatabase(served.database).write  # type: ignore[method-assign]
        for request in loaded(canary, served.acme.program_token):
            transport = httpx.ASGITransport(served.app, client=("198.51.100.7", 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                answer = await client.request(
                    request.method, request.path, headers=request.headers, content=request.body
                )
            seen.append(answer.status_code)
            assert canary.found_in(answer.content) == set(), request
        minted = await _mint(served)
        seen.append(minted.status_code)
    ours = [record for record in caplog.records if not record.name.startswith("http")]
    lines = "\n".join(logging.Formatter().format(record) for record in ours)
    assert "disk on fire" in lines
    assert 500 in seen
    assert canary.found_in(lines.encode()) == set()


async def _mint(served: Served) -> httpx.Response:
    """Ask for something that is a change, with a credential that is good."""
    transport = httpx.ASGITransport(served.app, client=("198.51.100.7", 2))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.post(
            "/v1/authorization-token",
            headers={"Authorization": f"Bearer {served.acme.program_token}"},
        )
