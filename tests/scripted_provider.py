"""An OpenID Connect provider on a loopback port that lies as a test tells it to.

It has no pages: a test reads the authorization request, and asks for a code as if a person had
signed in. What is asked of it is counted by path.
"""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

from cloudcore.identity.tokens.jws import OnlyAlgorithm

CLIENT: Final = "entrepot"
SECRET: Final = "a secret: of+the/client"

Key = RSAKey | ECKey | OKPKey


def new_key(algorithm: str) -> Key:
    """Generate a key of an algorithm."""
    match algorithm:
        case "RS256":
            return RSAKey.generate_key(2048)
        case "ES256":
            return ECKey.generate_key("P-256")
        case _:
            return OKPKey.generate_key("Ed25519")


@dataclass
class Provider:
    """The provider, and what it says next."""

    url: str
    algorithm: str = "RS256"
    kid: str | None = "one"
    key: Key = field(default_factory=lambda: _KEYS["RS256"])
    claims: dict[str, Any] = field(default_factory=dict)
    """Claims of the next ID tokens; None leaves a claim out."""
    userinfo: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    """Changes of its metadata; None leaves a field out."""
    access_token: str = "at"
    keys: list[dict[str, Any]] | None = None
    """The published keys; None: that of `key`."""
    answer: Callable[[str], tuple[int, bytes, dict[str, str]] | None] = lambda _path: None
    """What to answer at a path instead of the truth."""
    asked: Counter[str] = field(default_factory=Counter)
    forms: list[dict[str, str]] = field(default_factory=list)
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def authorize(self, url: str) -> dict[str, str]:
        """Sign a person in by an authorization request; return what the browser brings back."""
        asked = dict(parse_qsl(urlsplit(url).query))
        code = f"code-{len(self._codes)}"
        self._codes[code] = asked
        return {"code": code, "state": asked["state"], "iss": self.url}

    def rotate(self, algorithm: str, kid: str | None) -> None:
        """Sign with another key from now on."""
        self.algorithm, self.kid, self.key = algorithm, kid, new_key(algorithm)

    def discovery(self) -> dict[str, Any]:
        found = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "authorization_response_iss_parameter_supported": True,
        } | self.metadata
        return {name: value for name, value in found.items() if value is not None}

    def published(self) -> list[dict[str, Any]]:
        if self.keys is not None:
            return self.keys
        named = {} if self.kid is None else {"kid": self.kid}
        return [{**self.key.as_dict(private=False), **named, "use": "sig"}]

    def token(self, form: dict[str, str], authorization: str | None) -> tuple[int, dict[str, Any]]:
        self.forms.append(form)
        asked = self._codes.pop(form.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest())
        if not self._is_client(form, authorization):
            return 401, {"error": "invalid_client"}
        if (
            asked is None
            or challenge.decode().rstrip("=") != asked["code_challenge"]
            or form["redirect_uri"] != asked["redirect_uri"]
        ):
            return 400, {"error": "invalid_grant", "error_description": "no such code"}
        tokens = {"access_token": self.access_token, "id_token": self.sign(asked)}
        return 200, {**tokens, "token_type": "Bearer"}

    def _is_client(self, form: dict[str, str], authorization: str | None) -> bool:
        """Return True if the client proves itself by the method that the metadata names alone."""
        pair = base64.b64encode(b"entrepot:a+secret%3A+of%2Bthe%2Fclient").decode()
        sent = authorization, form.get("client_id"), form.get("client_secret")
        match self.metadata.get("token_endpoint_auth_methods_supported"):
            case ["client_secret_post"]:
                return sent == (None, CLIENT, SECRET)
            case ["none"]:
                return sent == (None, CLIENT, None)
            case _:
                return sent == (f"Basic {pair}", None, None)

    def reply(
        self, path: str, form: dict[str, str], authorization: str | None
    ) -> tuple[int, dict[str, Any]]:
        """Return the status and the answer at a path."""
        match path:
            case "/.well-known/openid-configuration":
                return 200, self.discovery()
            case "/keys":
                return 200, {"keys": self.published()}
            case "/token":
                return self.token(form, authorization)
            case "/userinfo":
                return 200, self.userinfo
            case _:
                return 404, {}

    def sign(self, asked: dict[str, str]) -> str:
        """Return an ID token for an authorization request."""
        claims = {"iss": self.url, "aud": CLIENT, "nonce": asked["nonce"]} | self.claims
        kept = {name: value for name, value in claims.items() if value is not None}
        header = {"alg": self.algorithm} | ({} if self.kid is None else {"kid": self.kid})
        payload = json.dumps(kept).encode()
        registry = OnlyAlgorithm(self.algorithm)
        return jws.serialize_compact(header, payload, self.key, registry=registry)


_KEYS: Final[dict[str, Key]] = {"RS256": new_key("RS256")}


@contextmanager
def scripted_provider() -> Iterator[Provider]:
    """Serve a provider meanwhile."""
    provider: Provider

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply()

        def do_POST(self) -> None:
            self._reply()

        def _reply(self) -> None:
            path = urlsplit(self.path).path
            provider.asked[path] += 1
            sent = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            lie = provider.answer(path)
            if lie is not None:
                status, body, headers = lie
            else:
                credential = self.headers.get("authorization")
                status, told = provider.reply(path, dict(parse_qsl(sent)), credential)
                body, headers = json.dumps(told).encode(), {}
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = Provider(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
