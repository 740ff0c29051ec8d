"""Choose the role in which a person acts: the only one, or the one that is picked from a list."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from registry.cli.failure import Misuse
from registry.cli.output import printable, write_now
from registry.cli.sign_in import bearer
from registry.cli.transport import Transport


class AssignedRole(NamedTuple):
    """A role that is assigned to the person."""

    name: str
    account: str
    """The handle."""
    crn: str

    @property
    def shown(self) -> str:
        """Return name and account for a person to read."""
        return f"{printable(self.name)} of {printable(self.account)}"


def choose_role(transport: Transport, access_token: str) -> AssignedRole | None:
    """Return the person's only role, or the one picked at the terminal.

    Print what there is to choose from, and return None, if there is no role, or several and
    nobody to ask.

    Raises:
        Misuse: something else was picked.

    """
    roles = list(_assigned(transport, access_token))
    if len(roles) == 1:
        return roles[0]
    if not roles:
        write_now(
            "No role is assigned to you, and a person acts in an account by a role: "
            "ask its administrator for one.\n"
        )
        return None
    if sys.stdin.isatty() and sys.stderr.isatty():
        return pick(roles)
    write_now("You can act in several roles. Choose one:\n")
    for role in roles:
        write_now(f"  entrepot login {transport.url} --role {_option(role, roles)}\n")
    return None


def pick(roles: Sequence[AssignedRole]) -> AssignedRole:
    """Ask which role; return it.

    Raises:
        Misuse: something else was typed.

    """
    for number, role in enumerate(roles, 1):
        sys.stderr.write(f"  {number}  {role.shown}\n")
    sys.stderr.write(f"In which role do you want to act? [1-{len(roles)}] ")
    sys.stderr.flush()
    typed = sys.stdin.readline().strip()
    if not typed.isascii() or not typed.isdigit() or not 1 <= int(typed) <= len(roles):
        raise Misuse("you are signed in without a role; 'entrepot login URL --role ROLE' takes one")
    return roles[int(typed) - 1]


def _option(role: AssignedRole, roles: Sequence[AssignedRole]) -> str:
    """Return what ``--role`` takes for a role: its name, or its CRN if others have the name."""
    names = Counter(each.name for each in roles)
    return printable(role.name if names[role.name] == 1 else role.crn)


def _assigned(transport: Transport, access_token: str) -> Iterator[AssignedRole]:
    query = {"limit": "200"}
    while True:
        path = f"/v1/users/me/roles?{urlencode(query)}"
        page = transport.send("GET", path, bearer(access_token))
        for role in page["roles"]:
            yield AssignedRole(role["name"], role["account"]["name"], role["crn"])
        marker = page["meta"].get("marker")
        if marker is None:
            return
        query["marker"] = marker
