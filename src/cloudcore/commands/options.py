"""Add the options of described commands to parsers, and turn their values into requests."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from cloudcore.clock import time_after
from cloudcore.command_failures import Misuse
from cloudcore.commands.nouns import Option
from cloudcore.commands.parser import CommandParser
from cloudcore.commands.prompts import read_secret
from cloudcore.commands.records import printable

Parser: TypeAlias = "argparse.ArgumentParser | argparse._MutuallyExclusiveGroup"

_DEST: Final = "field:"
"""Prefix of the options' attributes, so that no field hides another attribute such as ``run``."""
ASKED: Final = ("secret", "asked", "credential")
"""The kinds of options for which a secret is read from the terminal or standard input."""
_STDIN: Final = "-"
_PAIR: Final = "KEY=VALUE"
_SPAN: Final = re.compile(r"([0-9]{1,6})([mhdw])")
_LONGEST: Final = timedelta(days=36500)
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def add_options(parser: argparse.ArgumentParser, options: Sequence[Option]) -> None:
    """Add options and arguments to a command's parser; options of a group exclude each other."""
    sharing = Counter(map(_group, options))
    groups: dict[str, Parser] = {}
    for option in options:
        name = _group(option)
        is_alone = sharing[name] == 1 or option.kind in _REPEATED
        if not is_alone and name not in groups:
            is_needed = any(each.is_required for each in options if _group(each) == name)
            groups[name] = parser.add_mutually_exclusive_group(required=is_needed)
        _ADDING.get(option.kind, _add_value)(parser if is_alone else groups[name], option)


def _group(option: Option) -> str:
    return option.group or option.field


def values_of(parsed: argparse.Namespace, options: Iterable[Option]) -> dict[str, Any]:
    """Return the values on the command line by field, without the fields that are not set.

    Raise `Misuse` if a file has no JSON object or no text, a tag is not ``KEY=VALUE``, or a secret
    is empty.
    """
    return {each.field: _value(each, parsed) for each in options if is_given(parsed, each)}


def is_given(parsed: argparse.Namespace, option: Option) -> bool:
    """Return True if an option was passed; for the kind ``asked``, if ``--no-…`` was not passed."""
    given = getattr(parsed, _dest(option))
    return (given is None) if option.kind == "asked" else given is not None


def request_of(
    values: dict[str, Any], options: Iterable[Option]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (request body, query string) with the values of these options.

    Raise `Misuse` if a field is both set and removed.
    """
    asked = {each.field for each in options if each.is_query}
    body = {field: value for field, value in values.items() if field not in asked}
    return document_of(body), {field: values[field] for field in values if field in asked}


def flags_of(options: Iterable[Option]) -> Sequence[str]:
    """Return the flags and arguments that set a field of the body."""
    return [
        _metavar(each, each.field) if each.is_argument else _flag(each)
        for each in options
        if not each.is_query and each.kind != "null"
    ]


def document_of(values: dict[str, Any]) -> dict[str, Any]:
    """Nest values by field: ``a.b`` becomes the field ``b`` of the object ``a``.

    Raise `Misuse` if a field is both set and removed.
    """
    document: dict[str, Any] = {}
    for field, value in values.items():
        *outer, last = field.split(".")
        inside: Any = document
        for name in outer:
            inside = inside.setdefault(name, {})
            if inside is None:
                raise Misuse(f"either {name} is taken away, or it is set")
        if last in inside:
            raise Misuse(f"either {last} is taken away, or it is set")
        inside[last] = value
    return document


def _value(option: Option, parsed: argparse.Namespace) -> Any:  # noqa: ANN401 - of any kind
    given = getattr(parsed, _dest(option))
    match option.kind:
        case "tags":
            return _pairs(given, _flag(option), _metavar(option, _PAIR))
        case "document":
            return _document(option, given)
        case "documents":
            return [_read_document(each) for each in given]
        case "file" | "body":
            return given if option.kind == "body" and given != _STDIN else _text_in(given)
        case "span":
            return int(given.total_seconds())
        case "until":
            return time_after(given)
        case "limit" | "clearable":
            return given or None
        case "secret" | "asked" | "credential":
            return _typed(option, given)
        case "null":
            return None
        case _:
            return given


def _document(option: Option, name: str) -> Any:  # noqa: ANN401 - a field of any kind
    """Return the JSON object in a file.

    If the object is a whole record as ``show`` prints it, which has ``revision`` and the option's
    field, return only that field.
    """
    found = _read_document(name)
    return found[option.field] if {option.field, "revision"} <= found.keys() else found


def _typed(option: Option, given: Any) -> Any:  # noqa: ANN401 - as above
    if option.kind == "credential":
        return {"username": given, "secret": read_secret(f"Secret of {given}: ", "secret")}
    words = option.field.replace("_", " ")
    return read_secret(f"{words.capitalize()}: ", words)


def _read_document(name: str) -> dict[str, Any]:
    """Return the JSON object in a file; ``-`` means standard input.

    Raise `Misuse` if the file has no JSON object.
    """
    where, content = _content_of(name)
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"{where} holds no JSON object: {error}") from None


def _pairs(texts: Iterable[str], option: str, shape: str) -> dict[str, str]:
    """Parse tags written as ``KEY=VALUE``; if a key is repeated, its last value counts.

    Raise `Misuse` if a tag has no equals sign; the error names `option` and the expected `shape`.
    """
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise Misuse(f"{option} takes {shape}, not {printable(text)!r}")
        found[key] = value
    return found


def _span(text: str) -> timedelta:
    """Parse a time span; raise `argparse.ArgumentTypeError` if the text is malformed."""
    found = _SPAN.fullmatch(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no span like 90m, 12h, 30d or 4w")
    parsed = timedelta(**{_UNITS[found[2]]: int(found[1])})
    if not timedelta() < parsed <= _LONGEST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not between 1m and {_LONGEST.days}d; without this option it never ends"
        )
    return parsed


def _text_in(name: str) -> str:
    where, content = _content_of(name)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Misuse(f"{where} holds no UTF-8 text") from None


def _content_of(name: str) -> tuple[str, bytes]:
    """Return (name for messages, content) of a file; ``-`` means standard input."""
    if name == _STDIN:
        return "the standard input", sys.stdin.buffer.read()
    return name, Path(name).read_bytes()


def _dest(option: Option) -> str:
    return _DEST + option.field + ("" if option.is_argument else _flag(option))


def _flag(option: Option) -> str:
    name = option.name or option.field.rpartition(".")[2].replace("_", "-")
    if option.kind in _REPEATED and not option.name:
        name = name.removesuffix("s")
    return f"--no-{name}" if option.kind == "asked" else f"--{name}"


def _names(option: Option) -> Sequence[str]:
    return (_flag(option), *([f"-{option.short}"] if option.short else []))


def _metavar(option: Option, default: str) -> str:
    return option.metavar or default


def _add_value(parser: Parser, option: Option) -> None:
    types = {"number": int, "limit": int, "count": _count, "span": _span, "until": _span}
    files = dict.fromkeys(("document", "documents", "file"), "FILE")
    shown = files | dict.fromkeys(("number", "limit", "count"), "N")
    shown |= {"span": "SPAN", "until": "SPAN", "credential": "NAME"}
    shared: dict[str, Any] = {
        "help": option.words,
        "type": types.get(option.kind, str),
        "choices": option.choices or None,
    }
    if not option.choices:
        shared["metavar"] = _metavar(option, shown.get(option.kind, "TEXT"))
    if option.kind in ("many", "documents"):
        shared["action"] = "append"
    if option.is_argument:
        name = _metavar(option, option.field.rpartition(".")[2].upper().replace("_", "-"))
        count = {"nargs": "?"} if option.is_optional else {}
        parser.add_argument(_dest(option), **shared | {"metavar": name} | count)
    elif option.group:
        parser.add_argument(_flag(option), dest=_dest(option), **shared)
    else:
        parser.add_argument(
            *_names(option), dest=_dest(option), required=option.is_required, **shared
        )


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError("a number, 1 or more")
    return int(text)


def _add_texts(parser: Parser, option: Option) -> None:
    assert isinstance(parser, argparse.ArgumentParser)
    if option.is_argument:
        shown = _metavar(option, option.field.upper().replace("_", "-"))
        count = "*" if option.is_optional else "+"
        parser.add_argument(_dest(option), metavar=shown, nargs=count, help=option.words)
        return
    flag = _flag(option)
    shown = _metavar(option, {"tags": _PAIR, "numbers": "N"}.get(option.kind, "TEXT"))
    either = parser.add_mutually_exclusive_group()
    words = f"{option.words}; repeatable, replaces all"
    kind = int if option.kind == "numbers" else str
    either.add_argument(
        flag, dest=_dest(option), action="append", metavar=shown, type=kind, help=words
    )
    plural = f"{option.name}s" if option.name else option.field.rpartition(".")[2]
    either.add_argument(
        f"--no-{plural.replace('_', '-')}",
        dest=_dest(option),
        action="store_const",
        const=[],
        help="take all away",
    )


def _add_rest(parser: Parser, option: Option) -> None:
    assert isinstance(parser, CommandParser)
    parser.rest = _dest(option)
    parser.epilog = f"What follows -- is {option.words}."


def _add_boolean(parser: Parser, option: Option) -> None:
    parser.add_argument(
        _flag(option),
        dest=_dest(option),
        action=argparse.BooleanOptionalAction,
        help=option.words,
    )


def _add_flag(parser: Parser, option: Option) -> None:
    parser.add_argument(
        *_names(option), dest=_dest(option), action="store_const", const=True, help=option.words
    )


_REPEATED: Final = ("numbers", "texts", "tags")
_ADDING: Final = {
    "numbers": _add_texts,
    "texts": _add_texts,
    "tags": _add_texts,
    "boolean": _add_boolean,
    "flag": _add_flag,
    "secret": _add_flag,
    "asked": _add_flag,
    "null": _add_flag,
    "rest": _add_rest,
}
