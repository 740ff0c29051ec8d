"""The fields of a form of a noun, as the body of a request; and of a record, as texts of a form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from registry.console.noun_pages import Input, Shown
from registry.console.pages.refusals import Complaint

_MINUTES: Final = len("2026-11-29T10:30")


class WrongInput(Exception):
    """Raised for a field that cannot be what it is for."""

    def __init__(self, field: str, words: str) -> None:
        super().__init__(words)
        self.complaint = Complaint(400, words, field)


def read_inputs(
    inputs: Sequence[Input], form: Mapping[str, str], *, is_change: bool = False
) -> dict[str, Any]:
    """Return the body that a form means.

    What is left empty has its default; in a change, null if it may be null.

    Raises:
        WrongInput: a field cannot be read.

    """
    body: dict[str, Any] = {}
    for each in inputs:
        written = form.get(each.field, "").strip()
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
        case "moment":
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
    return of.field.startswith("private_") or "PRIVATE KEY" in written


def text_of(of: Input, record: Shown | None, sent: Mapping[str, str]) -> str:
    """Return what a field of a form has: what was sent, or what `record` has, or the default."""
    if sent:
        written = sent.get(of.field, "")
        return "" if of.kind == "pem" and _is_secret(of, written) else written
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
