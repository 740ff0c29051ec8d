"""Who may do what with a repository: actions, resource names, and the decision over a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple, Protocol

from cloudcore.crn import Crn
from cloudcore.errors import AccessDenied
from cloudcore.iam.decision import Caller, Question, Verdict, decide
from cloudcore.iam.patterns import Work
from cloudcore.iam.policy import Policy
from cloudcore.iam.principal import Principal
from cloudcore.identity.documents import is_meant, read_stored
from registry.metadata.repositories.policies import Target
from registry.oci.reference import Name
from registry.services.resource_kinds import REPOSITORY_RULES

CREATE: Final = "registry:CreateRepository"
DESCRIBE: Final = "registry:DescribeRepositories"
PERMISSIONS: Final = {
    "pull": "registry:PullImage",
    "push": "registry:PushImage",
    "delete": "registry:DeleteImage",
}
"""The action of a policy behind each action of a scope."""


class Rights(Protocol):
    """What a pushing caller may do beside the push itself; asked live, and only when it matters."""

    @property
    def principal(self) -> str:
        """Return the caller's CRN; empty when nobody has signed in."""
        ...

    async def may_create(self, name: Name) -> bool:
        """Say whether a first push by this caller may make the repository."""
        ...

    async def sources(self, target: Name, source: Name | None) -> Callable[[Name], bool]:
        """Return which repositories the caller may mount from: `source`, or, without it, any.

        Raises:
            Unauthenticated: the credential says nothing of `source`, and another might.

        """
        ...


class AccessSubject(NamedTuple):
    """Someone who asks for rights, with the policies that hold for them now."""

    principal: Principal | None
    """None when nobody has signed in."""
    policies: Sequence[Policy]
    source_ip: IPv4Address | IPv6Address | None


def repository_crn(region: str, account_id: str, repository: str) -> str:
    """Return the resource name of a repository, whether it exists or not."""
    return str(Crn("registry", region, account_id, "repository", repository))


class PolicyTooCostly(AccessDenied):
    """Evaluating policies took more work than a request may; nothing is allowed."""


def is_allowed(
    subject: AccessSubject,
    action: str,
    target: Target,
    repository: str,
    region: str,
    now: int,
    work: Work | None = None,
) -> bool:
    """Return True if `subject` may do `action` on the repository of this name; see `verdict_on`."""
    return verdict_on(subject, action, target, repository, region, now, work).is_allowed


def verdict_on(
    subject: AccessSubject,
    action: str,
    target: Target,
    repository: str,
    region: str,
    now: int,
    work: Work | None = None,
) -> Verdict:
    """Return whether `subject` may do `action` on the repository of this name, there or not.

    Of an account that does not exist nobody is an insider, so the answer is that of a private
    repository of someone else.

    Raises:
        PolicyTooCostly: the policies need more steps than `work` has left.

    """
    account_id = target.account_id or ""
    question = Question(
        caller=None if subject.principal is None else _caller(subject.principal, target),
        action=action,
        resource=repository_crn(region, account_id, repository),
        resource_account_id=account_id,
        source_ip=subject.source_ip,
        now=now,
        work=work,
    )
    attached = None
    if target.document is not None:
        attached = read_stored(target.document, target.principal_ids or "{}", REPOSITORY_RULES)
    verdict = decide(question, subject.policies, attached)
    if verdict is Verdict.TOO_COSTLY:
        raise too_costly()
    return verdict


def too_costly() -> PolicyTooCostly:
    """Return the error for a request whose decisions take more work than it may."""
    return PolicyTooCostly(
        f"{Verdict.TOO_COSTLY.value}, or ask for fewer repositories at once", reason="too_costly"
    )


def _caller(principal: Principal, target: Target) -> Caller:
    """Return the caller as the target's policy knows it.

    The policy means who bore a name when it was written; who bears it now is a stranger to it.
    """
    meant = is_meant(target.principal_ids or "{}", principal.crn, principal.id)
    return Caller(principal.crn if meant else "", principal.account_id)
