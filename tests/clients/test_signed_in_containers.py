"""podman and skopeo signed in: log in, push, pull, share, log out; strangers stay outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.archives import write_docker_archive, write_layout
from tests.clients.containers import Containers
from tests.clients.images import Store
from tests.clients.programs import require_root
from tests.live_signed_in import SignedIn, Tenant, access_key_that_logs_in
from tests.tenants import allow


@pytest.fixture
def machines(workspace: Path, signed_in: SignedIn) -> tuple[Containers, Containers]:
    """Return two machines that know the registry and are not signed in."""
    here, there = (Containers(workspace / name, signed_in.host) for name in ("here", "there"))
    return here, there


def log_in(machine: Containers, signed_in: SignedIn, tenant: Tenant) -> None:
    machine.run("podman", "login", "-u", "token", "-p", tenant.password, signed_in.host)


def share(signed_in: SignedIn, repository: str, *principals: str) -> None:
    """Let principals pull from a repository of ``acme``."""
    query = f"/v1/repositories?name={repository.partition('/')[2]}"
    (found,) = signed_in.call(signed_in.acme, "GET", query)["repositories"]
    statement = {
        "effect": "allow",
        "principals": list(principals),
        "actions": ["registry:PullImage"],
    }
    document = {"version": "1", "statements": [statement]}
    signed_in.call(signed_in.acme, "PUT", f"/v1/repositories/{found['id']}/policy", document)


@pytest.mark.client("podman")
def test_podman_from_login_to_logout(
    machines: tuple[Containers, Containers],
    signed_in: SignedIn,
    store: Store,
    workspace: Path,
    repository: str,
) -> None:
    require_root("podman")
    here, there = machines
    write_docker_archive(store.image([{"a": b"a"}]), workspace / "image.tar", "local/a:1")
    here.run("podman", "load", "--input", workspace / "image.tar")
    target = f"{signed_in.host}/{repository}:1"
    push = ("podman", "push", "--quiet", "local/a:1", f"docker://{target}")
    pull = ("podman", "pull", "--quiet", target)

    assert here.attempt(*push).returncode != 0
    wrong = here.attempt("podman", "login", "-u", "token", "-p", "rlc_x", signed_in.host)
    assert "invalid username/password" in wrong.stderr
    log_in(here, signed_in, signed_in.acme)
    here.run(*push)
    assert there.attempt(*pull).returncode != 0
    log_in(there, signed_in, signed_in.acme)
    there.run(*pull)
    there.run("podman", "rmi", "--all", "--force")
    there.run("podman", "logout", signed_in.host)
    assert there.attempt(*pull).returncode != 0


@pytest.mark.client("podman")
def test_podman_and_skopeo_log_in_with_an_access_key(
    machines: tuple[Containers, Containers],
    signed_in: SignedIn,
    store: Store,
    workspace: Path,
    repository: str,
) -> None:
    require_root("podman")
    here, there = machines
    key = access_key_that_logs_in(signed_in)
    write_layout(store.image([{"a": b"a"}]), workspace / "image")
    target = f"{signed_in.host}/{repository}:1"
    copy = ("skopeo", "copy", f"oci:{workspace}/image:latest", f"docker://{target}")
    here.run(*copy, "--dest-creds", f"{key.id}:{key.secret}")

    log_in_as = ("podman", "login", "-u", key.id, "-p")
    wrong = there.attempt(*log_in_as, "A" * 40, signed_in.host)
    assert "invalid username/password" in wrong.stderr
    there.run(*log_in_as, key.secret, signed_in.host)
    there.run("podman", "pull", "--quiet", target)
    there.run("podman", "rmi", "--all", "--force")
    signed_in.call(signed_in.acme, "PATCH", key.path, {"status": "inactive"})
    assert there.attempt("podman", "pull", "--quiet", target).returncode != 0


@pytest.mark.client("podman")
def test_accounts_cannot_see_each_other_until_one_shares(
    machines: tuple[Containers, Containers],
    signed_in: SignedIn,
    store: Store,
    workspace: Path,
    repository: str,
) -> None:
    require_root("podman")
    owner, other = machines
    write_layout(store.image([{"a": b"a"}]), workspace / "image")
    target = f"docker://{signed_in.host}/{repository}:1"
    log_in(owner, signed_in, signed_in.acme)
    owner.run("skopeo", "copy", f"oci:{workspace}/image:latest", target)
    pull = ("podman", "pull", "--quiet", f"{signed_in.host}/{repository}:1")

    assert other.attempt(*pull).returncode != 0  # anonymous
    log_in(other, signed_in, signed_in.partner)
    assert "denied" in other.attempt(*pull).stderr
    share(signed_in, repository, "partner")
    other.run(*pull)
    assert other.attempt("skopeo", "copy", f"oci:{workspace}/image:latest", target).returncode != 0

    other.run("podman", "rmi", "--all", "--force")
    other.run("podman", "logout", signed_in.host)
    assert other.attempt(*pull).returncode != 0
    share(signed_in, repository, "*")
    other.run(*pull)


@pytest.mark.client("skopeo")
def test_skopeo_with_credentials(
    machines: tuple[Containers, Containers],
    signed_in: SignedIn,
    store: Store,
    workspace: Path,
    repository: str,
) -> None:
    skopeo, _ = machines
    write_layout(store.image([{"a": b"a"}]), workspace / "image")
    target = f"docker://{signed_in.host}/{repository}"
    pair = f"token:{signed_in.acme.password}"
    copy = ("skopeo", "copy", f"oci:{workspace}/image:latest", f"{target}:1")

    skopeo.run(*copy, "--dest-creds", pair)
    assert "1" in skopeo.run("skopeo", "list-tags", "--creds", pair, target)
    skopeo.run("skopeo", "inspect", "--creds", pair, f"{target}:1")
    copied = (f"{target}:1", f"{target}-copy:1")
    skopeo.run("skopeo", "copy", "--src-creds", pair, "--dest-creds", pair, *copied)
    partner = f"token:{signed_in.partner.password}"
    refused = skopeo.attempt("skopeo", "inspect", "--creds", partner, f"{target}:1")
    assert refused.returncode != 0
    skopeo.run("skopeo", "delete", "--creds", pair, f"{target}:1")
    gone = skopeo.attempt("skopeo", "inspect", "--creds", pair, f"{target}:1")
    assert "manifest unknown" in gone.stderr.lower()


@pytest.mark.client("skopeo")
def test_skopeo_shows_what_is_missing(
    machines: tuple[Containers, Containers],
    signed_in: SignedIn,
    store: Store,
    workspace: Path,
    repository: str,
) -> None:
    skopeo, _ = machines
    write_layout(store.image([{"a": b"a"}]), workspace / "image")
    target = f"docker://{signed_in.host}/{repository}:1"

    def words_for_a_push(*actions: str) -> str:
        key = access_key_that_logs_in(signed_in, allow(*actions))
        copy = ("skopeo", "copy", f"oci:{workspace}/image:latest", target)
        return skopeo.attempt(*copy, "--dest-creds", f"{key.id}:{key.secret}").stderr

    none = f"denied: none of your policies allows registry:PushImage on {repository}"
    assert none in words_for_a_push("registry:PullImage")
    takes = f"may not create it: that takes registry:CreateRepository on {repository}"
    assert takes in words_for_a_push("registry:PullImage", "registry:PushImage")
