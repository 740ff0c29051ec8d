"""The policy of a form: until when it may be sent, and what its fields may be.

Source: "Creating a POST policy" of the S3 API reference.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from cloudcore.storage.s3.errors import S3Error

_MAX_CONDITIONS: Final = 200
_UNCOVERED: Final = ("file", "policy", "x-amz-signature")
_IGNORED: Final = "x-ignore-"
_LISTS: Final = ("content-type", "content-disposition")
"""Fields whose value is a list: each of its items begins as a ``starts-with`` says."""
_MOST: Final = 1 << 62


class Condition(NamedTuple):
    """What a field must be."""

    field: str
    """In lower case."""
    value: str
    is_start: bool
    """The field begins with the value; it may be empty."""

    def holds(self, fields: Mapping[str, str]) -> bool:
        """Return True if the field of a form is so."""
        given = fields.get(self.field)
        if given is None:
            return False
        if not self.is_start:
            return given == self.value
        if self.field in _LISTS:
            return all(each.strip().startswith(self.value) for each in given.split(","))
        return given.startswith(self.value)


class PostPolicy(NamedTuple):
    """A policy."""

    expires: datetime
    conditions: Sequence[Condition]
    least: int = 0
    """Fewest bytes of the file."""
    most: int = _MOST

    def check(self, fields: Mapping[str, str], now: datetime) -> None:
        """Refuse a form that is late, or has a field that no condition allows.

        Raises:
            S3Error: AccessDenied.

        """
        if now >= self.expires:
            raise _denied("Policy expired.")
        for condition in self.conditions:
            if not condition.holds(fields):
                raise _denied(f"Policy Condition failed: {condition.field[:64]}")
        covered = {condition.field for condition in self.conditions}
        for name in fields:
            if name not in covered and name not in _UNCOVERED and not name.startswith(_IGNORED):
                raise _denied(f"Extra input fields: {name[:64]}")

    def check_size(self, size: int, *, is_whole: bool) -> None:
        """Refuse a file of which `size` bytes came, if that is too much, or all and too little.

        Raises:
            S3Error: EntityTooLarge, EntityTooSmall.

        """
        if size > self.most:
            raise S3Error("EntityTooLarge", "Your proposed upload exceeds the maximum allowed size")
        if is_whole and size < self.least:
            raise S3Error(
                "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size"
            )


def read_policy(encoded: str) -> PostPolicy:
    """Return a policy, as a form has it: JSON in Base64.

    Raises:
        S3Error: InvalidPolicyDocument.

    """
    try:
        document = msgspec.json.decode(b64decode(encoded, validate=True))
    except (ValueError, RecursionError):
        raise _invalid("Invalid JSON.") from None
    if not isinstance(document, dict) or set(document) != {"expiration", "conditions"}:
        raise _invalid("It has an expiration and conditions, and nothing else.")
    listed = document["conditions"]
    if not isinstance(listed, list) or not 1 <= len(listed) <= _MAX_CONDITIONS:
        raise _invalid("The conditions are a list that is not empty.")
    policy = PostPolicy(_expiration(document["expiration"]), [])
    conditions: list[Condition] = []
    for each in listed:
        match each:
            case ["content-length-range", least, most]:
                policy = policy._replace(least=_bytes(least), most=_bytes(most))
            case [str(kind), str(field), str(value)] if field.startswith("$"):
                conditions.append(Condition(field[1:].lower(), value, _is_start(kind)))
            case dict() if len(each) == 1:
                ((field, value),) = each.items()
                if not isinstance(value, str):
                    raise _invalid("A value of a condition is a text.")
                conditions.append(Condition(field.lower(), value, is_start=False))
            case _:
                raise _invalid("A condition is malformed.")
    return policy._replace(conditions=conditions)


def _is_start(kind: str) -> bool:
    if kind.lower() not in ("eq", "starts-with"):
        raise _invalid(f"{kind[:64]} is not a kind of condition; use eq or starts-with.")
    return kind.lower() == "starts-with"


def _expiration(given: object) -> datetime:
    try:
        found = datetime.fromisoformat(given if isinstance(given, str) else "")
    except ValueError:
        raise _invalid("Its expiration is malformed.") from None
    if found.tzinfo is not UTC and found.utcoffset() is None:
        raise _invalid("Its expiration names no time zone.")
    return found


def _bytes(given: Any) -> int:  # noqa: ANN401 - a value of JSON
    """Return a limit of a size; some clients write it as a text."""
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) <= 18:
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= _MOST:
        raise _invalid("content-length-range has two numbers of bytes.")
    return given


def _invalid(reason: str) -> S3Error:
    return S3Error("InvalidPolicyDocument", f"Invalid Policy: {reason}")


def _denied(reason: str) -> S3Error:
    return S3Error("AccessDenied", f"Invalid according to Policy: {reason}")
