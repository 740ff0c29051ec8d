"""Every family says what it brings, and all of it is used: what a test here misses is a list."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from cloudcore.billing.description import EVENTS as OF_BILLING
from cloudcore.certificate.certificate import EVENTS
from cloudcore.databases.backups.backup import BACKUP, BACKUP_EVENTS
from cloudcore.email.dedicated_ip import PAUSED
from cloudcore.email.resources import FAILED, VERIFIED
from cloudcore.email.resources import UNSUBSCRIBE as UNSUBSCRIBE_FROM_MAIL
from cloudcore.family import Family, vocabulary
from cloudcore.kms.chores import ACTION as KEY_DELETED
from cloudcore.notifications.recipient_routes import CONFIRM, UNSUBSCRIBE
from cloudcore.quotas.quota import NEARLY_REACHED, REACHED
from cloudcore.storage.bucket import OBJECT_CREATED, OBJECT_DELETED
from registry.composition.dev import DEV
from registry.composition.families import FAMILIES
from registry.composition.ports import CROSS_FAMILY_OFFERS
from registry.metadata.event_rule import EVENT_RULE
from registry.metadata.pull_through.cache_rule import CACHE_RULE
from registry.services.access.decisions import PERMISSIONS
from registry.services.events import EVENT_TYPES
from tests.spec.operations import OPERATIONS
from tests.things import THINGS

ALL: Final[tuple[Family[Any], ...]] = (*FAMILIES, THINGS)
SOURCES: Final = Path(__file__).parent.parent.parent / "src"


def actions(families: tuple[Family[Any], ...]) -> list[str]:
    return [action for each in families for kind in each.resource_kinds for action in kind.actions]


def named(pattern: str) -> Iterator[Any]:
    for path in sorted(SOURCES.rglob("*.py")):
        yield from re.findall(pattern, path.read_text())


def test_names_are_told_apart() -> None:
    for names in (
        [family.name for family in ALL],
        [kind.crn for family in ALL for kind in family.resource_kinds],
        actions(ALL),
        [event for family in ALL for event in family.events],
        [quota.name for family in ALL for quota in family.quotas],
        [module for family in ALL for group in family.commands for module in group.modules],
    ):
        assert max(Counter(names).values()) == 1


def test_the_actions_are_those_of_the_operations() -> None:
    asked = {each.action for each in OPERATIONS if each.is_built and each.action is not None}
    # Asked for inside an operation whose own action is another, or that has none.
    inside = {"iam:AssumeRole", "iam:LeaveOrganization", "iam:PassRole"}
    # What the role of a load balancer's proxies may, which report to their machine.
    inside.add("loadbalancer:PutLoadBalancerMetrics")
    assert set(actions(FAMILIES)) == asked | inside | set(PERMISSIONS.values())


def test_an_action_and_a_name_are_of_the_family() -> None:
    for family in ALL:
        for kind in family.resource_kinds:
            assert kind.crn.startswith(f"crn:{family.name}:")
            assert all(action.startswith(f"{family.name}:") for action in kind.actions)
            if kind.rules is not None:
                assert set(kind.actions) >= kind.rules.actions >= kind.rules.public_actions
        assert all(event.startswith(f"{family.name}.") for event in family.events)


def test_events_and_quotas_are_those_of_the_code() -> None:
    told = {event for family in FAMILIES for event in family.other_events}
    of_quotas = {NEARLY_REACHED, REACHED}
    of_others = {VERIFIED, FAILED, PAUSED, *OF_BILLING, *BACKUP_EVENTS}
    of_others |= {
        f"{kind}.{status}"
        for kind, statuses in {
            "loadbalancer.load_balancer": ("active", "degraded", "failed"),
            "compute.instance_pool": ("active", "degraded"),
            "database.cluster": ("active", "stopped", "unavailable"),
        }.items()
        for status in statuses
    }
    assert told == {*EVENT_TYPES, *EVENTS, *of_others, OBJECT_CREATED, OBJECT_DELETED, *of_quotas}
    page = (SOURCES.parent / "docs" / "reference" / "events.md").read_text()
    events = {event for family in FAMILIES for event in family.events}
    assert set(re.findall(r"`([a-z]+\.[a-z_]+\.[a-z_]+)`", page)) == events
    changes = {action for family in FAMILIES for action in family.event_types_by_action}
    assert changes - set(actions(FAMILIES)) == {
        CONFIRM,
        UNSUBSCRIBE,
        UNSUBSCRIBE_FROM_MAIL,
        KEY_DELETED,
    }
    described = {each.many for family in FAMILIES for each in family.resources}
    described |= {each.many for each in (BACKUP, CACHE_RULE, EVENT_RULE)}  # methods by hand
    counted = described | set(named(r'\bQuota\(\s*"(\w+)"'))
    assert {quota.name for family in FAMILIES for quota in family.quotas} == counted


def test_what_the_audit_log_has_is_known() -> None:
    # Whatever looks like an action in the code is one, or is recorded without being asked for.
    found = {text for text in named(r'"([a-z]+:[A-Z][A-Za-z]+)"') if ":" in text}
    found |= {a for family in FAMILIES for each in family.resources for a in each.kind.actions}
    assert found == {*vocabulary(FAMILIES).recorded_actions}


def test_commands_are_there() -> None:
    for family in FAMILIES:
        for group in family.commands:
            for module in group.modules:
                found = import_module(module)
                assert callable(getattr(found, "add_parsers", None)) or found.COMMANDS


def test_dev_runs_some_of_the_families() -> None:
    assert {family.name for family in DEV.families} < {family.name for family in FAMILIES}


def test_a_port_is_called_in_errors_as_in_the_source() -> None:
    ports = [*named(r'\n([A-Z_]+): Final\[Port\[.*\]\] = Port\("[a-z]+\.([a-z_]+)"\)')]
    assert "WEBHOOKS" in {constant for constant, _ in ports}
    assert [each for each in ports if not each[0].lower().endswith(each[1])] == []


def test_every_port_is_filled_by_one() -> None:
    offers = [
        *CROSS_FAMILY_OFFERS,
        *(each for family in FAMILIES for each in family.runtime.offers),
    ]
    assert max(Counter(each.port.name for each in offers).values()) == 1


def test_the_rules_of_a_familys_resources_are_known() -> None:
    (rules,) = [kind.rules for kind in THINGS.resource_kinds if kind.rules is not None]
    assert rules.noun == "a thing"
    assert vocabulary([THINGS]).shared_actions == rules.actions
    assert vocabulary(ALL).shared_actions > rules.actions


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_what_is_forgotten_is_a_change(family: Family[Any]) -> None:
    assert all(callable(forget) for forget in family.runtime.expiry)


def test_first_segments_of_paths_are_those_of_the_routes() -> None:
    for family in FAMILIES:
        routes = (path for handler in family.runtime.routes for path in handler.paths)
        assert {*family.paths} == {"/".join(path.split("/")[:3]) for path in routes}
    assert max(Counter(path for family in FAMILIES for path in family.paths).values()) == 1


def test_a_family_is_told_apart_by_the_word_for_its_host() -> None:
    words = [family.host for family in ALL if family.paths]
    assert max(Counter(words).values()) == 1
    assert {"auth", "registry", "queue", None} < {*words}
