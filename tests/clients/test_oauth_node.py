"""An OAuth client of Node: oauth4webapi, which percent-encodes what goes into Basic."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.clients.oauth_server import OUT_OF_BAND, serve_oauth
from tests.clients.programs import attempt, run
from tests.integration.oauth_world import VERIFIER, challenge
from tests.tools import missing

PACKAGE = "oauth4webapi@3.8.8"
SCRIPT = Path(__file__).with_name("oauth4webapi.mjs")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the library, or skip (fail in CI) where that cannot be."""
    folder = tmp_path_factory.mktemp("node")
    options = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefix", folder)
    done = attempt("npm", "install", *options, PACKAGE)
    if done.returncode != 0:
        missing(f"npm cannot install {PACKAGE}")
    return folder / "node_modules" / "oauth4webapi" / "build" / "index.js"


@pytest.mark.client("oauth4webapi")
def test_oauth4webapi_signs_programs_and_persons_in(sqlite_database: str, library: Path) -> None:
    with serve_oauth(sqlite_database) as server:
        query = {
            "response_type": "code",
            "client_id": "cli",
            "redirect_uri": OUT_OF_BAND,
            "code_challenge": challenge(),
            "code_challenge_method": "S256",
        }
        code = server.sign_in(f"{server.authorize_url}?{urlencode(query)}")
        pair = (server.program.access_key_id, server.program.secret)
        told = run("node", SCRIPT, library, server.url, *pair, code, VERIFIER)
    assert told.splitlines() == [
        "program 43200 200",
        "revoked 401",
        "program 43200 200",
        "revoked 401",
        "refused 401 OAUTH_WWW_AUTHENTICATE_CHALLENGE",  # of Basic
        "refused 401 invalid_client",
        "person user",
    ]
