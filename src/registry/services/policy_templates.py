"""Ready-made policies for repositories: reader, pusher and admin."""

from __future__ import annotations

import re
from typing import Final

from cloudcore.iam.grammar import Form
from cloudcore.iam.templates import PolicyTemplate, TemplateStatement
from registry.oci.reference import REPOSITORY_PATTERN
from registry.services.resource_kinds import AUTHORIZATION_TOKEN, REPOSITORY

_NAMES: Final = Form(
    re.compile(rf"(?=.{{1,213}}\Z)(?:(?:[a-z0-9][a-z0-9._/-]*)?\*|{REPOSITORY_PATTERN})"),
    "names of repositories without the account, such as web/frontend; with * at the end, all that "
    "begin so: web/* for all below web, * for all",
)
_READ: Final = ("registry:DescribeImages", "registry:DescribeRepositories", "registry:PullImage")
_PUSH: Final = (*_READ, "registry:CreateRepository", "registry:PushImage")
_SIGN_IN: Final = TemplateStatement("SignIn", AUTHORIZATION_TOKEN.actions, AUTHORIZATION_TOKEN.crn)


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
