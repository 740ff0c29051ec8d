"""containerd signed in: ``ctr`` with ``--user``, and with the hosts of ``hosts.toml``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.containerd import Containerd, load, running_containerd
from tests.clients.images import Store
from tests.live_signed_in import SignedIn

pytestmark = pytest.mark.client("containerd")

HOSTS = """\
server = "http://{host}"
[host."http://{host}"]
capabilities = ["pull", "resolve", "push"]
"""


@pytest.fixture
def containerd() -> Iterator[Containerd]:
    with running_containerd() as machine:
        yield machine


def test_ctr_pushes_and_pulls_as_a_user(
    containerd: Containerd, signed_in: SignedIn, store: Store, workspace: Path, repository: str
) -> None:
    reference = f"{signed_in.host}/{repository}:1"
    hosts = workspace / "hosts" / signed_in.host
    hosts.mkdir(parents=True)
    (hosts / "hosts.toml").write_text(HOSTS.format(host=signed_in.host))
    by_hosts = ("--hosts-dir", workspace / "hosts")
    user = ("--user", f"token:{signed_in.acme.password}")
    stranger = ("--user", f"token:{signed_in.partner.password}")
    image = store.image([{"a": b"a"}])
    load(containerd, image, workspace, reference)

    push, fetch = ("images", "push"), ("content", "fetch")
    assert containerd.attempt(*push, "--plain-http", reference).returncode != 0
    refused = containerd.attempt(*push, "--plain-http", *stranger, reference)
    assert "403 Forbidden" in refused.stderr
    containerd.ctr(*push, "--plain-http", *user, reference)
    containerd.ctr(*push, *by_hosts, *user, reference)

    containerd.ctr("images", "rm", "--sync", reference)
    for denied in (
        containerd.attempt(*fetch, *by_hosts, *who, reference) for who in ((), stranger)
    ):
        assert denied.returncode != 0
    containerd.ctr(*fetch, *by_hosts, *user, reference)
    assert image.digest in containerd.ctr("images", "list", f"name=={reference}")
