"""What the session's role may do, asked once a page, so that no page shows what is refused.

``/v1`` decides again when a form is sent; what is shown only spares people the refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from registry.console.control_plane import ControlPlaneClient, Refused
from registry.console.sessions import Acting

_REPOSITORY: Final = tuple(
    f"registry:{name}"
    for name in (
        "CreateRepository",
        "DeleteEncryptionBinding",
        "DeleteImage",
        "DeleteImagePin",
        "DeleteLifecyclePolicy",
        "DeleteRepository",
        "DeleteRepositoryPolicy",
        "DescribeGarbageCollection",
        "DescribeImages",
        "DescribeRepositories",
        "DescribeStorageUsage",
        "GetEncryptionBinding",
        "GetLifecyclePolicy",
        "GetRepositoryPolicy",
        "PullImage",
        "PushImage",
        "PutEncryptionBinding",
        "PutImagePin",
        "PutLifecyclePolicy",
        "PutRepositoryPolicy",
        "RestoreImage",
        "RestoreRepository",
        "RewrapRepository",
        "StartGarbageCollection",
        "StartLifecycleRun",
        "UpdateRepository",
    )
)
_PRINCIPAL: Final = ("iam:AttachPolicy", "iam:DetachPolicy", "iam:SimulatePolicy")
_ASKED: Final[Mapping[str, tuple[str, ...]]] = {
    "repository": _REPOSITORY,
    "event-rule": (
        "registry:DeleteEventRule",
        "registry:DescribeEventRules",
        "registry:PutEventRule",
    ),
    "pull-through-cache-rule": (
        "registry:CreatePullThroughCacheRule",
        "registry:DeletePullThroughCacheRule",
        "registry:DescribePullThroughCacheRules",
        "registry:TestPullThroughCacheRule",
        "registry:UpdatePullThroughCacheRule",
    ),
    "registry-settings": ("registry:GetRegistrySettings", "registry:UpdateRegistrySettings"),
    "topic": (
        "notifications:CreateTopic",
        "notifications:DeleteSubscription",
        "notifications:DeleteTopic",
        "notifications:ListTopics",
        "notifications:Publish",
        "notifications:ResendConfirmation",
        "notifications:Subscribe",
    ),
    "key": (
        "kms:CancelKeyDeletion",
        "kms:CreateKey",
        "kms:DescribeKeys",
        "kms:DisableKey",
        "kms:EnableKey",
        "kms:RotateKey",
        "kms:ScheduleKeyDeletion",
        "kms:UseKey",
    ),
    "bucket": (
        "storage:CreateBucket",
        "storage:DeleteBucket",
        "storage:DeleteObject",
        "storage:GetObject",
        "storage:ListBuckets",
        "storage:ListObjects",
        "storage:PutObject",
    ),
    "queue": (
        "queue:CreateQueue",
        "queue:DeleteQueue",
        "queue:ListQueues",
        "queue:PurgeQueue",
    ),
    "certificate": (
        "certificate:CreateCertificate",
        "certificate:DeleteCertificate",
        "certificate:ExportPrivateKey",
        "certificate:ListCertificates",
        "certificate:RecheckChallenges",
        "certificate:RevokeCertificate",
        "certificate:UploadCertificate",
    ),
    "service-account": (
        "iam:CreateAccessKey",
        "iam:CreateServiceAccount",
        "iam:DeleteAccessKey",
        "iam:DeleteServiceAccount",
        "iam:GetAccessKey",
        "iam:ListServiceAccounts",
        "iam:UpdateAccessKey",
        "iam:UpdateServiceAccount",
        *_PRINCIPAL,
    ),
    "role": (
        "iam:AssignRole",
        "iam:CreateRole",
        "iam:DeleteRole",
        "iam:ListRoles",
        "iam:UnassignRole",
        "iam:UpdateRole",
        *_PRINCIPAL,
    ),
    "policy": (
        "iam:AttachPolicy",
        "iam:CreatePolicy",
        "iam:DeletePolicy",
        "iam:DetachPolicy",
        "iam:ListPolicies",
        "iam:ListPolicyAttachments",
        "iam:UpdatePolicy",
    ),
    "account": ("iam:SimulatePolicy",),
    "event": ("audit:ListAuditEvents",),
    "user": ("iam:ListUsers",),
}
"""The actions that pages ask about, by the type of resource."""
_GLOBAL: Final = frozenset({"service-account", "role", "policy", "account", "user"})
"""Types whose CRNs have no region, and the service ``iam``."""
_SERVICES: Final = {
    "bucket": "storage",
    "certificate": "certificate",
    "event": "audit",
    "key": "kms",
    "queue": "queue",
    "topic": "notifications",
}
"""Services of regional types that are not the registry's."""
_MOST: Final = 100
"""The most resources of one request."""


class Rights:
    """What a role may do on resources of its account; what is not known counts as allowed."""

    def __init__(
        self,
        acting: Acting | None = None,
        region: str = "",
        answers: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._acting = acting
        self._region = region
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
        if self._acting is None or not self._on:
            return True
        kinds = [kind] if kind else [each for each, asked in _ASKED.items() if action in asked]
        assert kinds, f"no page asks about {action}"
        everything = (every(each, self._acting, self._region) for each in kinds)
        return any(action in known.get(each, ()) for each in everything)


def every(kind: str, acting: Acting, region: str) -> str:
    """Return the CRN that stands for all resources of a kind in the account."""
    name = "default" if kind == "registry-settings" else "*"
    if kind in _GLOBAL:
        return f"crn:iam::{acting.account_id}:{kind}/{name}"
    service = _SERVICES.get(kind, "registry")
    return f"crn:{service}:{region}:{acting.account_id}:{kind}/{name}"


async def read_rights(
    api: ControlPlaneClient, acting: Acting, region: str, crns: Iterable[str]
) -> Rights:
    """Return what the role may do on all resources of each kind, and on those of these CRNs."""
    kinds = [every(kind, acting, region) for kind in _ASKED]
    wanted = list(dict.fromkeys([*kinds, *crns]))[:_MOST]
    questions = [{"resource": crn, "actions": _ASKED[_kind_of(crn)]} for crn in wanted]
    try:
        found = await api.post("/v1/allowed-actions", {"questions": questions})
    except Refused:
        return Rights()
    return Rights(acting, region, found["allowed_actions"])


def _kind_of(crn: str) -> str:
    return crn.split(":", 4)[-1].partition("/")[0]
