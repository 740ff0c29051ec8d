"""What the session's role may do, asked once a page, so that no page shows what is refused.

``/v1`` decides again when a form is sent; what is shown only spares people the refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from cloudcore.family import Family
from registry.console.control_plane import ControlPlaneClient, Refused
from registry.console.sessions import Acting

_PRINCIPAL: Final = ("iam:AttachPolicy", "iam:DetachPolicy", "iam:SimulatePolicy")
_MORE: Final[Mapping[str, tuple[str, ...]]] = {
    "account": ("iam:SimulatePolicy",),
    "role": _PRINCIPAL,
    "service-account": _PRINCIPAL,
}
"""Actions on resources of other kinds than the one that names them."""
_OF_PERSONS: Final = frozenset({"organization"})
"""Types of resources that persons change as themselves, in no role."""
_MOST: Final = 100
"""The most resources of one request."""


def _nothing(_action: str, _kind: str) -> Sequence[str]:
    return ()


class AskedRights:
    """What pages ask about: the actions of all families, by the type of resource."""

    def __init__(self, families: Sequence[Family[Any]]) -> None:
        self.actions: Final[dict[str, tuple[str, ...]]] = {}
        self._crns: Final[dict[str, str]] = {}
        for family in families:
            for kind in (*family.resource_kinds, *family.foreign_kinds):
                if kind.type not in _OF_PERSONS:
                    self._crns.setdefault(kind.type, kind.crn)
                    known = self.actions.get(kind.type, _MORE.get(kind.type, ()))
                    self.actions[kind.type] = tuple(dict.fromkeys((*known, *kind.actions)))

    def kinds_with(self, action: str) -> Sequence[str]:
        """Return the types of resources on which `action` is asked about."""
        found = [kind for kind, actions in self.actions.items() if action in actions]
        assert found, f"no page asks about {action}"
        return found

    def every(self, kind: str, account_id: str, region: str) -> str:
        """Return the CRN that stands for all resources of a kind in an account."""
        _, service, where, _, named = self._crns[kind].split(":", 4)
        name = named.partition("/")[2]
        name = "*" if name.startswith("<") else name
        return f"crn:{service}:{where and region}:{account_id}:{kind}/{name}"


class Rights:
    """What a role may do on resources of its account; what is not known counts as allowed."""

    def __init__(
        self,
        everything: Callable[[str, str], Sequence[str]] = _nothing,
        answers: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Read the answers of ``/v1``; `everything` returns CRNs for an action and a kind."""
        self._everything = everything
        self._on = {each["resource"]: frozenset(each["actions"]) for each in answers}
        self._on_some = {
            each["resource"]: frozenset(each["on_some"]) for each in answers if "on_some" in each
        }

        self._here: frozenset[str] | None = None
        """The actions that are allowed on the page's repository, if its page has its id."""

    async def read_here(self, api: ControlPlaneClient, repository_id: str) -> None:
        """Read what the role may do on a repository of any account."""
        path = f"/v1/repositories/{repository_id}/allowed-actions"
        try:
            self._here = frozenset((await api.get(path))["actions"])
        except Refused:
            self._here = None

    def may_here(self, action: str) -> bool:
        """Return False if the role may not do `action` on the repository of `read_here`."""
        return self._here is None or action in self._here

    def may(self, action: str, crn: str) -> bool:
        """Return False if the role may not do `action` on the resource of a CRN."""
        known = self._on.get(crn)
        return known is None or action in known

    def may_all(self, action: str) -> bool:
        """Return False if the role may not do `action` on all resources of a kind at once."""
        return self._any(self._on, action, "")

    def may_some(self, action: str, kind: str = "") -> bool:
        """Return False if there is no resource, of this kind, on which the role may do `action`."""
        return self._any(self._on_some, action, kind)

    def _any(self, known: Mapping[str, frozenset[str]], action: str, kind: str) -> bool:
        return not self._on or any(
            action in known.get(each, ()) for each in self._everything(action, kind)
        )


async def read_rights(
    api: ControlPlaneClient, asked: AskedRights, acting: Acting, region: str, crns: Iterable[str]
) -> Rights:
    """Return what the role may do on all resources of each kind, and on those of these CRNs."""

    def everything(action: str, kind: str) -> Sequence[str]:
        kinds = [kind] if kind else asked.kinds_with(action)
        return [asked.every(each, acting.account_id, region) for each in kinds]

    kinds = [asked.every(kind, acting.account_id, region) for kind in asked.actions]
    wanted = list(dict.fromkeys([*kinds, *crns]))[:_MOST]
    questions = [{"resource": crn, "actions": asked.actions[_kind_of(crn)]} for crn in wanted]
    try:
        found = await api.post("/v1/allowed-actions", {"questions": questions})
    except Refused:
        return Rights()
    return Rights(everything, found["allowed_actions"])


def _kind_of(crn: str) -> str:
    return crn.split(":", 4)[-1].partition("/")[0]
