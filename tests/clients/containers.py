"""The settings podman, buildah and skopeo share, none of them the machine's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.clients.programs import attempt, run

# vfs needs no kernel module and no privilege beyond root; cgroupfs and the file log do without
# systemd, which a test machine need not have.
STORAGE = """\
[storage]
driver = "vfs"
graphroot = "{home}/storage"
runroot = "{home}/run"
"""
# A storage that takes of a layer only what it lacks, which no other driver can.
PARTIAL = """\
[storage]
driver = "overlay"
graphroot = "{home}/storage"
runroot = "{home}/run"
[storage.options]
pull_options = {{enable_partial_images = "true", use_hard_links = "false", ostree_repos = ""}}
"""
CONTAINERS = """\
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{home}/tmp"
"""
# Asks for plain HTTP in one place: not every command has an option for it.
REGISTRIES = """\
[[registry]]
location = "{registry}"
insecure = true
"""


class Containers:
    """One home folder with its own policy, registries and image storage: a clean machine."""

    def __init__(self, home: Path, registry: str, storage: str = STORAGE) -> None:
        settings = home / ".config" / "containers"
        settings.mkdir(parents=True)
        # The tools read the policy of $HOME before the machine's.
        policy = {"default": [{"type": "insecureAcceptAnything"}]}
        (settings / "policy.json").write_text(json.dumps(policy))
        (settings / "registries.conf").write_text(REGISTRIES.format(registry=registry))
        (settings / "storage.conf").write_text(storage.format(home=home))
        (settings / "containers.conf").write_text(CONTAINERS.format(home=home))
        self.environment = {
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "REGISTRY_AUTH_FILE": str(home / "auth.json"),
            "CONTAINERS_CONF": str(settings / "containers.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(settings / "registries.conf"),
            "CONTAINERS_STORAGE_CONF": str(settings / "storage.conf"),
        }
        (home / "auth.json").write_text("{}")
        self.home = home

    def run(self, *command: str | Path) -> str:
        """Run a tool of the family here and return what it printed."""
        return run(*command, env=self.environment)

    def attempt(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a tool of the family here, which may fail."""
        return attempt(*command, env=self.environment)
