"""Worst inputs of regular expressions, made from the expressions themselves.

What makes a matcher slow is a part that repeats, fed with what it takes, and an end that does not
fit. So of every part that may repeat: a text that leads to it, the texts it takes, an end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import _constants as ops
from re import _parser
from typing import Any, Final

MANY: Final = 8
"""A part that repeats less often is no part that repeats."""
ENDS: Final = ("", "\0", "!", "\n")
_REPEATS: Final = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)
_TYPICAL: Final = {
    ops.CATEGORY_DIGIT: "1",
    ops.CATEGORY_SPACE: " ",
    ops.CATEGORY_WORD: "a",
    ops.CATEGORY_NOT_SPACE: "a",
    ops.CATEGORY_NOT_WORD: "-",
}

Item = tuple[Any, Any]


def attacks(pattern: re.Pattern[Any]) -> list[tuple[str, str]]:
    """Return pairs of a lead and of what repeats after it."""
    text = pattern.pattern
    tree = list(_parser.parse(text, pattern.flags & ~re.UNICODE if _is_bytes(text) else 0))
    found = dict.fromkeys(_attacks(tree, ""))
    # Many places at which a match may begin, for those that search.
    starts = ["", *(_shortest(tree[:size]) for size in range(1, len(tree) + 1))]
    found.update(dict.fromkeys(("", start) for start in starts if start))
    return list(found) or [("", "a")]


def _is_bytes(text: str | bytes) -> bool:
    return isinstance(text, bytes)


def _attacks(items: list[Item], before: str) -> Iterator[tuple[str, str]]:
    for place, (op, argument) in enumerate(items):
        lead = before + _shortest(items[:place])
        for inner in _within(op, argument):
            if op in _REPEATS and argument[1] >= MANY:
                for taken in _variants(inner):
                    yield lead, taken
            yield from _attacks(inner, lead)


def _within(op: Any, argument: Any) -> list[list[Item]]:  # noqa: ANN401 - the parser's
    """Return the expressions within an item."""
    if op in _REPEATS:
        return [list(argument[2])]
    if op is ops.SUBPATTERN:
        return [list(argument[-1])]
    if op is ops.ATOMIC_GROUP:
        return [list(argument)]
    if op is ops.BRANCH:
        return [list(each) for each in argument[1]]
    if op in (ops.ASSERT, ops.ASSERT_NOT):
        return [list(argument[1])]
    return []


def _shortest(items: list[Item]) -> str:
    return "".join(_texts(item)[0] for item in items)


def _variants(items: list[Item]) -> list[str]:
    """Return texts that fit: of all first choices, and with each other choice in one place."""
    first = [_texts(item)[0] for item in items]
    found = ["".join(first)]
    for place, item in enumerate(items):
        found += [
            "".join([*first[:place], other, *first[place + 1 :]]) for other in _texts(item)[1:]
        ]
    return [text for text in dict.fromkeys(found) if text] or ["a"]


def _texts(item: Item) -> list[str]:
    """Return some texts that fit an item, the shortest first."""
    op, argument = item
    if op is ops.LITERAL:
        return [chr(argument)]
    if op is ops.NOT_LITERAL:
        return [next(each for each in "a-1 " if ord(each) != argument)]
    if op is ops.ANY:
        return ["a", " ", "/"]
    if op is ops.IN:
        return _members(argument)
    if op in _REPEATS:
        once = _variants(list(argument[2]))
        least: int = argument[0]
        return [text * least for text in once] if least else ["", *once]
    if op is ops.BRANCH:
        return [text for each in argument[1] for text in _variants(list(each))]
    if op in (ops.SUBPATTERN, ops.ATOMIC_GROUP):
        return _variants(_within(op, argument)[0]) if _within(op, argument)[0] else [""]
    return [""]  # a place, an assertion


def _members(members: list[Item]) -> list[str]:
    if members[0][0] is ops.NEGATE:
        refused = {chr(argument) for op, argument in members[1:] if op is ops.LITERAL}
        return [each for each in "a-1 /" if each not in refused]
    found = []
    for op, argument in members:
        if op is ops.LITERAL:
            found.append(chr(argument))
        elif op is ops.RANGE:
            found.append(chr(argument[0]))
        else:
            found.append(_TYPICAL[argument])
    return found[:8]
