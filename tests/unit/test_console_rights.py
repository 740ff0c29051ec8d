"""What pages of the console ask about: each kind of resource by its family and its type."""

from __future__ import annotations

from cloudcore.family import Family
from cloudcore.iam.vocabulary import ResourceKind
from registry.console.rights import Rights, RightsQuestions

HOST_POOL = ResourceKind(
    crn="crn:host:<region>:<account>:pool/<name>", actions=("host:GrowPool", "host:ListPools")
)
MAIL_POOL = ResourceKind(
    crn="crn:mail:<region>:<account>:pool/<name>", actions=("mail:ListPools", "mail:WarmPool")
)
ASKED = RightsQuestions(
    [
        Family[None](name="host", resource_kinds=(HOST_POOL,)),
        Family[None](name="mail", resource_kinds=(MAIL_POOL,)),
    ],
    region="local",
)
ONE = "crn:mail:local:a:pool/first"


def test_two_families_may_have_a_type_of_one_name() -> None:
    assert ASKED.questions("a", [ONE]) == [
        {"resource": "crn:host:local:a:pool/*", "actions": HOST_POOL.actions},
        {"resource": "crn:mail:local:a:pool/*", "actions": MAIL_POOL.actions},
        {"resource": ONE, "actions": MAIL_POOL.actions},
    ]


def test_a_right_on_a_type_is_that_of_the_family_whose_action_it_is() -> None:
    mail = {"resource": "crn:mail:local:a:pool/*", "actions": ["mail:WarmPool"]}
    host = {"resource": "crn:host:local:a:pool/*", "actions": []}
    answers = [{**each, "on_some": each["actions"]} for each in (host, mail)]
    rights = Rights(ASKED, "a", answers)
    assert rights.may_all("mail:WarmPool")
    assert rights.may_some("mail:WarmPool", "pool")
    assert not rights.may_all("host:GrowPool")
    assert not rights.may_some("host:GrowPool", "pool")
    assert not rights.may_all("mail:ListPools")
