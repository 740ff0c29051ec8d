"""Rights of the session's role, read once per page, so that pages offer only allowed actions.

They are for display: ``/v1`` authorizes again when a form is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from cloudcore.family import Family
from registry.console.control_plane import ControlPlaneClient, Refused

_PRINCIPAL: Final = ("iam:AttachPolicy", "iam:DetachPolicy", "iam:SimulatePolicy")
_MORE: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("iam", "account"): ("iam:SimulatePolicy",),
    ("iam", "role"): _PRINCIPAL,
    ("iam", "service-account"): _PRINCIPAL,
}
"""Maps kinds of resources to actions on them that are listed under another kind."""
_OF_PERSONS: Final = frozenset({("iam", "organization")})
"""Kinds of resources that people change without a role; pages ask nothing about them."""
_MOST: Final = 100
"""Maximum number of resources in one request."""


class RightsQuestions:
    """What pages ask ``/v1`` about rights: the actions of all families, by kind of resource.

    A kind is a family and a type, since two families may have a type of the same name.
    """

    def __init__(self, families: Sequence[Family[Any]], region: str) -> None:
        self._actions: Final[dict[tuple[str, str], tuple[str, ...]]] = {}
        self._crns: Final[dict[tuple[str, str], str]] = {}
        self._region: Final = region
        for family in families:
            for each in (*family.resource_kinds, *family.foreign_kinds):
                kind = each.family, each.type
                if kind not in _OF_PERSONS:
                    self._crns.setdefault(kind, each.crn)
                    known = self._actions.get(kind, _MORE.get(kind, ()))
                    self._actions[kind] = tuple(dict.fromkeys((*known, *each.actions)))

    def all_resources(self, account_id: str, action: str, type_: str = "") -> Sequence[str]:
        """Return the wildcard CRN of each kind with `action`; if `type_` is set, of this type."""
        found = [kind for kind, actions in self._actions.items() if action in actions]
        assert found, f"no page asks about {action}"
        return [self._every(each, account_id) for each in found if type_ in ("", each[1])]

    def questions(self, account_id: str, crns: Iterable[str]) -> Sequence[Mapping[str, Any]]:
        """Return the questions about all resources of each kind, and about the resources `crns`."""
        every = [self._every(each, account_id) for each in self._actions]
        wanted = list(dict.fromkeys([*every, *crns]))[:_MOST]
        return [{"resource": each, "actions": self._actions[_kind_of(each)]} for each in wanted]

    def _every(self, kind: tuple[str, str], account_id: str) -> str:
        _, service, where, _, named = self._crns[kind].split(":", 4)
        name = named.partition("/")[2]
        name = "*" if name.startswith("<") else name
        return f"crn:{service}:{where and self._region}:{account_id}:{kind[1]}/{name}"


class Rights:
    """The rights of a role on resources of its account. An unknown right counts as allowed."""

    def __init__(
        self,
        asked: RightsQuestions | None = None,
        account_id: str = "",
        answers: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Store the answers of ``/v1`` to the questions in `asked`; by default, allow all."""
        self._asked = asked
        self._account_id = account_id
        self._on = {each["resource"]: frozenset(each["actions"]) for each in answers}
        self._on_some = {
            each["resource"]: frozenset(each["on_some"]) for each in answers if "on_some" in each
        }

        self._here: frozenset[str] | None = None
        """The actions allowed on the repository passed to `read_here`; None if unknown."""

    async def read_here(self, api: ControlPlaneClient, repository_id: str) -> None:
        """Read the role's rights on a repository, of any account, for `may_on_repository_page`."""
        path = f"/v1/repositories/{repository_id}/allowed-actions"
        with suppress(Refused):
            self._here = frozenset((await api.get(path))["actions"])

    def may_on_repository_page(self, action: str) -> bool:
        """Return True if the role may do `action` on `read_here`'s repository, or if unknown."""
        return self._here is None or action in self._here

    def may(self, action: str, crn: str) -> bool:
        """Return True if the role may do `action` on the resource `crn`, or if this is unknown."""
        known = self._on.get(crn)
        return known is None or action in known

    def may_all(self, action: str) -> bool:
        """Return True if the role may do `action` on every resource of a kind, or if unknown."""
        return self._any(self._on, action, "")

    def may_some(self, action: str, type_: str = "") -> bool:
        """Return True if the role may do `action` on some resource, or if unknown.

        With `type_`, only resources of this type count.
        """
        return self._any(self._on_some, action, type_)

    def _any(self, known: Mapping[str, frozenset[str]], action: str, type_: str) -> bool:
        return self._asked is None or any(
            action in known.get(each, ())
            for each in self._asked.all_resources(self._account_id, action, type_)
        )


async def read_rights(
    api: ControlPlaneClient, asked: RightsQuestions, account_id: str, crns: Iterable[str]
) -> Rights:
    """Read the role's rights on all resources of each kind, and on the resources `crns`.

    If ``/v1`` refuses, return rights that allow everything.
    """
    questions = asked.questions(account_id, crns)
    try:
        found = await api.post("/v1/allowed-actions", {"questions": questions})
    except Refused:
        return Rights()
    return Rights(asked, account_id, found["allowed_actions"])


def _kind_of(crn: str) -> tuple[str, str]:
    _, service, _, _, named = crn.split(":", 4)
    return service, named.partition("/")[0]
