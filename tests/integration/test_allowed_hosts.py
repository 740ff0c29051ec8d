"""A registry in service is known by the names it was given, never by those it is called."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.live import LiveRegistry, start_registry
from tests.loaded import ENTREPOT, program_environment, run_loaded
from tests.tenants import claims_of

REALM = re.compile(r'Bearer realm="([^"]*)/v2/token",service="([^"]*)"')
EVIL = ["evil.example", "evil.example:5000", "one.lan.evil.example", "one.lan:5001", "[::1]"]


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, str]]:
    """Make an install; return its folder, and an access key of it."""
    data = tmp_path_factory.mktemp("install") / "data"
    shown = init(data).stdout
    labels = ("access key id", "secret access key")
    key_id, secret = (re.findall(rf"{label} +(\S+)", shown)[0] for label in labels)
    return data, (key_id, secret)


def init(data: Path, **env: str) -> subprocess.CompletedProcess[str]:
    words = ("init", "--account", "acme", "--admin-email", "a@example.org", "--data", str(data))
    return run_loaded(ENTREPOT, words, {**program_environment(), **env})


@contextmanager
def serving(
    data: Path, *options: str, env: Mapping[str, str] | None = None
) -> Iterator[LiveRegistry]:
    registry = start_registry(data, *options, command="serve", env=env)
    try:
        yield registry
    finally:
        assert registry.stop() == 0, registry.log


def named(registry: LiveRegistry, host: str) -> tuple[str, str]:
    """Return the base of the realm, and the service, that a request of this host is told."""
    answer = httpx.get(f"{registry.url}/v2/", headers={"Host": host})
    assert answer.status_code == 401, answer.text
    found = REALM.fullmatch(answer.headers["www-authenticate"])
    assert found is not None
    return found[1], found[2]


def believed(registry: LiveRegistry, key: tuple[str, str]) -> dict[str, Any]:
    """Return every name of itself that a registry gives to a program that signs in."""
    with httpx.Client(base_url=registry.url, headers={"Host": "evil.example"}) as client:
        form = {"grant_type": "client_credentials"}
        token = client.post("/v1/oauth/token", data=form, auth=key).json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        login = client.post("/v1/authorization-token").json()
        listed = client.get("/v1/repositories").json()["repositories"]
        name = f"web-{len(listed)}"
        made = client.post("/v1/repositories", json={"name": name}).json()["repository"]
        del client.headers["Authorization"]
        bearer = client.get("/v2/token", auth=("token", login["password"])).json()["token"]
    return {
        "registry": login["registry"],
        "proxy_endpoint": login["proxy_endpoint"],
        "uri": made["uri"].removesuffix(f"/acme/{name}"),
        "aud": claims_of(bearer)["aud"],
        "iss": claims_of(token)["iss"],
    }


def test_a_listed_host_is_told_to_come_back_under_it(
    install: tuple[Path, tuple[str, str]],
) -> None:
    data, key = install
    listed = ("--allowed-host", "one.lan:5000", "--allowed-host", "two.lan")
    with serving(data, *listed) as registry:
        assert named(registry, "one.lan:5000") == ("http://one.lan:5000", "one.lan:5000")
        assert named(registry, "TWO.lan") == ("http://two.lan", "two.lan")
        for host in EVIL:
            assert named(registry, host) == ("http://one.lan:5000", "one.lan:5000")
        assert believed(registry, key) == {
            "registry": "one.lan:5000",
            "proxy_endpoint": "http://one.lan:5000",
            "uri": "one.lan:5000",
            "aud": "one.lan:5000",
            "iss": "http://one.lan:5000",
        }


def test_the_public_url_wins(install: tuple[Path, tuple[str, str]]) -> None:
    data, key = install
    env = {
        "ENTREPOT_PUBLIC_URL": "https://registry.example:8443/",
        "ENTREPOT_ALLOWED_HOSTS": "one.lan",
    }
    with serving(data, env=env) as registry:
        for host in ["one.lan", *EVIL]:
            assert named(registry, host) == (
                "https://registry.example:8443",
                "registry.example:8443",
            )
        assert believed(registry, key) == {
            "registry": "registry.example:8443",
            "proxy_endpoint": "https://registry.example:8443",
            "uri": "registry.example:8443",
            "aud": "registry.example:8443",
            "iss": "https://registry.example:8443",
        }


def test_without_a_name_it_is_the_address_that_was_reached(
    install: tuple[Path, tuple[str, str]],
) -> None:
    data, _ = install
    with serving(data) as registry:
        for host in [f"127.0.0.1:{registry.port}", *EVIL]:
            assert named(registry, host) == (registry.url, f"127.0.0.1:{registry.port}")


def test_a_name_that_is_none_keeps_it_from_starting(
    install: tuple[Path, tuple[str, str]],
) -> None:
    data, _ = install
    words = ("serve", "--data", str(data), "--allowed-host", "http://one.lan")
    ended = run_loaded(ENTREPOT, words, program_environment())
    assert ended.returncode == 2
    assert ended.stderr == "entrepot: allowed_hosts: 'http://one.lan' is no HOST or HOST:PORT\n"
