"""The commands of the README and of ``docs/`` are run, in their order, on fresh data.

A command that fails, fails here. What cannot be run here is listed below with the reason.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

import httpx
import pytest

from tests.clients.archives import write_layout
from tests.clients.containers import Containers
from tests.clients.debian_registry import running_registry
from tests.clients.docs_pipelines import pipelines_of
from tests.clients.docs_shell import Shell, commands_of, shell, substituted, write_program
from tests.clients.images import Store
from tests.clients.journey_world import Operator, first_password, operated
from tests.clients.remote import Remote
from tests.databases import ROOT, program_environment
from tests.entrepot import ADMIN, PASSWORD, sign_in_on, told
from tests.live import start_registry
from tests.loaded import script_line
from tests.postgresql import free_port
from tests.tools import require_tool

pytestmark = [pytest.mark.client("skopeo"), pytest.mark.timeout(300)]

PAGES: Final = (
    "README.md",
    "docs/tutorials/first-push.md",
    "docs/tutorials/team.md",
    "docs/tutorials/ci-bot.md",
    "docs/how-to/logins.md",
    "docs/reference/cli.md",
    "docs/how-to/pull-through-cache.md",
    "docs/reference/audit-log.md",
    "docs/reference/usage.md",
    "docs/how-to/keys.md",
    "docs/how-to/metadata.md",
    "docs/how-to/encryption.md",
    "docs/how-to/sign-in.md",
    "docs/how-to/email.md",
    "docs/reference/billing.md",
    "docs/how-to/queues.md",
    "docs/how-to/certificates.md",
    "docs/how-to/load-balancers.md",
    "docs/how-to/buckets.md",
    "docs/reference/quotas.md",
    "docs/how-to/network.md",
    "docs/how-to/tls.md",
)
"""In the order in which they are run, over one install."""

_FLEETS: Final = "needs images, a proxy or a cluster: test_fleet starts it, test_chart checks it"
ELSEWHERE: Final = {
    "docs/how-to/deploy.md": "is run by test_docs_operators",
    "docs/how-to/upgrade.md": "is run by test_docs_operators",
    "docs/tutorials/run-what-you-push.md": "is run by test_tutorials",
    "docs/how-to/s3.md": "is run by test_docs_s3",
    "docs/how-to/databases.md": "is run by test_database_backups",
    "docs/how-to/backup.md": "is run by test_docs_backup",
    "docs/how-to/backup-postgresql.md": "is run by test_docs_backup",
    "docs/how-to/compose.md": _FLEETS,
    "docs/how-to/haproxy.md": _FLEETS,
    "docs/how-to/kubernetes.md": _FLEETS,
    "docs/how-to/disk-to-bucket.md": "needs a bucket and systemd: test_backup_s3 moves a registry",
}
"""Pages that are not run here, and why."""

NOT_RUN: Final = {
    "make dev": "builds .venv out of the package index; the test has one, and starts 'dev'",
    "make test": "runs this test too",
    "docker tag IMAGE": "the stand-in for docker pushes one image under each name",
    "entrepot init": "was run by the fixture, which keeps the secrets it shows",
    "export ENTREPOT_PUBLIC_URL": "there is no proxy with TLS here",
    "export ENTREPOT_TRUSTED_PROXIES": "there is no proxy with TLS here",
    "entrepot serve": "was run by the fixture; it runs until it is stopped",
    "ln -s /opt/entrepot/bin": "installs into a node of Kubernetes",
    "install -m 600 /dev/stdin /etc/kubernetes": "installs into a node of Kubernetes",
    "entrepot docker-login --kubernetes-secret": "needs a cluster; the journeys use the secret",
    "kubectl": "needs a cluster",
    "entrepot access-keys create ci --quiet | vault": "needs a vault",
}
"""Beginnings of commands, and why they are not run here."""

DOCKER: Final = """\
# Stands in for docker, which needs a daemon: skopeo, with the file that docker keeps logins in,
# and plain HTTP, which docker takes on addresses of this machine.
logins=$HOME/.docker/config.json
command=$1
shift
case $command in
  build) exit 0 ;;
  login) exec skopeo login --tls-verify=false --authfile "$logins" "$@" ;;
  push) exec skopeo copy --quiet --dest-tls-verify=false --authfile "$logins" \\
    "oci:$LAYOUT:latest" "docker://$1" ;;
  pull) exec skopeo inspect --tls-verify=false --authfile "$logins" "docker://$1" ;;
esac
exit 64"""


@dataclass
class Reader:
    """Somebody who types what the documentation says."""

    operator: Operator
    shell: Shell
    substitutions: list[tuple[str, str]]

    @property
    def key(self) -> tuple[str, str]:
        """Return the access key that ``init`` showed."""
        made = self.operator.made
        return told("access key id", made), told("secret access key", made)

    def read(self, page: str) -> set[str]:
        """Run a page; return which entries of the list were met."""
        met = set()
        for command in commands_of(page):
            reason = [each for each in NOT_RUN if command.startswith(each)]
            met |= set(reason)
            if not reason:
                self.prepare(command)
                meant = substituted(command, self.substitutions)
                self.shell.run(meant, self.typed(command))
        return met

    def typed(self, command: str) -> str:
        """Return what a command reads: a secret that was shown before, or a provider's."""
        if "identity-providers create" in command or "mirrors create" in command:
            return "a secret of the provider\n"
        return f"{self.key[1]}\n" if "AK" in command and "login" in command else ""

    def prepare(self, command: str) -> None:
        """Do what the text around a command asks for."""
        key, secret = self.key
        if command.startswith(("token=", 'echo \'{"apiVersion"')):
            self.shell.run(
                f"export ENTREPOT_REGISTRY={self.operator.url} ENTREPOT_ACCESS_KEY_ID={key} "
                f"ENTREPOT_SECRET_ACCESS_KEY={secret}"
            )
        elif command.startswith("entrepot "):
            self.shell.run(f"unset ${{!ENTREPOT_*}}; export ENTREPOT_DATA={self.operator.data}")
        elif command.startswith("docker login") and "AK" in command:
            self.shell.run("rm -f ~/.docker/config.json")  # a machine without the helper


@pytest.fixture
def reader(workspace: Path) -> Iterator[Reader]:
    """Return a reader at a machine with the commands, beside the one that serves."""
    for name in ("curl", "jq", "podman", "skopeo"):
        require_tool(name)
    with ExitStack() as stack:
        upstream = stack.enter_context(running_registry(workspace / "upstream", free_port()))
        fill_upstream(workspace, upstream)
        operator = stack.enter_context(
            operated(
                workspace,
                ENTREPOT_UPSTREAM_ALLOWED=upstream,
                ENTREPOT_CERTIFICATE_GRANTS="corp.example=acme",
                ENTREPOT_BALANCER_VIPS="127.0.90.0/29",
                ENTREPOT_NETWORK_IPV6_RANGES="2001:db8:100::/40",
            )
        )
        dev = start_registry(workspace / "dev")
        stack.callback(dev.stop)
        environment = environment_of(workspace, operator)
        stack.enter_context(browsing(workspace / "pages", first_password(operator)))
        started = stack.enter_context(shell(workspace, environment))
        key = told("access key id", operator.made)
        yield Reader(
            operator,
            started,
            [
                ("127.0.0.1:5000", dev.url.removeprefix("http://")),
                ("https://docker.io", upstream),
                ("https://registry.example.com", operator.url),
                ("registry.example.com", operator.host),
                ("you@example.com", ADMIN),
                ("AK...", key),
                ("AK…", key),
            ],
        )


def fill_upstream(folder: Path, url: str) -> None:
    """Publish the images that a page pulls from Docker Hub where another registry stands for it."""
    store = Store(folder / "content-of-upstream")
    with httpx.Client(base_url=url, timeout=30) as http:
        for name, tag in (("library/alpine", "3"), ("library/postgres", "17")):
            images = [
                store.image([{"a": f"{name} on {cpu}".encode()}], architecture=cpu)
                for cpu in ("amd64", "arm64")
            ]
            Remote(http, name).push(store.index(images), tag)


@contextmanager
def browsing(pages: Path, one_time_password: str) -> Iterator[None]:
    """Sign the admin in on each page that is written into a pipe, as a person in a browser does."""
    os.mkfifo(pages)

    def go_on(shown: TextIO) -> None:
        words: tuple[str, ...] = (one_time_password, PASSWORD)
        while page := shown.readline().strip():
            httpx.get(sign_in_on(page, *words).headers["location"])
            words = (PASSWORD,)

    with os.fdopen(os.open(pages, os.O_RDWR)) as shown, ThreadPoolExecutor(1) as pool:
        ended = pool.submit(go_on, shown)
        try:
            yield
        finally:
            os.write(shown.fileno(), b"\n")
            ended.result()


def environment_of(folder: Path, operator: Operator) -> dict[str, str]:
    """Return the environment of a machine with the commands and the stand-ins."""
    home = folder / "home"
    for layout in ("layout", "layout-before"):
        image = Store(folder / f"content-of-{layout}").image([{"a": layout.encode()}])
        write_layout(image, folder / layout)
    clients = Containers(home, operator.host).environment
    del clients["REGISTRY_AUTH_FILE"]
    (home / ".docker").mkdir()
    (home / ".docker" / "config.json").write_text("{}")
    (home / "run").mkdir()
    programs = folder / "programs"
    for name, module in (
        ("entrepot", "registry"),
        ("docker-credential-entrepot", "registry.cli.credential_helper"),
        ("entrepot-credential-provider", "registry.cli.credential_provider"),
    ):
        write_program(programs, name, script_line(module))
    write_program(programs, "docker", DOCKER)
    write_program(programs, "browser", f'echo "$1" >{folder}/pages')
    kept = {
        name: text
        for name, text in program_environment().items()
        if not name.startswith(("ENTREPOT_", "XDG_", "DOCKER_"))
    }
    return {
        **kept,
        **clients,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "BROWSER": str(programs / "browser"),
        "LAYOUT": str(folder / "layout"),
    }


def test_the_documented_commands_work_in_their_order(reader: Reader) -> None:
    met = set()
    for page in PAGES:
        if page == "docs/reference/cli.md":
            push_app(reader)
        met |= reader.read(page)
        if page == "docs/how-to/logins.md":
            run_pipelines(reader, page)
    assert met == NOT_RUN.keys()
    assert len(reader.shell.done) > len(NOT_RUN)


def run_pipelines(reader: Reader, page: str) -> None:
    """Run what the page gives to CI systems, each on a machine that has no login yet."""
    found = pipelines_of(page)
    assert found.keys() == {"GitHub", "GitLab", "Jenkins"}
    for name, script in found.items():
        tag = f"of-{name.lower()}"
        reader.prepare("token=")
        reader.shell.run(f"export GITHUB_SHA={tag} CI_COMMIT_SHA={tag} BUILD_NUMBER={tag}")
        reader.shell.run("rm -f ~/.docker/config.json")
        reader.shell.run(substituted(script, reader.substitutions))
        reader.shell.run(f"docker pull {reader.operator.host}/acme/web/app:{tag}")


def push_app(reader: Reader) -> None:
    """Push the repository that the page of the command speaks of."""
    app = f"{reader.operator.host}/acme/app:1.4.2"
    reader.shell.run(f"LAYOUT=$LAYOUT-before docker push {app}")  # is untagged by the next
    reader.shell.run(f"docker push {app}")
    page = (ROOT / "docs/reference/cli.md").read_text()
    rules = re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0]
    assert json.loads(rules).keys() == {"rules"}
    (reader.shell.folder / "work" / "rules.json").write_text(rules)


def test_every_page_with_commands_is_run_or_listed() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    with_commands = {str(page.relative_to(ROOT)) for page in pages if "```sh\n" in page.read_text()}
    assert with_commands == {*PAGES, *ELSEWHERE}
