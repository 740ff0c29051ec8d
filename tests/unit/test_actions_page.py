"""The list of what policies can name: whole, with a sentence for each, and as the page has it."""

from __future__ import annotations

from cloudcore.family import vocabulary
from cloudcore.iam.conditions import CONDITION_DOCS, Conditions
from cloudcore.iam.policy import PRINCIPAL_DOCS, PolicyKind, policy_of
from cloudcore.identity.routes.actions import list_vocabulary
from registry.composition.families import FAMILIES
from tests.actions_page import PAGE, page

ACCOUNT = "01890000-0000-7000-8000-00000000000a"


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.actions_page"


def test_each_action_has_a_row_and_a_sentence() -> None:
    rows = [line.split(" | ") for line in page().splitlines() if line.startswith("| `")]
    told = {row[0].removeprefix("| ").strip("`"): row[1] for row in rows}
    known = vocabulary(FAMILIES)
    for action in known.actions:
        assert told[action].strip().endswith("."), action
    listed = list_vocabulary(known)
    assert [each.name for each in listed.actions] == list(known.actions)


def test_conditions_and_principals_are_those_of_the_grammar() -> None:
    assert tuple(CONDITION_DOCS) == Conditions._fields
    for form in PRINCIPAL_DOCS:
        named = form.replace("<account>", "acme").replace("<name>", "ci")
        named = named.replace("<organization>", ACCOUNT).replace("<id>", ACCOUNT)
        named = named.replace("<service>", "compute")
        deny = {"effect": "deny", "principals": [named]}
        policy_of({"version": "1", "statements": [deny]}, PolicyKind.TRUST)
