"""The commands of ``docs/how-to/s3.md`` are run in their order, against an endpoint without TLS."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

from cloudcore.iam.policy import PolicyKind, policy_of
from registry.cli.main import main
from tests.clients.docs_shell import commands_of, shell, substituted
from tests.databases import ROOT, planted, program_environment
from tests.entrepot import copied_install, initialized, told
from tests.live import start_registry
from tests.postgresql import free_port
from tests.tools import require_tool

PAGE = "docs/how-to/s3.md"
REFERENCE = "docs/reference/s3-endpoint.md"


def test_the_commands_of_the_page_work(workspace: Path) -> None:
    for name in ("aws", "curl", "rclone", "s3cmd"):
        require_tool(name)
    backup = workspace / "backup"
    other = planted(workspace / "other")
    initialized(other)
    assert main(["backup", str(backup), "--data", str(other)]) == 0
    shown = copied_install(workspace / "data")
    port = free_port()
    registry = start_registry(workspace / "data", "--s3-port", str(port), command="serve")
    home = workspace / "home"
    home.mkdir()
    environment = {
        **program_environment(),
        # Debian's programs have modules of their own, and need its Python.
        "PATH": f"{workspace / 'programs'}{os.pathsep}/usr/bin{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    environment.pop("AWS_CA_BUNDLE", None)  # of this machine
    (workspace / "programs").mkdir()
    python = workspace / "programs" / "python3"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')  # a link has no boto3
    python.chmod(0o755)
    words = [
        ("127.0.0.1:9000", f"127.0.0.1:{port}"),
        ("/backup/entrepot", str(backup)),
        ("AK...", told("access key id", shown)),
        ("SECRET...", told("secret access key", shown)),
    ]
    try:
        with shell(workspace, environment) as started:
            for command in commands_of(PAGE):
                started.run(substituted(command, words))
            assert len(started.done) > 15
        work = workspace / "work"
        copies = ["presigned.py", "copy-of-photos/from-aws.py", "copy-of-s3cmd/from-s3cmd.py"]
        fetched = ["restore", str(work / "copy-of-backup"), "--data", str(workspace / "again")]
        assert main([*fetched, "--root-key", str(other / "root.key")]) == 0
        for copy in (*copies, "copy-of-photos/scripts/quickstart.py"):
            assert (work / copy).read_bytes() == (work / "quickstart.py").read_bytes()
    finally:
        status = registry.stop()
    assert status == 0, registry.log


def test_the_policy_of_the_page_is_one() -> None:
    (block,) = re.findall(r"^```json\n(.*?)^```$", (ROOT / REFERENCE).read_text(), re.DOTALL | re.M)
    policy_of(json.loads(block), PolicyKind.IDENTITY)
