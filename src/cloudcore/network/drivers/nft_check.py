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
    said = _said([*_checker(), "-f", "-"], rules)
    if said is not None:
        raise RulesRefused(said)


@cache
def can_check() -> bool:
    """Return True if rules can be checked here: `nft` is installed and namespaces are allowed."""
    return _checker() != () and _said([*_checker(), "-f", "-"], "table inet entrepot {}\n") is None


@cache
def _checker() -> Sequence[str]:
    nft, unshare = program("nft"), program("unshare")
    if nft is None or unshare is None:
        return ()
    as_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return (unshare, *as_root, "--net", "--", nft, "-c")


def _said(command: Sequence[str], rules: str) -> str | None:
    """Return the error of a program that reads these rules as input, or None if it succeeds."""
    try:
        ran = subprocess.run(  # noqa: S603 - ours, and the rules have no text of an account
            command, input=rules, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"nft did not read them within {_SECONDS} seconds"
    return None if ran.returncode == 0 else ran.stderr.strip() or f"exit {ran.returncode}"
