"""Who may do what with a repository, said a second time and as plainly as can be."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

Statement = dict[str, Any]
Outcome = Literal["in", "401", "403"]


@dataclass(frozen=True)
class Asker:
    """Whoever asks: signed in, the names policies know it by are not empty."""

    names: Collection[str]
    is_insider: bool
    statements: Sequence[Statement]
    """Of its own policies."""


def may(asker: Asker, action: str, crn: str, attached: Sequence[Statement]) -> bool:
    """Say whether `asker` may do `action` on the resource `crn` with the policy `attached`.

    1. Nobody may whom something denies. 2. Who has not signed in may what everyone may.
    3. An insider needs an allow of its own or one of the resource that names it.
    4. A stranger needs one of its own and one of the resource.
    """
    own = [each for each in asker.statements if _is_about(each, action, crn)]
    theirs = [each for each in attached if action in each["actions"]]
    named = [each for each in theirs if set(asker.names) & set(each["principals"])]
    public = [each for each in theirs if "*" in each["principals"]]
    if any(each["effect"] == "deny" for each in [*own, *named, *public]):
        return False
    if not asker.names:
        return bool(public)
    if asker.is_insider:
        return bool(own or named)
    return bool(own and (named or public))


def outcome(
    asker: Asker | None, needed: Sequence[str], crn: str, attached: Sequence[Statement]
) -> Outcome:
    """Say how the door of the data plane answers; `needed` are all the actions a request takes.

    Without a token that holds (`asker` is None) nobody is known, and is asked to be: 401. Who has
    not signed in might be let in otherwise: 401 too. Whom policies refuse is told so: 403.
    """
    if asker is None:
        return "401"
    if all(may(asker, action, crn, attached) for action in needed):
        return "in"
    return "403" if asker.names else "401"


def _is_about(statement: Statement, action: str, crn: str) -> bool:
    return any(fnmatchcase(action, pattern) for pattern in statement["actions"]) and any(
        fnmatchcase(crn, pattern) for pattern in statement["resources"]
    )
