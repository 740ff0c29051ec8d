"""The ``oras`` Python client signed in: it keeps its first token and repeats itself upon 401."""

from __future__ import annotations

from pathlib import Path

import pytest
from oras.client import OrasClient
from oras.oci import Subject

from tests.live_signed_in import SignedIn, Tenant, access_key_that_logs_in

pytestmark = pytest.mark.client("oras")


@pytest.fixture
def folder(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = workspace / "files"
    folder.mkdir()
    (folder / "report.json").write_text('{"passed": 1}')
    monkeypatch.chdir(folder)
    return folder


def client(signed_in: SignedIn, tenant: Tenant, workspace: Path) -> OrasClient:
    return client_with(signed_in, "token", tenant.password, workspace / f"{tenant.handle}.json")


def client_with(signed_in: SignedIn, username: str, password: str, kept: Path) -> OrasClient:
    made = OrasClient(hostname=signed_in.host, insecure=True)
    made.login(
        hostname=signed_in.host,
        username=username,
        password=password,
        tls_verify=False,
        config_path=str(kept),
    )
    return made


def test_an_access_key_logs_in(
    signed_in: SignedIn, workspace: Path, folder: Path, repository: str
) -> None:
    key = access_key_that_logs_in(signed_in)
    oras = client_with(signed_in, key.id, key.secret, workspace / "key.json")
    target = f"{signed_in.host}/{repository}:1"
    pushed = oras.push(target, files=["report.json:application/json"], quiet=True)
    assert pushed.status_code == 201
    (pulled,) = oras.pull(target, outdir=str(workspace / "pulled"), overwrite=True)
    assert Path(pulled).read_text() == '{"passed": 1}'


def test_one_client_works_on_several_repositories(
    signed_in: SignedIn, workspace: Path, folder: Path, repository: str
) -> None:
    oras = client(signed_in, signed_in.acme, workspace)
    first = f"{signed_in.host}/{repository}:1"
    second = f"{signed_in.host}/{repository}-second:1"
    for target in (first, second, first):
        answer = oras.push(target, files=["report.json:application/json"], quiet=True)
        assert answer.status_code == 201
    for target in (second, first):
        (pulled,) = oras.pull(target, outdir=str(workspace / "pulled"), overwrite=True)
        assert Path(pulled).read_text() == '{"passed": 1}'
    container = oras.get_container(first)
    assert oras.get_tags(container) == ["1"]
    assert oras.delete_tag(container, "1")
    assert oras.get_tags(container) == []


def test_an_artifact_and_its_report_are_stored_sealed(
    signed_in: SignedIn, workspace: Path, folder: Path, repository: str
) -> None:
    secret = b"bytes that nobody finds on the disk. " * 40_000
    (folder / "secret.bin").write_bytes(secret)
    oras = client(signed_in, signed_in.acme, workspace)
    target = f"{signed_in.host}/{repository}"
    pushed = oras.push(f"{target}:1", files=["secret.bin"], quiet=True)
    digest = pushed.headers["Docker-Content-Digest"]
    about = oras.get_manifest(oras.get_container(f"{target}:1"))
    size = int(pushed.request.headers["Content-Length"])
    oras.push(
        f"{target}:report",
        files=["report.json:application/json"],
        subject=Subject(about["mediaType"], digest, size),
        quiet=True,
    )
    listed = f"{signed_in.registry.url}/v2/{repository}/referrers/{digest}"
    (found,) = oras.do_request(listed, "GET").json()["manifests"]
    report = oras.get_manifest(oras.get_container(f"{target}:report"))
    assert found["artifactType"] == report["config"]["mediaType"]
    (pulled,) = oras.pull(f"{target}:1", outdir=str(workspace / "pulled"))
    assert Path(pulled).read_bytes() == secret
    files = [each for each in signed_in.registry.data.rglob("*") if each.is_file()]
    assert not [each for each in files if secret[:37] in each.read_bytes()]


def test_a_stranger_is_refused(
    signed_in: SignedIn, workspace: Path, folder: Path, repository: str
) -> None:
    target = f"{signed_in.host}/{repository}:1"
    client(signed_in, signed_in.acme, workspace).push(
        target, files=["report.json:application/json"], quiet=True
    )
    stranger = client(signed_in, signed_in.partner, workspace)
    with pytest.raises(ValueError, match="Forbidden"):
        stranger.pull(target, outdir=str(workspace / "stolen"))
