"""The ``oras`` Python client: artifacts of any files, their tags, their subjects."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests
from oras.client import OrasClient
from oras.oci import NewLayer, Subject

from registry.oci.media_types import OCI_INDEX
from tests.clients.images import MIB, Store, noise
from tests.clients.remote import Remote

pytestmark = pytest.mark.client("oras")


@pytest.fixture
def oras(remote: Remote) -> OrasClient:
    return OrasClient(hostname=remote.host, insecure=True)


@pytest.fixture
def folder(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of files to push; the client takes none from outside where it runs."""
    folder = workspace / "files"
    folder.mkdir()
    (folder / "report.json").write_text('{"passed": 1}')
    (folder / "noise.bin").write_bytes(noise(3 * MIB, "oras"))
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("chunked", [False, True], ids=["whole", "chunked"])
def test_files_go_there_and_back(
    oras: OrasClient, remote: Remote, folder: Path, workspace: Path, chunked: bool
) -> None:
    target = f"{remote.reference}:1"
    answer = oras.push(
        target,
        files=["report.json:application/json", "noise.bin"],
        manifest_annotations={"org.example.purpose": "test"},
        do_chunked=chunked,
        chunk_size=MIB,
        quiet=True,
    )
    pulled = oras.pull(target, outdir=str(workspace / "pulled"))

    assert answer.status_code == 201
    assert answer.headers["Docker-Content-Digest"] == remote.digest("1")
    assert {Path(path).name: Path(path).read_bytes() for path in pulled} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }
    assert remote.manifest("1").json()["annotations"] == {"org.example.purpose": "test"}


def test_an_empty_file_goes_there_and_back(
    oras: OrasClient, remote: Remote, folder: Path, workspace: Path
) -> None:
    (folder / "empty").touch()
    oras.push(f"{remote.reference}:1", files=["empty"], quiet=True)
    (pulled,) = oras.pull(f"{remote.reference}:1", outdir=str(workspace / "pulled"))
    assert Path(pulled).read_bytes() == b""


def test_an_index_of_blobs_goes_there_and_back(
    oras: OrasClient, remote: Remote, folder: Path
) -> None:
    """As BuildKit and containerd push caches and checkpoints, in an index of layers."""
    target = oras.get_container(f"{remote.reference}:cache")
    layer = NewLayer("noise.bin", media_type="application/vnd.oci.image.layer.v1.tar")
    assert oras.upload_blob("noise.bin", target, layer).status_code == 201
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [layer]}
    url = f"{oras.prefix}://{target.manifest_url()}"
    answer = oras.do_request(url, "PUT", json=index, headers={"Content-Type": OCI_INDEX})
    assert answer.status_code == 201, answer.text
    found = oras.get_manifest(target, allowed_media_type=[OCI_INDEX])
    assert found["manifests"] == [layer]
    assert oras.get_blob(target, layer["digest"]).content == (folder / "noise.bin").read_bytes()


def test_a_second_push_finds_its_blobs_there(
    oras: OrasClient, remote: Remote, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    send = requests.Session.send

    def recorded(
        session: requests.Session, request: requests.PreparedRequest, **options: object
    ) -> requests.Response:
        sent.append(str(request.method))
        return send(session, request, **options)

    oras.push(f"{remote.reference}:1", files=["noise.bin"], quiet=True)
    monkeypatch.setattr(requests.Session, "send", recorded)
    oras.push(f"{remote.reference}:2", files=["noise.bin"], quiet=True)

    assert sent == ["HEAD", "HEAD", "PUT"]  # two blobs looked for, one manifest pushed
    assert remote.digest("1") == remote.digest("2")


def test_an_artifact_refers_to_its_subject(
    oras: OrasClient, store: Store, remote: Remote, folder: Path
) -> None:
    image = store.image([{"a": b"a"}])
    remote.push(image, "1")
    about = image.descriptor
    answer = oras.push(
        f"{remote.reference}:report",
        files=["report.json:application/json"],
        subject=Subject(about["mediaType"], about["digest"], about["size"]),
        quiet=True,
    )
    assert remote.manifest("report").json()["subject"]["digest"] == image.digest
    assert answer.headers["OCI-Subject"] == image.digest
    (found,) = remote.referrers(image.digest)
    assert found["digest"] == remote.digest("report")


def test_tags_are_listed_over_pages_and_deleted(
    oras: OrasClient, store: Store, remote: Remote
) -> None:
    for tag in ("a", "b", "c", "d", "e"):
        remote.push(store.image([{"tag": tag.encode()}]), tag)
    container = oras.get_container(remote.reference)
    assert sorted(oras.get_tags(container)) == ["a", "b", "c", "d", "e"]
    assert len(oras.get_tags(container, N=2)) == 2
    assert oras.delete_tag(container, "c")
    assert not oras.delete_tag(container, "c")
    assert sorted(oras.get_tags(container)) == ["a", "b", "d", "e"]
