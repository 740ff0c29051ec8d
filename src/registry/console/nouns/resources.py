"""Derive a noun's pages from the description of its resource."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_args, get_origin

from msgspec import NODEFAULT, Meta

from cloudcore.resources.resource import Described, Filter, Resource
from registry.console.nouns.noun_pages import (
    CREATED,
    TAGS,
    Column,
    CustomMethod,
    Form,
    Input,
    InputKind,
    NounPages,
)

_ENDS: Final = ("_seconds", "_at")
"""Suffixes of field names that labels omit: the unit is shown with the value."""
_WORDS: Final = {
    **{each.lower(): each for each in ("VPC", "VIP", "CIDR", "IPv4", "IPv6", "IP", "ID", "CPU")},
    **{each.lower(): each for each in ("HTML", "PEM", "KMS", "URL", "CRN")},
    "mb": "(MiB)",
    "millis": "(thousandths)",
}
"""Maps words in field names to the words in labels."""
_YES_OR_NO: Final = {True: "yes", False: "no"}


def noun_of(of: Resource[Any], intro: str = "") -> NounPages:
    """Return the pages of a described resource."""
    visible = [each for each in of.fields.values() if not each.use.hidden]
    details = [
        each
        for each in visible
        if each.name not in (of.label, "description", "tags")
        and not (each.use.is_long or each.is_faults)  # these have places of their own
    ]
    has = of.methods
    changeable = [each for each in of.of_use("given") if _is_writable(each)]
    return NounPages(
        service=of.service,
        one=of.one,
        many=of.many,
        noun=of.noun,
        plural=of.nouns,
        api=of.path,
        intro=intro or (of.record.__doc__ or "").partition("\n")[0],
        label=of.label,
        list_action=of.action("list"),
        create_action=of.action("create"),
        update_action=of.action("update"),
        columns=(*(_column(each) for each in details if each.use.heading), CREATED),
        details=(*map(_column, details), CREATED),
        filters=tuple(_filter(of, each) for each in of.filters),
        creates=tuple(
            _input(of, each) for each in of.of_use("given", "fixed") if _is_writable(each)
        )
        if "create" in has
        else (),
        updates=tuple(_input(of, each) for each in changeable) if "update" in has else (),
        methods=(deletion(of.noun, of.action("delete")),) if "delete" in has else (),
    )


def deletion(
    noun: str, action: str, asks: str = "It cannot be had back.", said: str = ""
) -> CustomMethod:
    """Return the deletion button of a noun; `asks` is the text of the confirmation.

    `said` completes the notice "The NOUN was deleted, ...".
    """
    done = f"The {noun} was deleted{said and ', '}{said}."
    return CustomMethod(
        "delete", "Delete", action, done, asks=asks, is_deletion=True, is_grave=True
    )


def slow_deletion(action: str, said: str, asks: str, *inputs: Input) -> CustomMethod:
    """Return the button of a deletion that takes a while, with the status ``deleting``."""
    return CustomMethod(
        "delete",
        "Delete",
        action,
        said,
        asks=asks,
        can=lambda record: record["status"] != "deleting",
        inputs=inputs,
        is_deletion=True,
        is_grave=True,
        stays=True,
    )


def _label(name: str) -> str:
    for end in _ENDS:
        name = name.removesuffix(end)
    words = " ".join(_WORDS.get(each, each) for each in name.removeprefix("is_").split("_"))
    return words[:1].upper() + words[1:]


def _column(each: Described) -> Column:
    form: Form = "reference" if each.is_reference else _FORMS.get(each.use.form, "text")
    if get_origin(each.plain) is list:
        form = "texts"
    elif each.name.endswith("_seconds"):
        form = "duration"
    words: Any = _YES_OR_NO if each.plain is bool else {}
    none = "never" if each.is_moment else ""
    return Column(_label(each.name), each.name, form, words, none=none)


_FORMS: Final[dict[str, Form]] = {
    "number": "number",
    "time": "time",
    "size": "size",
    "duration": "duration",
}


def _filter(of: Resource[Any], by: Filter) -> Input:
    name = by.name
    choices = tuple(map(str, get_args(of.fields[name].plain))) if name in of.fields else ()
    kind: InputKind = "choice" if choices else "code"
    usual = f"All but {by.hides}" if by.hides else ""
    return Input(name, _label(name), kind, choices=choices, default=usual)


def _input(of: Resource[Any], each: Described) -> Input:
    is_required = each.default is NODEFAULT
    help_words = each.use.words.partition(";")[0]
    unit = "seconds" if each.name.endswith("_seconds") else ""
    if each.name == TAGS.field:
        return TAGS
    return Input(
        each.name,
        f"{_label(each.name)}{' (UTC)' if each.is_moment else ''}",
        _kind(of, each),
        _sentence(help_words, unit),
        max((meta.max_length or 0 for meta in _metas(each.kind)), default=0),
        is_required=is_required,
        is_optional=each.is_optional,
        choices=tuple(map(str, get_args(each.plain))) if get_origin(each.plain) else (),
        default=each.default if isinstance(each.default, str | int) else "",
        is_more=not is_required and each.name != "description" and not each.use.is_long,
    )


def _sentence(words: str, unit: str) -> str:
    if not words or words.startswith(("the ", "for persons")):
        return ""
    if unit and unit not in words:
        words = f"{words}, in {unit}"
    return f"{words[:1].upper()}{words[1:]}."


def _is_writable(each: Described) -> bool:
    """Return True if a person can enter the value in a form field."""
    is_texts = get_origin(each.plain) is list and get_args(each.plain)[0] is str
    return not each.is_document or each.name == TAGS.field or is_texts


def _kind(of: Resource[Any], each: Described) -> InputKind:
    if each.is_moment:
        return "moment"
    if each.use.is_long:
        return "lines"
    if each.plain is bool:
        return "flag"
    if each.plain is int:
        return "number"
    if each.is_document:
        return "texts"
    if get_args(each.plain):
        return "choice"
    return "code" if each.is_reference or each.name == of.label else "line"


def _metas(kind: Any) -> Iterator[Meta]:  # noqa: ANN401 - a type
    for each in get_args(kind):
        if isinstance(each, Meta):
            yield each
        elif each is not kind:
            yield from _metas(each)
