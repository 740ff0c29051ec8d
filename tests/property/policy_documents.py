"""Random policies and questions, from words few enough that they often meet."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.property.policy_oracle import Asked, Document

OWN: Final = "01890000-0000-7000-8000-00000000000a"
OTHER: Final = "01890000-0000-7000-8000-00000000000b"
ORGANIZATION: Final = "01890000-0000-7000-8000-00000000000c"
PERSON: Final = "01890000-0000-7000-8000-00000000000d"

CALLERS: Final = (
    (None, None),
    (f"crn:iam::{OWN}:service-account/ci", OWN),
    (f"crn:iam::{OWN}:role/dev", OWN),
    (f"crn:iam::{OTHER}:service-account/ci", OTHER),
    (f"crn:iam::{OTHER}:role/dev", OTHER),
    (f"crn:iam::{ORGANIZATION}:user/{PERSON}", None),
)
PRINCIPALS: Final = ("*", OWN, OTHER, *(crn for crn, _ in CALLERS if crn))
ACTIONS: Final = (
    *("registry:PullImage", "registry:PushImage", "registry:DescribeImages"),
    *("registry:DeleteImage", "iam:CreateRole", "iam:AssumeRole", "kms:UseKey"),
)
ATTACHED_ACTIONS: Final = ACTIONS[:3]
ACTION_PATTERNS: Final = (*ACTIONS, "*", "registry:*", "registry:Pu*", "registry:P*", "iam:*")
NAMES: Final = ("app", "app/web", "apple", "team/app", "a.p", "ap")
ADDRESSES: Final = (None, "10.1.2.3", "10.200.0.1", "192.0.2.7", "2001:db8::1", "fe80::9")
NETWORKS: Final = (
    ("10.0.0.0/8",),
    ("10.1.0.0/16", "2001:db8::/32"),
    ("0.0.0.0/0",),
    ("::/0",),
    ("192.0.2.7",),
)
NOON: Final = 1_750_000_000_000_000
DATES: Final = (
    "2025-06-15T15:06:40Z",  # NOON itself
    "2025-06-15T17:06:40.000001+02:00",
    "2025-06-15T15:06:39.999999Z",
    "2024-01-01T00:00:00Z",
    "2026-01-01T00:00:00-05:00",
)
MOMENTS: Final = (NOON, NOON - 1, NOON + 1, NOON + 2, NOON - 10**12)


def repository(owner: str, name: str) -> str:
    """Return the CRN of a repository."""
    return f"crn:registry:eu:{owner}:repository/{name}"


def some(random: Random, words: tuple[str, ...], most: int = 3) -> list[str]:
    """Choose one to `most` words."""
    return random.sample(words, random.randint(1, min(most, len(words))))


def resource_pattern(random: Random) -> str:
    """Return a CRN in which stars and question marks may stand for parts."""
    if random.random() < 0.15:
        return "*"
    text = repository(random.choice((OWN, OTHER, "*")), random.choice(NAMES))
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        start = random.randint(4, len(text))
        end = min(len(text), start + random.choice((0, 0, 1, 4, 60)))
        text = text[:start] + random.choice("*?**") + text[end:]
    return text


def conditions(random: Random) -> Document:
    """Return some conditions."""
    found: Document = {}
    for operator in some(random, ("ip_address", "not_ip_address", "date_before", "date_after"), 2):
        is_date = operator.startswith("date")
        found[operator] = random.choice(DATES) if is_date else list(random.choice(NETWORKS))
    return found


def statement(random: Random, *, attached: bool) -> Document:
    """Return a statement of an identity policy, or of one attached to a repository."""
    made: Document = {"effect": "deny" if random.random() < 0.2 else "allow"}
    if attached:
        made["principals"] = some(random, PRINCIPALS)
        made["actions"] = some(random, ATTACHED_ACTIONS)
        if "*" in made["principals"] and made["effect"] == "allow":
            made["actions"] = ["registry:PullImage"]
    else:
        made["actions"] = some(random, ACTION_PATTERNS)
        made["resources"] = [resource_pattern(random) for _ in range(random.randint(1, 3))]
    if random.random() < 0.3:
        made["conditions"] = conditions(random)
    return made


def document(random: Random, *, attached: bool = False) -> Document:
    """Return a policy of one to four statements."""
    count = random.choice((1, 1, 2, 3, 4))
    return {
        "version": "1",
        "statements": [statement(random, attached=attached) for _ in range(count)],
    }


def question(random: Random) -> Asked:
    """Return something to ask; mostly pulls and pushes."""
    crn, account = random.choice(CALLERS)
    owner = random.choice((OWN, OWN, OTHER))
    action = random.choice(ATTACHED_ACTIONS if random.random() < 0.6 else ACTIONS)
    address, now = random.choice(ADDRESSES), random.choice(MOMENTS)
    name = random.choice(NAMES)
    return Asked(crn, account, action, repository(owner, name), owner, address, now)
