"""The provider oidc-provider of Node: its package, its process, and a person at its pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

import httpx
import pytest

from tests.clients.programs import attempt, daemon
from tests.tools import missing, require_tool

PACKAGE: Final = "oidc-provider@8.8.1"
SCRIPT: Final = Path(__file__).with_name("oidc_provider.mjs")
_CHOICE: Final = re.compile(r'<a class="provider" href="([^"]*)"')
_ACTION: Final = re.compile(r'<form[^>]* action="([^"]*)"')
_HIDDEN: Final = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)"')


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the provider, or skip (fail in CI) where that cannot be."""
    folder = tmp_path_factory.mktemp("oidc-provider")
    options = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefix", folder)
    done = attempt("npm", "install", *options, PACKAGE)
    if done.returncode != 0:
        missing(f"npm cannot install {PACKAGE}")
    return folder / "node_modules" / "oidc-provider" / "lib" / "index.js"


@contextmanager
def provider_with_client(
    library: Path, folder: Path, url: str, redirect_uri: str, secret: str, **people: dict[str, Any]
) -> Iterator[None]:
    """Run the provider at a URL, with a client ``entrepot`` and the claims of people by login."""
    known = folder / "people.json"
    known.write_text(json.dumps(people))

    def is_ready() -> bool:
        try:
            return httpx.get(f"{url}/.well-known/openid-configuration").is_success
        except httpx.HTTPError:
            return False

    command = (require_tool("node"), SCRIPT, library, url, redirect_uri, secret, known)
    with daemon(*command, log=folder / "node.log", ready=is_ready):
        yield


def sign_in_at_provider(page: str, login: str) -> tuple[httpx.Response, int]:
    """Choose the provider on the sign-in page, and sign in there; return the last page.

    Also how many forms that took.
    """
    with httpx.Client(timeout=60, follow_redirects=True) as browser:
        shown = browser.get(page)
        choice = _CHOICE.search(shown.text)
        assert choice is not None, shown.text
        shown = browser.get(urljoin(str(shown.url), unescape(choice[1])))
        forms = 0
        while action := _ACTION.search(shown.text):
            assert forms < 3, shown.text
            filled = dict(_HIDDEN.findall(shown.text))
            if 'name="login"' in shown.text:
                filled |= {"login": login, "password": "any"}
            shown = browser.post(urljoin(str(shown.url), unescape(action[1])), data=filled)
            forms += 1
        return shown, forms
