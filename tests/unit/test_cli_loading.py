"""Commands that need the whole registry import it when they run."""

from __future__ import annotations

import subprocess
import sys

from tests.databases import program_environment

CHECK = """
import gc, sys
from registry.cli.server.loading import import_server_module
gc.{before}able()
assert "sqlalchemy" not in sys.modules
assert import_server_module("fsck") is import_server_module("fsck")
assert "sqlalchemy" in sys.modules
assert gc.isenabled() is ({before!r} == "en")
assert gc.get_freeze_count() > 50_000
try:
    import_server_module("no_such_command")
except ModuleNotFoundError:
    assert gc.isenabled() is ({before!r} == "en")
else:
    sys.exit("it was found")
"""


def test_the_collector_leaves_alone_what_was_loaded_and_goes_on_if_it_did() -> None:
    for before in ("en", "dis"):
        code = CHECK.format(before=before)
        subprocess.run([sys.executable, "-c", code], check=True, env=program_environment())
