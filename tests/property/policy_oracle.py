"""The rules of policies once more, written from their text alone: slow, plain, over raw JSON.

Nothing here comes from `cloudcore`; what both say alike was understood twice.
"""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple

Document = dict[str, Any]


class Asked(NamedTuple):
    """Who (None: nobody signed in) wants to do what, to what, from where and when."""

    crn: str | None
    account: str | None
    action: str
    resource: str
    owner: str
    source_ip: str | None
    now: int


@lru_cache(maxsize=200_000)
def fits(pattern: str, text: str) -> bool:
    """Match `*` and `?` by following every place of `text` the pattern may have come to.

    A `*` in `text` is all of a list, for which no `?` stands.
    """
    places = {0}
    for sign in pattern:
        if sign == "*":
            places = set(range(min(places, default=len(text) + 1), len(text) + 1))
        else:
            signs = {at: text[at] for at in places if at < len(text)}
            places = {
                at + 1 for at, is_ in signs.items() if is_ == sign or (sign == "?" and is_ != "*")
            }
    return len(text) in places


@lru_cache(maxsize=10_000)
def is_within(address: str | None, networks: tuple[str, ...]) -> bool:
    """Say whether an address, if it is known, lies in a network."""
    return address is not None and any(ip_address(address) in ip_network(n) for n in networks)


@lru_cache(maxsize=10_000)
def moment(text: str) -> Fraction:
    """Return a date-time as microseconds since the epoch."""
    read = datetime.fromisoformat(text)
    return Fraction(int(read.replace(microsecond=0).timestamp()) * 10**6 + read.microsecond)


def holds(operator: str, operand: Any, asked: Asked) -> bool:  # noqa: ANN401 - JSON
    """Judge one condition."""
    match operator:
        case "ip_address":
            return is_within(asked.source_ip, tuple(operand))
        case "not_ip_address":
            return not is_within(asked.source_ip, tuple(operand))
        case "date_before":
            return asked.now < moment(operand)
        case "date_after":
            return asked.now > moment(operand)
    raise AssertionError(operator)


def speaks(statement: Document, asked: Asked) -> bool:
    """Say whether a statement is about the action and the resource, here and now."""
    return (
        any(fits(action, asked.action) for action in statement["actions"])
        and any(fits(resource, asked.resource) for resource in statement.get("resources", ["*"]))
        and all(holds(name, to, asked) for name, to in statement.get("conditions", {}).items())
    )


def names(statement: Document, asked: Asked) -> bool:
    """Say whether a statement names the principal itself or its account."""
    return asked.crn is not None and bool({asked.crn, asked.account} & {*statement["principals"]})


def is_allowed(asked: Asked, identity: list[Document], resource: Document | None) -> bool:
    """Return True if nothing denies, and one allows (in one account) or two (across accounts)."""
    own = [s for p in identity for s in p["statements"] if asked.crn and speaks(s, asked)]
    attached = [s for s in (resource or {"statements": []})["statements"] if speaks(s, asked)]
    naming = [s for s in attached if names(s, asked)]
    public = [s for s in attached if "*" in s["principals"]]
    if any(s["effect"] == "deny" for s in [*own, *naming, *public]):
        return False
    if asked.crn is None:
        return bool(public)
    if asked.account == asked.owner:
        return bool(own) or bool(naming)
    return bool(own) and (bool(naming) or bool(public))
