"""Columns of tables and fields of forms: format values, and read what a form sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from cloudcore.billing.card_numbers import has_card_number
from registry.console.form_refusals import WrongInput

RecordJson = Mapping[str, Any]
"""A record as ``/v1`` answers it."""
Form = Literal["text", "number", "time", "until", "size", "duration", "texts", "reference", "mark"]
"""How a value is shown; ``time``: since when, ``mark``: a word that stands out if it says that
something is not as usual."""
InputKind = Literal[
    "line",
    "code",
    "lines",
    "number",
    "choice",
    "flag",
    "moment",
    "instant",
    "tags",
    "texts",
    "pem",
    "secret",
]
"""How a person writes a value: ``code`` is a line of a language, such as a name, in which nothing
is corrected, ``lines`` are many of them; ``texts`` one to a line, ``tags`` so too, as
``KEY=VALUE``; ``moment`` in UTC, to the minute, ``instant`` to the second; ``pem`` is not shown
again if it has a private key, and a ``secret`` never."""


class Column(NamedTuple):
    """A value that a list or the page of one shows."""

    label: str
    field: str
    """``depth.visible`` is a field of a field."""
    form: Form = "text"
    words: Mapping[str, str] = {}
    """What persons read, by value, if that is not the value."""
    none: str = ""
    """What is shown where there is no value; by default a dash."""
    usual: str = ""
    """Of the form ``mark``: the value that does not stand out."""


class Input(NamedTuple):
    """A field of a form, and of the request that it becomes."""

    field: str
    label: str
    kind: InputKind = "line"
    help: str = ""
    longest: int = 0
    least: int | None = None
    most: int | None = None
    is_required: bool = False
    is_optional: bool = False
    """It may be null, which an empty field of a change means."""
    choices: tuple[str, ...] = ()
    default: object = ""
    is_more: bool = False
    """It is in the part of the form that a person need not open."""


CREATED: Final = Column("Created", "created_at", "time")
DESCRIPTION: Final = Input("description", "Description", longest=1000)
TAGS: Final = Input("tags", "Tags", "tags", "As KEY=VALUE, one to a line.", is_more=True)


def name_of(longest: int) -> Input:
    """Return the field of a name that never changes."""
    return Input("name", "Name", "code", longest=longest, is_required=True)


_MINUTES: Final = len("2026-11-29T10:30")


def read_inputs(
    inputs: Sequence[Input], form: Mapping[str, str], *, is_change: bool = False
) -> dict[str, Any]:
    """Return the body of a request from the fields of a form.

    An empty field has its default; in a change, null if it may be null.

    Raise `WrongInput` if a field cannot be read.
    """
    body: dict[str, Any] = {}
    for each in inputs:
        written = form.get(each.field, "")
        if each.kind != "secret":
            written = written.strip()
        if each.kind == "flag":
            body[each.field] = each.field in form
        elif written:
            body[each.field] = _read(each, written)
        elif each.is_required and each.kind == "number":
            raise WrongInput(each.field, f"{each.label}: a whole number.")
        elif each.is_required:
            body[each.field] = ""
        elif is_change and each.field in form:
            body |= _emptied(each)
    return body


def _read(of: Input, written: str) -> Any:  # noqa: ANN401 - JSON
    match of.kind:
        case "number":
            digits = written.removeprefix("-")
            if not (digits.isascii() and digits.isdigit() and len(digits) <= len(f"{2**53}")):
                raise WrongInput(of.field, f"{of.label}: a whole number.")
            return int(written)
        case "texts":
            return written.split()
        case "tags":
            return dict(_tag(of, line) for line in written.splitlines() if line.strip())
        case "lines":
            return written.replace("\r\n", "\n")  # as HTML has forms sent
        case "moment" | "instant":
            return f"{written}:00Z" if len(written) == _MINUTES else f"{written}Z"
        case _:
            return written


def _tag(of: Input, line: str) -> tuple[str, str]:
    key, equals, value = line.strip().partition("=")
    if not equals:
        raise WrongInput(of.field, f"{of.label}: each line is KEY=VALUE.")
    return key, value


def _emptied(of: Input) -> dict[str, Any]:
    if of.is_optional:
        return {of.field: None}
    match of.kind:
        case "number" | "choice":
            return {}  # it stays as it is
        case "tags":
            return {of.field: {}}
        case "texts":
            return {of.field: []}
        case _:
            return {of.field: ""}


def _is_secret(of: Input, written: str) -> bool:
    is_key = of.kind == "pem" and (of.field.startswith("private_") or "PRIVATE KEY" in written)
    return is_key or of.kind == "secret" or has_card_number(written)


def text_of(of: Input, record: RecordJson | None, sent: Mapping[str, str]) -> str:
    """Return the text of a field: as it was sent, or from `record`, or the default."""
    if sent:
        written = sent.get(of.field, "")
        return "" if _is_secret(of, written) else written
    value: Any = record.get(of.field) if record is not None else of.default
    if value is None:
        return ""
    match of.kind:
        case "tags":
            return "\n".join(f"{key}={each}" for key, each in dict(value or {}).items())
        case "texts":
            return "\n".join(value)
        case "moment":
            return str(value)[:_MINUTES]
        case "flag":
            return "on" if value else ""
        case _:
            return str(value["name"]) if isinstance(value, Mapping) else str(value)
