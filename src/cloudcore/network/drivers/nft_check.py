"""Check with `nft -c` whether the kernel would accept rules; this changes nothing.

The check runs in a new, empty network namespace; without root, in a new user namespace too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache

from cloudcore.network.driver import RulesRefused

_SECONDS = 30
"""The time limit of a check, even under load; a check usually takes a twentieth of a second."""


def program(name: str) -> str | None:
    """Return the path of a system administration program, or None if it is not installed."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))


def check_rules(rules: str) -> None:
    """Check that the kernel would accept these rules; raise `RulesRefused` if it would not."""
    ran = run_nft([*_checker(), "-f", "-"], rules, _SECONDS)
    if ran.returncode != 0:
        raise RulesRefused(ran.stderr.strip() or f"exit {ran.returncode}")


@cache
def can_check() -> bool:
    """Return True if rules can be checked here: `nft` is installed and namespaces are allowed."""
    if not _checker():
        return False
    try:
        check_rules("table inet entrepot {}\n")
    except RulesRefused:
        return False
    return True


@cache
def _checker() -> Sequence[str]:
    nft, unshare = program("nft"), program("unshare")
    if nft is None or unshare is None:
        return ()
    as_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return (unshare, *as_root, "--net", "--", nft, "-c")


def run_nft(command: Sequence[str], rules: str, seconds: int) -> subprocess.CompletedProcess[str]:
    """Run a command of `nft` that reads these rules as input; return its status and output.

    Raise `RulesRefused` if it takes longer than `seconds`.
    """
    try:
        return subprocess.run(  # noqa: S603 - ours, and the rules have no text of an account
            command, input=rules, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise RulesRefused(f"nft did not read them within {seconds} seconds") from None
