"""OAuth clients of Python: requests-oauthlib and Authlib, each in its own way of authenticating."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from authlib.integrations.requests_client import (  # type: ignore[import-untyped]
    OAuth2Session as AuthlibSession,
)
from oauthlib.oauth2 import (  # type: ignore[import-untyped]
    BackendApplicationClient,
    InvalidClientError,
    InvalidGrantError,
)
from requests_oauthlib import OAuth2Session  # type: ignore[import-untyped]

from tests.clients.oauth_server import OUT_OF_BAND, OAuthServer, serve_oauth


@pytest.fixture
def server(sqlite_database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[OAuthServer]:
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")  # http, on loopback
    with serve_oauth(sqlite_database) as served:
        yield served


@pytest.mark.client("requests-oauthlib")
@pytest.mark.parametrize("in_form", [False, True])
def test_requests_oauthlib_signs_a_program_in(server: OAuthServer, in_form: bool) -> None:
    program = server.program
    with OAuth2Session(client=BackendApplicationClient(client_id=program.access_key_id)) as session:
        if in_form:
            token = session.fetch_token(
                server.token_url, client_secret=program.secret, include_client_id=True
            )
        else:
            auth = (program.access_key_id, program.secret)
            token = session.fetch_token(server.token_url, auth=auth)
        assert token["expires_in"] == 3600
        assert session.get(f"{server.url}/v1/whoami").json()["id"] == program.id
        with pytest.raises(InvalidClientError):
            session.fetch_token(server.token_url, auth=(program.access_key_id, "we+ird/se%cret=="))


@pytest.mark.client("requests-oauthlib")
@pytest.mark.parametrize("in_form", [False, True])
def test_requests_oauthlib_signs_a_person_in(server: OAuthServer, in_form: bool) -> None:
    """By default it names the client in an `Authorization` with an empty secret."""
    with OAuth2Session("cli", redirect_uri=OUT_OF_BAND, pkce="S256") as session:
        url, _ = session.authorization_url(server.authorize_url)
        code = server.sign_in(url)
        named = {"include_client_id": True} if in_form else {}
        token = session.fetch_token(server.token_url, code=code, **named)
        assert session.get(f"{server.url}/v1/whoami").json()["kind"] == "user"
        old = token["refresh_token"]
        new = session.refresh_token(server.token_url, client_id="cli")
        assert new["refresh_token"] != old
        assert session.get(f"{server.url}/v1/whoami").status_code == 200
        with pytest.raises(InvalidGrantError):
            session.refresh_token(server.token_url, refresh_token=old, client_id="cli")
        assert session.get(f"{server.url}/v1/whoami").status_code == 401


@pytest.mark.client("authlib")
@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
def test_authlib_signs_a_program_in_and_out(server: OAuthServer, method: str) -> None:
    program = server.program
    with AuthlibSession(
        program.access_key_id, program.secret, token_endpoint_auth_method=method
    ) as client:
        token = client.fetch_token(server.token_url, grant_type="client_credentials")
        assert client.get(f"{server.url}/v1/whoami").json()["id"] == program.id
        assert client.revoke_token(server.revoke_url, token["access_token"]).status_code == 200
        assert server.who(token["access_token"]).status_code == 401


@pytest.mark.client("authlib")
def test_authlib_signs_a_person_in_and_out(server: OAuthServer) -> None:
    verifier = "v" * 64
    with AuthlibSession(
        "cli",
        token_endpoint_auth_method="none",
        redirect_uri=OUT_OF_BAND,
        code_challenge_method="S256",
    ) as client:
        url, _ = client.create_authorization_url(server.authorize_url, code_verifier=verifier)
        code = server.sign_in(url)
        client.fetch_token(
            server.token_url,
            code=code,
            code_verifier=verifier,
            grant_type="authorization_code",
        )
        assert client.get(f"{server.url}/v1/whoami").json()["kind"] == "user"
        token = client.refresh_token(server.token_url)
        assert server.who(token["access_token"]).status_code == 200
        client.revoke_token(server.revoke_url, token["refresh_token"])
        assert server.who(token["access_token"]).status_code == 401
