"""Container clients and boto3 at hosts of their own, each of which is one server."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import boto3
import httpx
import pytest
from botocore.config import Config
from selenium import webdriver

from tests.clients.archives import write_docker_archive, write_layout
from tests.clients.chromium import check_quiet, fill, title
from tests.clients.containers import Containers
from tests.clients.images import Store
from tests.clients.programs import require_root
from tests.databases import planted
from tests.entrepot import ADMIN, initialized
from tests.live import LiveRegistry, start_registry
from tests.postgresql import free_port

MAIN, PULL, AUTH, S3 = (f"{word}.localhost" for word in ("cloud", "cr", "auth", "s3"))


class Site(NamedTuple):
    """A server under several names, and the access key and container login of a program."""

    registry: LiveRegistry
    key_id: str
    secret: str
    password: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = tmp_path_factory.mktemp("named") / "data"
    shown = initialized(planted(data))
    key_id, secret = (
        re.findall(rf"{label} +(\S+)", shown)[0] for label in ("access key id", "secret access key")
    )
    env = {
        "ENTREPOT_PUBLIC_URL": f"http://{MAIN}",
        "ENTREPOT_FAMILY_HOSTS": f"pull={PULL},auth={AUTH}",
        "ENTREPOT_S3_HOST": S3,
    }
    registry = start_registry(data, command="serve", env=env)
    try:
        with httpx.Client(proxy=registry.url, timeout=60) as client:
            form = {"grant_type": "client_credentials"}
            url = f"http://{AUTH}/v1/oauth/token"
            token = client.post(url, data=form, auth=(key_id, secret)).json()["access_token"]
            headers = {"Authorization": f"Bearer {token}"}
            login = client.post(f"http://{MAIN}/v1/authorization-token", headers=headers).json()
        yield Site(registry, key_id, secret, login["password"])
    finally:
        assert registry.stop() == 0, registry.log


@pytest.fixture
def machine(site: Site, workspace: Path) -> Containers:
    """Return a machine that finds every name at the server, as at a proxy."""
    made = Containers(workspace / "home", PULL)
    made.environment |= {"http_proxy": site.registry.url, "HTTP_PROXY": site.registry.url}
    return made


@pytest.mark.client("podman")
def test_podman_pushes_to_the_host_of_pulls_and_to_no_other(
    site: Site, machine: Containers, store: Store, workspace: Path
) -> None:
    require_root("podman")
    write_docker_archive(store.image([{"a": b"a"}]), workspace / "image.tar", "local/a:1")
    machine.run("podman", "load", "--input", workspace / "image.tar")
    plain = "--tls-verify=false"
    machine.run("podman", "login", plain, "-u", "token", "-p", site.password, PULL)
    machine.run("podman", "push", "--quiet", "local/a:1", f"docker://{PULL}/acme/podman:1")
    machine.run("podman", "rmi", "--all", "--force")
    machine.run("podman", "pull", "--quiet", f"{PULL}/acme/podman:1")
    refused = machine.attempt("podman", "pull", "--quiet", plain, f"{MAIN}/acme/podman:1")
    assert refused.returncode != 0
    assert "404" in refused.stderr


@pytest.mark.client("skopeo")
def test_skopeo_copies_to_the_host_of_pulls(
    site: Site, machine: Containers, store: Store, workspace: Path
) -> None:
    write_layout(store.image([{"b": b"b"}]), workspace / "pushed")
    there = f"docker://{PULL}/acme/skopeo:1"
    pair = f"token:{site.password}"
    plain = ("--dest-tls-verify=false", "--dest-creds", pair)
    machine.run("skopeo", "copy", *plain, f"oci:{workspace}/pushed:latest", there)
    shown = machine.run("skopeo", "inspect", "--tls-verify=false", "--creds", pair, there)
    assert f'"Name": "{PULL}/acme/skopeo"' in shown


def test_boto3_finds_the_endpoint_where_the_regions_have_it(site: Site) -> None:
    proxy = site.registry.url
    with httpx.Client(proxy=proxy, timeout=60) as client:
        (region,) = client.get(f"http://{MAIN}/v1/regions").json()["regions"]
    url = region["endpoints"]["s3"]
    assert url == f"http://{S3}"
    boto = boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=site.key_id,
        aws_secret_access_key=site.secret,
        region_name=region["name"],
        config=Config(proxies={"http": proxy}, s3={"addressing_style": "virtual"}),
    )
    boto.create_bucket(Bucket="named")
    boto.put_object(Bucket="named", Key="a", Body=b"hello")
    link = boto.generate_presigned_url("get_object", {"Bucket": "named", "Key": "a"})
    assert link.startswith(f"http://named.{S3}/a?")
    with httpx.Client(proxy=proxy, timeout=60) as client:
        assert client.get(link).content == b"hello"
        assert client.get(f"http://{MAIN}/named/a").status_code == 404


def test_the_certificate_of_the_install_has_every_name(tmp_path: Path) -> None:
    data = tmp_path / "data"
    initialized(planted(data))
    env = {
        "ENTREPOT_PUBLIC_URL": f"https://{MAIN}",
        "ENTREPOT_FAMILY_HOSTS": f"pull={PULL},auth={AUTH}",
    }
    registry = start_registry(data, "--tls", command="serve", env=env)
    try:
        trust = ssl.create_default_context(cafile=data / "tls-own" / "root.pem")
        for host, status in ((MAIN, 404), (PULL, 401), (AUTH, 404)):
            with httpx.Client(verify=trust, timeout=60) as client:
                answer = client.get(
                    f"{registry.url}/v2/",
                    headers={"Host": host},
                    extensions={"sni_hostname": host},
                )
            assert answer.status_code == status
    finally:
        assert registry.stop() == 0, registry.log


@pytest.mark.client("chromium")
def test_a_browser_signs_in_at_one_name_and_acts_at_another(
    tmp_path: Path, browser: webdriver.Chrome
) -> None:
    data, port = tmp_path / "data", free_port()
    shown = initialized(planted(data))
    console = f"http://console.localhost:{port}"  # browsers look at this machine for .localhost
    env = {
        "ENTREPOT_PUBLIC_URL": f"http://{MAIN}:{port}",
        "ENTREPOT_FAMILY_HOSTS": f"auth={AUTH}:{port},console=console.localhost:{port}",
    }
    registry = start_registry(data, "--port", str(port), command="serve", env=env)
    try:
        browser.get(f"http://{MAIN}:{port}/")
        assert browser.current_url.startswith(f"http://{AUTH}:{port}/v1/oauth/authorize?")
        fill(browser, email=ADMIN, password=re.findall(r"one-time password +(\S+)", shown)[0])
        chosen = "a password of my own"
        fill(browser, new_password=chosen, repeated_password=chosen)
        assert browser.current_url.startswith(f"{console}/console/repositories")
        assert title(browser) == "Repositories"
        check_quiet(browser)
    finally:
        assert registry.stop() == 0, registry.log
