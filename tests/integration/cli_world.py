"""A served install for tests of the commands that call it, with images pushed over ``/v2``."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch
from urllib.parse import urlencode
from uuid import uuid4

import httpx

from registry.cli import main as command_line
from registry.cli.client.credentials import Credential, changing
from registry.cli.client.person_sign_in import OUT_OF_BAND
from registry.cli.client.sign_in import CLIENT, token_of
from registry.cli.commands import completion
from tests.conformance.client import Registry
from tests.entrepot import Home, Install, fetch_code, installed
from tests.environment import make_parser_once

JSON: Final = ("--output", "json")
_PATIENCE_SECONDS: Final = 60
"""How long the names that complete a word may take here. A shell's user waits for a moment only, in
which a busy machine may not have them; then none are offered."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        """Return what it printed, the blanks between cells made one."""
        return [" ".join(line.split()) for line in self.text.splitlines()]

    @property
    def document(self) -> Any:  # noqa: ANN401 - whatever the command prints
        assert self.status == 0, self.err
        return json.loads(self.out)


@dataclass(frozen=True)
class World:
    """An install, a machine that is signed in to it, and a client that pushes images."""

    install: Install
    home: Home
    registry: Registry

    @property
    def host(self) -> str:
        return self.install.url.removeprefix("http://")

    def run(self, *arguments: str, stdin: str = "", home: Home | None = None) -> Ended:
        """Run a command in this process, which saves its start; it never shows a traceback."""
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        err = io.StringIO()
        given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
        with ExitStack() as stack:
            stack.enter_context(patch.dict("os.environ", (home or self.home).environ))
            stack.enter_context(patch.object(sys, "stdin", given))
            stack.enter_context(patch.object(command_line, "make_parser", make_parser_once))
            stack.enter_context(patch.object(completion, "_TIMEOUT_SECONDS", _PATIENCE_SECONDS))
            stack.enter_context(redirect_stdout(out))
            stack.enter_context(redirect_stderr(err))
            try:
                status = command_line.main(arguments)
            except SystemExit as ended:  # as argparse ends
                status = int(str(ended.code))
        assert isinstance(out.buffer, io.BytesIO)
        return Ended(status, out.buffer.getvalue(), err.getvalue())

    def done(self, *arguments: str, stdin: str = "", home: Home | None = None) -> Ended:
        """Run a command that must succeed."""
        ended = self.run(*arguments, stdin=stdin, home=home)
        assert (ended.status, ended.err) == (0, "")
        return ended

    def read(self, *arguments: str, home: Home | None = None) -> Any:  # noqa: ANN401 - as printed
        """Return the document that a command prints, which must succeed."""
        return self.done(*arguments, *JSON, home=home).document

    def told(self, *arguments: str, stdin: str = "", home: Home | None = None) -> tuple[int, str]:
        """Run a command that must fail; return its status and its one line."""
        ended = self.run(*arguments, stdin=stdin, home=home)
        assert ended.err.startswith("entrepot: ")
        assert ended.err.count("\n") == 1
        return ended.status, ended.err.removeprefix("entrepot: ").removesuffix("\n")

    def push(self, repository: str, tag: str | None = None) -> str:
        """Push an image that there was not yet, and return its digest."""
        return self.registry[f"acme/{repository}"].push_image(tag).digest

    def admits(self, password: str) -> bool:
        """Return True if a container client can log in with a password."""
        url = f"{self.install.url}/v2/token"
        return httpx.get(url, auth=("token", password), timeout=30).status_code == 200

    def sign_in(self, home: Home, *statements: Mapping[str, Any]) -> None:
        """Sign a service account in that may do what `statements` say, and no more."""
        name = f"program-{uuid4().hex[:12]}"
        account = self._post("/v1/service-accounts", name=name)["service_account"]
        document = {"version": "1", "statements": statements}
        policy = self._post("/v1/policies", name=name, document=document)["policy"]
        self._post(f"/v1/policies/{policy['id']}/attachments", service_account=account["id"])
        key = self._post(f"/v1/service-accounts/{account['id']}/access-keys")["access_key"]
        arguments = ("login", self.install.url, "--access-key-id", key["access_key_id"])
        ended = self.run(*arguments, stdin=f"{key['secret_access_key']}\n", home=home)
        assert ended.status == 0, ended.err

    def sign_in_person(
        self, home: Home, email: str, password: str, new_password: str = "", *, role: str = ""
    ) -> None:
        """Sign a person in as ``entrepot login`` does, but in this process, in a role if given."""
        verifier = "v" * 43
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": CLIENT,
            "redirect_uri": OUT_OF_BAND,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        page = f"{self.install.url}/v1/oauth/authorize?{urlencode(query)}"
        form = {
            "grant_type": "authorization_code",
            "code": fetch_code(page, password, new_password, email=email),
            "code_verifier": verifier,
            "client_id": CLIENT,
            "redirect_uri": OUT_OF_BAND,
        }
        answer = httpx.post(f"{self.install.url}/v1/oauth/token", data=form, timeout=60)
        tokens = answer.raise_for_status().json()
        credential = Credential(token_of(tokens), tokens["refresh_token"])
        with changing(home.credentials) as credentials:
            credentials[self.install.url] = credential
        if role:
            ended = self.run("roles", "assume", role, home=home)
            assert ended.status == 0, ended.err

    def _post(self, path: str, **document: object) -> Any:  # noqa: ANN401 - whatever is answered
        token = self.home.stored()[self.install.url]["token"]["access_token"]
        answer = httpx.post(
            self.install.url + path, json=document, headers={"Authorization": f"Bearer {token}"}
        )
        assert answer.is_success, answer.text
        return answer.json()


class ContainerLogin(httpx.Auth):
    """What a container client does: a bearer of its own for each repository."""

    def __init__(self, url: str, access_token: str) -> None:
        signed = {"Authorization": f"Bearer {access_token}"}
        answer = httpx.post(f"{url}/v1/authorization-token", headers=signed).raise_for_status()
        self._exchange = f"{url}/v2/token"
        self._login = ("token", answer.json()["password"])
        self._bearers: dict[str, str] = {}

    def auth_flow(self, request: httpx.Request) -> Iterator[httpx.Request]:  # type: ignore[override]
        path, _, _ = request.url.path.removeprefix("/v2/").partition("/blobs/")
        name, _, _ = path.partition("/manifests/")
        scope = f"repository:{name}:pull,push,delete"
        if scope not in self._bearers:
            answer = httpx.get(self._exchange, params={"scope": scope}, auth=self._login)
            self._bearers[scope] = answer.raise_for_status().json()["token"]
        request.headers["Authorization"] = f"Bearer {self._bearers[scope]}"
        yield request


@contextmanager
def cli_world(folder: Path, **environment: str) -> Iterator[World]:
    """Serve an install, with these variables set, and sign a machine in to it."""
    with installed(folder / "data", **environment) as install:
        home = Home(folder / "home")
        ended = install.sign_in_by_key(home)
        assert ended.returncode == 0, ended.stderr
        access_token = home.stored()[install.url]["token"]["access_token"]
        login = ContainerLogin(install.url, access_token)
        with httpx.Client(base_url=install.url, auth=login, timeout=30) as http:
            yield World(install, home, Registry(http, "acme", only_standard=False))


class Known:
    """Tokens that never end."""

    def __init__(self, *tokens: str) -> None:
        self._tokens = list(tokens)

    def token(self) -> str:
        return self._tokens[0]

    def renewed_token(self, refused: str | None) -> str:
        assert refused == self._tokens.pop(0)
        return self._tokens[0]

    def advice(self) -> str:
        return ""
