"""Sign in to an ``entrepot serve`` that is measured: its first account, and bearers for pushes."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ADMIN: Final = "a@example.org"
RENEW_SECONDS: Final = 200
"""Age from which a bearer, which lives five minutes, is replaced."""


class Made(NamedTuple):
    """What ``entrepot init`` shows once."""

    pair: tuple[str, str]
    """The id and secret of an access key."""
    one_time_password: str
    """Of the person `ADMIN`."""


def initialize(data: Path, account: str, environment: Mapping[str, str]) -> Made:
    """Run ``entrepot init``; return what it shows."""
    command = [sys.executable, "-m", "registry", "init", "--data", str(data)]
    shown = subprocess.run(
        [*command, "--account", account, "--admin-email", ADMIN],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    labels = ("access key id", "secret access key", "one-time password")
    key, secret, password = (re.findall(rf"{label} +(\S+)", shown)[0] for label in labels)
    return Made((key, secret), password)


class Bearers:
    """The bearers of one client, for pulls from and pushes to some repositories."""

    def __init__(self, url: str, secrets: Sequence[str], repositories: Sequence[str]) -> None:
        self._url = url
        self._secrets = secrets
        self._repositories = repositories
        form = urllib.parse.urlencode({"grant_type": "client_credentials"}).encode()
        access = self._call("POST", "/v1/oauth/token", form, _basic(*secrets))
        self.access_token: str = access["access_token"]
        """For requests to ``/v1``."""
        headers = {"Authorization": f"Bearer {self.access_token}"}
        self._login = self._call("POST", "/v1/authorization-token", b"", headers)
        self._basic = _basic(self._login["username"], self._login["password"])
        self._bearer = ""
        self._made_at = float("-inf")

    @property
    def token_target(self) -> str:
        """Return the path and query that ask for a bearer."""
        scopes = [("scope", f"repository:{each}:pull,push") for each in self._repositories]
        return f"/v2/token?{urllib.parse.urlencode(scopes)}"

    @property
    def basic_header(self) -> str:
        """Return the header line that asks for a bearer."""
        return f"Authorization: {self._basic['Authorization']}"

    def again(self) -> Bearers:
        """Sign in once more, with the same access key."""
        return Bearers(self._url, self._secrets, self._repositories)

    def header(self) -> str:
        """Return the header line with a bearer that is valid for some time."""
        if time.monotonic() - self._made_at > RENEW_SECONDS:
            self._bearer = self._call("GET", self.token_target, None, self._basic)["token"]
            self._made_at = time.monotonic()
        return f"Authorization: Bearer {self._bearer}"

    def _call(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Any:  # noqa: ANN401
        request = urllib.request.Request(self._url + path, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())


def _basic(user: str, password: str) -> dict[str, str]:
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}
