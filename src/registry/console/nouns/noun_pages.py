"""The pages of a noun (a kind of resource) as data: columns, form fields and actions.

For a described resource (`cloudcore.resources`) they follow from the fields of its record; see
`registry.console.nouns.resources`. All nouns have the same handlers
(`registry.console.nouns.handlers`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from cloudcore.billing.card_numbers import has_card_number
from cloudcore.resources.resource import camel
from registry.console.form_refusals import WrongInput
from registry.console.page_request import PageRequest, PageResponse

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
    """A value that a list, or the page of one resource, shows."""

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
    """A field of a form, and the request field that it fills."""

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
    """Return the form field of a name that cannot be changed later."""
    return Input("name", "Name", "code", longest=longest, is_required=True)


_MINUTES: Final = len("2026-11-29T10:30")


def read_inputs(
    inputs: Sequence[Input], form: Mapping[str, str], *, is_change: bool = False
) -> dict[str, Any]:
    """Build the body of a request from the fields of a form.

    An empty field is left out, but a required text is sent empty. In a change, an empty field
    becomes null if it may be null, else empty; a number or choice then stays as it is.

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
    """Return the text of a form field: as sent, else from `record`, else the default."""
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


Section = Literal["services", "settings", "access"]
"""The entry of the console's menu."""


class CustomMethod(NamedTuple):
    """A custom method (AIP-136) or the deletion: a button on the page of a resource."""

    verb: str
    """The end of the path of its page."""
    words: str
    """``Purge``; `noun_pages` says of what."""
    action: str
    said: str
    """The notice after it."""
    path: str = ""
    """After the path of the resource; by default `verb`. Not of a deletion."""
    asks: str = ""
    """What is said before it is done, on a page of its own; a function of the noun's parts may say
    more (``question``)."""
    warns: str = ""
    """What is said beside its button, in a part of the page that is opened first."""
    label: str = ""
    """Of its button; by default `words` and the noun."""
    done: str = ""
    """Of the button that does it; by default `words` and the noun."""
    can: Callable[[RecordJson], bool] = lambda _: True
    """Tells whether it can be done to a record."""
    inputs: tuple[Input, ...] = ()
    """What a person says besides; they become the query."""
    is_deletion: bool = False
    is_grave: bool = False
    stays: bool = False
    """After a deletion, it is still there for a while."""
    answered: Callable[[PageRequest, Any, str], PageResponse] | None = None
    """Returns the page of what is answered, which is shown once; the text is the way back."""


async def _nothing(_page: PageRequest, _record: RecordJson) -> Mapping[str, Any]:
    return {}


async def _nothing_of_all(_page: PageRequest) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, kw_only=True, eq=False)
class NounPages:
    """A noun: its names, the paths of its pages, the actions they require, and what they show.

    Its pages are a list with filters, a page for each resource, forms, and confirmations.
    """

    service: str
    """Its family."""
    one: str
    """As ``/v1`` calls one: ``queue``."""
    many: str
    noun: str = ""
    """What one is called in sentences."""
    plural: str = ""
    title: str = ""
    """Of the list; by default `plural`."""
    section: Section = "services"
    path: str = ""
    """Of the list."""
    api: str = ""
    intro: str = ""
    """A sentence that says what one is."""
    order: str = "the oldest first"
    """The order of the list of ``/v1``."""
    label: str = "name"
    """The field that persons know one by."""
    unnamed: str = ""
    """What one is called that has no name any more."""
    key: str = "id"
    """The field that paths have."""
    list_action: str = ""
    create_action: str = ""
    update_action: str = ""
    created: str = ""
    """Notices."""
    updated: str = ""
    columns: tuple[Column, ...] = ()
    """Of the list, after the name."""
    details: tuple[Column, ...] = ()
    """Of the page of one."""
    filters: tuple[Input, ...] = ()
    creates: tuple[Input, ...] = ()
    """The fields of a new one; without any, the noun's parts have the form."""
    updates: tuple[Input, ...] = ()
    can_change: Callable[[RecordJson], bool] = lambda _: True
    """Tells whether a record can be changed."""
    methods: tuple[CustomMethod, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()
    """Commands to copy, each with what it does; ``NAME`` stands for the name of the one shown."""
    parts: str = "noun_plain.html"
    """The template with what it has more to show: macros ``list_panel``, ``creation``, ``panel``
    and ``question``, none of which it must have."""
    shows: Mapping[str, Any] = field(default_factory=dict)
    """Constants for these macros."""
    more: Callable[[PageRequest, RecordJson], Awaitable[Mapping[str, Any]]] = _nothing
    """Reads what the panel shows; what it names ``headers`` are those of the page."""
    more_of_all: Callable[[PageRequest], Awaitable[Mapping[str, Any]]] = _nothing_of_all
    """Reads what the panel of the list shows."""
    rights_on: Callable[[str], tuple[str, ...]] = lambda crn: (crn,)
    """Returns the CRNs on which the page of one asks for rights."""

    def __post_init__(self) -> None:
        """Fill unset fields with defaults made from the noun's names."""
        noun = self.noun or self.one.replace("_", " ")
        usual = {
            "noun": noun,
            "plural": self.many.replace("_", " "),
            "path": f"/console/services/{self.many.replace('_', '-')}",
            "api": f"/v1/{self.many.replace('_', '-')}",
            "list_action": f"{self.service}:List{camel(self.many)}",
            "create_action": f"{self.service}:Create{camel(self.one)}",
            "update_action": f"{self.service}:Update{camel(self.one)}",
            "created": f"The {noun} was created.",
            "updated": f"The {noun} was changed.",
        }
        for name, words in usual.items():
            if not getattr(self, name):
                object.__setattr__(self, name, words)

    @property
    def type(self) -> str:
        """Return the resource type as it appears in CRNs."""
        return self.one.replace("_", "-")

    @property
    def heading(self) -> str:
        """Return the title of the list."""
        return self.title or self.plural[:1].upper() + self.plural[1:]

    @property
    def path_of_one(self) -> str:
        """Return the route template of the page of one resource."""
        return f"{self.path}/{{{self.one}:str}}"

    @property
    def sorts(self) -> Sequence[tuple[str, str]]:
        """Return the orders that the list offers: a label and the field to sort by."""
        simple = [each for each in self.columns if each.form not in ("texts", "reference")]
        return [("Name" if self.label == "name" else self.label.title(), self.label)] + [
            (each.label, each.field) for each in simple if "." not in each.field
        ]

    def name_of(self, record: RecordJson) -> str:
        """Return the name by which people know a record."""
        return str(record[self.label] or self.unnamed)
