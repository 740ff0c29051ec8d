"""The registry's resource kinds, with CRNs and actions; its policy templates and SKUs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cloudcore.iam.grammar import StringForm
from cloudcore.iam.policy import ResourceRules
from cloudcore.iam.templates import PolicyTemplate, TemplateStatement
from cloudcore.iam.vocabulary import OwnPolicy, ResourceKind, StoredPolicy
from cloudcore.metering.sku import BYTE_HOURS_PER_GIB_MONTH, GIB, Sku
from cloudcore.resource_names import Crn
from registry.oci.reference import REPOSITORY_PATTERN

if TYPE_CHECKING:
    from cloudcore.db.base import Connection

REPOSITORY_RULES: Final = ResourceRules(
    noun="a repository",
    actions=frozenset({"registry:PullImage", "registry:DescribeImages", "registry:PushImage"}),
    public_actions=frozenset({"registry:PullImage"}),
)
AUTHORIZATION_TOKEN: Final = ResourceKind(
    crn="crn:registry:<region>:<account>:authorization-token/own",
    actions=("registry:GetAuthorizationToken",),
)
REGISTRY_SETTINGS: Final = ResourceKind(
    crn="crn:registry:<region>:<account>:registry-settings/default",
    actions=("registry:GetRegistrySettings", "registry:UpdateRegistrySettings"),
)
PUBLISH: Final = "notifications:Publish"
"""The action on a topic that its event rules need."""
TOPIC: Final = ResourceKind(
    crn="crn:notifications:<region>:<account>:topic/<name>",
    actions=(PUBLISH,),
    summaries={PUBLISH: "Publish to a topic; to create an event rule for it."},
)
_NAMES: Final = StringForm(
    re.compile(rf"(?=.{{1,213}}\Z)(?:(?:[a-z0-9][a-z0-9._/-]*)?\*|{REPOSITORY_PATTERN})"),
    "names of repositories without the account, such as web/frontend; with * at the end, all that "
    "begin so: web/* for all below web, * for all",
)
_READ: Final = ("registry:DescribeImages", "registry:DescribeRepositories", "registry:PullImage")
_PUSH: Final = (*_READ, "registry:CreateRepository", "registry:PushImage")
_SIGN_IN: Final = TemplateStatement("SignIn", AUTHORIZATION_TOKEN.actions, AUTHORIZATION_TOKEN.crn)


def _repository_policy(tx: Connection, crn: Crn) -> StoredPolicy | None:
    from cloudcore.identity.rows.accounts import find_account  # noqa: PLC0415 - SQLAlchemy
    from registry.metadata.repositories.policies import find_repository_access  # noqa: PLC0415

    account = find_account(tx, crn.account)
    target = account and find_repository_access(tx, account.handle, crn.name)
    if not target or target.document is None:
        return None
    return StoredPolicy(target.document, target.principal_ids or "{}")


REPOSITORY: Final = ResourceKind(
    crn="crn:registry:<region>:<account>:repository/<name>",
    actions=(
        "registry:CreateRepository",
        "registry:DeleteEncryptionBinding",
        "registry:DeleteImage",
        "registry:DeleteImagePin",
        "registry:DeleteLifecyclePolicy",
        "registry:DeleteRepository",
        "registry:DeleteRepositoryPolicy",
        "registry:DescribeGarbageCollection",
        "registry:DescribeImages",
        "registry:DescribeKeyUsage",
        "registry:DescribeRepositories",
        "registry:DescribeStorageUsage",
        "registry:GetEncryptionBinding",
        "registry:GetLifecyclePolicy",
        "registry:GetRepositoryPolicy",
        "registry:PullImage",
        "registry:PushImage",
        "registry:PutEncryptionBinding",
        "registry:PutImagePin",
        "registry:PutLifecyclePolicy",
        "registry:PutRepositoryPolicy",
        "registry:RestoreImage",
        "registry:RestoreRepository",
        "registry:RewrapRepository",
        "registry:StartGarbageCollection",
        "registry:StartLifecycleRun",
        "registry:UpdateRepository",
    ),
    summaries={
        "registry:CreateRepository": "Create a repository, also by a first push.",
        "registry:DeleteImage": "Delete images and tags, on `/v2` too.",
        "registry:DescribeImages": "List images, tags and referrers, and read what is in them.",
        "registry:DescribeRepositories": "List repositories and read their records.",
        "registry:DescribeGarbageCollection": "Read what the collector does in the account.",
        "registry:DeleteEncryptionBinding": "End the binding of a repository to a key, or the"
        " account's default.",
        "registry:DescribeKeyUsage": "Read what a key protects, and what its deletion would shred.",
        "registry:GetEncryptionBinding": "Read which key seals a repository, and which ones did.",
        "registry:PutEncryptionBinding": "Bind a repository to a key, or all that have none; also"
        " needs `kms:UseKey`.",
        "registry:GetLifecyclePolicy": "Read a lifecycle policy, its previews and its runs.",
        "registry:PullImage": "Pull manifests and blobs, and mount blobs from the repository.",
        "registry:PushImage": "Push blobs and manifests, and move tags.",
        "registry:RestoreImage": "Restore deleted images and tags.",
    },
    rules=REPOSITORY_RULES,
    own_policy=OwnPolicy(
        _repository_policy,
        REPOSITORY_RULES,
        REPOSITORY_RULES.actions,
        "registry:GetRepositoryPolicy",
    ),
)


def _template(name: str, summary: str, sid: str, actions: tuple[str, ...]) -> PolicyTemplate:
    statement = TemplateStatement(sid, actions, REPOSITORY.crn)
    return PolicyTemplate(name, "registry", summary, _NAMES, (statement, _SIGN_IN))


TEMPLATES: Final = (
    _template("reader", "Pull images, and list and describe them.", "Read", _READ),
    _template(
        "pusher",
        "What a reader may, and push images, move tags, and create repositories by a first push.",
        "Push",
        _PUSH,
    ),
    _template(
        "admin",
        "Everything with these repositories: also delete and restore, their policies, lifecycle "
        "policies and pins.",
        "Administer",
        ("registry:*",),
    ),
)


STORAGE: Final = Sku("registry.storage", "Stored images", "GiB-month", BYTE_HOURS_PER_GIB_MONTH)
TRANSFER: Final = Sku("registry.transfer", "Bytes pulled", "GiB", GIB)
PULLS: Final = Sku("registry.pulls", "Pulls of images", "1000 pulls", 1000)
REGISTRY_SKUS: Final = (STORAGE, TRANSFER, PULLS)
