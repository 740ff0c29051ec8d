"""Decisions about repositories: actions, resource names, and verdicts by policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple, Protocol

from cloudcore.errors import AccessDenied
from cloudcore.iam.audit import AuditClient
from cloudcore.iam.decision import Caller, Question, Verdict, decide
from cloudcore.iam.patterns import Patterns, StepBudget
from cloudcore.iam.policy import Effect, Policy, PolicyStatement
from cloudcore.iam.principal import Principal, SourceIdentity
from cloudcore.identity.rights.documents import means_principal, read_stored
from cloudcore.resource_names import Crn
from cloudcore.web.bodies import ResourceRef
from registry.metadata.repositories.policies import RepositoryAccess
from registry.oci.reference import Name
from registry.services.resource_kinds import REPOSITORY_RULES

CREATE: Final = "registry:CreateRepository"
DESCRIBE: Final = "registry:DescribeRepositories"
PUSH: Final = "registry:PushImage"
DELETE: Final = "registry:DeleteImage"
PERMISSIONS: Final = {"pull": "registry:PullImage", "push": PUSH, "delete": DELETE}
"""The policy action for each action of a scope."""

_EVERYTHING: Final = Policy(
    (PolicyStatement(Effect.ALLOW, Patterns(("*",)), resources=Patterns(("*",))),)
)
"""Allows everything: in place of the caller's policies, so that only the repository's decides."""


class Rights(Protocol):
    """Further rights of a caller that pushes, evaluated by current policies only when needed."""

    @property
    def principal(self) -> str:
        """Return the caller's CRN; empty for an unauthenticated client."""

    @property
    def source(self) -> SourceIdentity | None:
        """Return the source identity behind the principal; None for an unauthenticated client."""

    @property
    def client(self) -> AuditClient | None:
        """Return the client data for the audit log, or None if changes are not recorded."""

    async def may_create(self, name: Name) -> bool:
        """Return True if the caller may create this repository by a first push to it."""

    async def sources(self, target: Name, source: Name | None) -> Callable[[Name], bool]:
        """Return a predicate that is True for repositories from which the caller may mount blobs.

        With `source`, the predicate is True for no other repository. Raise `Unauthenticated` if the
        token has no scope for `source`; the client should request one.
        """


class AccessSubject(NamedTuple):
    """A caller and the policies that apply to it now."""

    principal: Principal | None
    """None for an unauthenticated client."""
    policies: Sequence[Policy]
    source_ip: IPv4Address | IPv6Address | None


def repository_crn(region: str, account_id: str, repository: str) -> str:
    """Return the CRN of a repository, which need not exist."""
    return str(Crn("registry", region, account_id, "repository", repository))


def repository_reference(
    region: str, account_id: str, repository_id: str, name: str
) -> ResourceRef:
    """Return the reference that responses use for a repository of an account."""
    return ResourceRef(id=repository_id, crn=repository_crn(region, account_id, name), name=name)


class PolicyTooCostly(AccessDenied):
    """Evaluating the policies takes more steps than a request may; the request is denied."""


def verdict_on(
    subject: AccessSubject,
    action: str,
    target: RepositoryAccess,
    repository: str,
    region: str,
    now: int,
    work: StepBudget | None = None,
) -> Verdict:
    """Return the verdict on `action` by `subject` on the repository, which need not exist.

    If the account does not exist, the verdict is the same as for a private repository of another
    account. The caller's own policies are not evaluated, and `work` is unchanged, if the repository
    is another account's (or the client is unauthenticated) and the repository's policy does not
    allow the action: otherwise the cost would reveal whether account and repository exist.

    Raise `PolicyTooCostly` if the policies need more steps than `work` has left.
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
    if question.caller is None or question.caller.account_id != account_id:
        is_shared = decide(question._replace(work=None), (_EVERYTHING,), attached).is_allowed
        if not is_shared:
            return Verdict.NEEDS_RESOURCE_POLICY
    verdict = decide(question, subject.policies, attached)
    if verdict is Verdict.TOO_COSTLY:
        raise too_costly()
    return verdict


def too_costly() -> PolicyTooCostly:
    """Return the error for a request whose policies take too many steps."""
    return PolicyTooCostly(
        f"{Verdict.TOO_COSTLY.value}, or ask for fewer repositories at once", reason="too_costly"
    )


def _caller(principal: Principal, target: RepositoryAccess) -> Caller:
    """Return the caller as the target's resource policy sees it.

    A name in the policy means the principal that had it when the policy was written. A later
    principal with the same name gets an empty CRN here, so that no statement matches it.
    """
    meant = means_principal(target.principal_ids or "{}", principal.crn, principal.id)
    return Caller(principal.crn if meant else "", principal.account_id)
