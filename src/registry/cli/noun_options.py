"""The options that a noun's description gives its commands, and what they make of a request."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from cloudcore.command_line import Option
from registry.cli.documents import read_document
from registry.cli.failure import Misuse
from registry.cli.options import repeatable
from registry.cli.tag_pairs import pairs

_DEST: Final = "field:"
"""Before the field, so that no option hides one of the command line's own, such as ``run``."""
_STDIN: Final = "-"
_PAIR: Final = "KEY=VALUE"


def add_options(parser: argparse.ArgumentParser, options: Iterable[Option]) -> None:
    """Add options and arguments to the parser of a command."""
    for option in options:
        _ADDING.get(option.kind, _add_value)(parser, option)


def values_of(parsed: argparse.Namespace, options: Iterable[Option]) -> dict[str, Any]:
    """Return what a command line gives, by field; what it does not give is absent.

    Raises:
        Misuse: a file holds no JSON object or no text, or a tag is not ``KEY=VALUE``.

    """
    values = {}
    for option in options:
        given = getattr(parsed, _dest(option))
        if given is not None:
            values[option.field] = _value(option, given)
    return values


def document_of(values: dict[str, Any]) -> dict[str, Any]:
    """Return values by field as a document: ``a.b`` is the field ``b`` of the field ``a``.

    Raises:
        Misuse: a field is both set and taken away.

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
        inside[last] = None if value is _NULL else value
    return document


class _Null:
    """The value of an option whose field becomes null."""


_NULL: Final = _Null()


def _value(option: Option, given: Any) -> Any:  # noqa: ANN401 - of any kind
    match option.kind:
        case "tags":
            return pairs(given, _flag(option), _metavar(option, _PAIR))
        case "document":
            return read_document(given)
        case "file":
            return _text_in(given)
        case "body" if given == _STDIN:
            return _text_in(given)
        case "null":
            return _NULL
        case _:
            return given


def _text_in(name: str) -> str:
    where = "the standard input" if name == _STDIN else name
    content = sys.stdin.buffer.read() if name == _STDIN else Path(name).read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Misuse(f"{where} holds no UTF-8 text") from None


def _dest(option: Option) -> str:
    if option.is_argument:
        return _DEST + option.field
    if option.kind in ("texts", "tags"):  # as `repeatable` calls it
        return _flag(option).removeprefix("--").replace("-", "_")
    return _DEST + option.field + (":null" if option.kind == "null" else "")


def _flag(option: Option) -> str:
    name = option.name or option.field.rpartition(".")[2].replace("_", "-")
    if option.kind == "tags" and not option.name:
        name = name.removesuffix("s")
    return f"--{name}"


def _metavar(option: Option, default: str) -> str:
    return option.metavar or default


def _add_value(parser: argparse.ArgumentParser, option: Option) -> None:
    defaults = {"number": "N", "document": "FILE", "file": "FILE"}
    shared: dict[str, Any] = {
        "help": option.words,
        "type": int if option.kind == "number" else str,
        "choices": option.choices or None,
    }
    if not option.choices:
        shared["metavar"] = _metavar(option, defaults.get(option.kind, "TEXT"))
    if option.is_argument:
        shown = _metavar(option, option.field.rpartition(".")[2].upper().replace("_", "-"))
        parser.add_argument(_dest(option), **shared | {"metavar": shown})
    else:
        parser.add_argument(
            _flag(option), dest=_dest(option), required=option.is_required, **shared
        )


def _add_texts(parser: argparse.ArgumentParser, option: Option) -> None:
    if option.is_argument:
        shown = _metavar(option, option.field.upper().replace("_", "-"))
        parser.add_argument(_dest(option), metavar=shown, nargs="+", help=option.words)
        return
    flag = _flag(option)
    shown = _metavar(option, _PAIR if option.kind == "tags" else "TEXT")
    repeatable(parser, flag, f"--no-{flag.removeprefix('--')}s", shown, option.words)


def _add_boolean(parser: argparse.ArgumentParser, option: Option) -> None:
    parser.add_argument(
        _flag(option),
        dest=_dest(option),
        action=argparse.BooleanOptionalAction,
        help=option.words,
    )


def _add_null(parser: argparse.ArgumentParser, option: Option) -> None:
    parser.add_argument(
        _flag(option), dest=_dest(option), action="store_const", const=True, help=option.words
    )


_ADDING: Final = {
    "texts": _add_texts,
    "tags": _add_texts,
    "boolean": _add_boolean,
    "null": _add_null,
}
