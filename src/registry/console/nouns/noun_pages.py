"""The pages of a noun (a kind of resource) as data: columns, form fields and actions.

`registry.console.nouns.resources` makes this data for a described resource (`cloudcore.resources`).
The handlers of `registry.console.nouns.handlers` serve all nouns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from cloudcore.billing.card_numbers import has_card_number
from cloudcore.resources.resource import camel
from registry.console.browser_request import is_whole_number
from registry.console.form_refusals import WrongInput
from registry.console.page_request import PageRequest, PageResponse

RecordJson = Mapping[str, Any]
"""A record in a response of ``/v1``."""
Form = Literal["text", "number", "time", "until", "size", "duration", "texts", "reference", "mark"]
"""How a value is shown: ``time`` as the time since then; ``mark`` as a word that stands out unless
the value is the usual one."""
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
"""How a person writes a value:

- ``code``: a line in which browsers correct nothing, such as a name; ``lines``: several of these.
- ``texts``: one text to a line; ``tags``: one ``KEY=VALUE`` to a line.
- ``moment``, ``instant``: a time in UTC, to the minute or to the second.
- ``pem``: PEM text, which is not shown again if it has a private key.
- ``secret``: a text that is never shown again.
"""


class Column(NamedTuple):
    """A value that a list, or the page of one resource, shows."""

    label: str
    field: str
    """The record's field; ``depth.visible`` is a nested field."""
    form: Form = "text"
    words: Mapping[str, str] = {}
    """Maps values to the words shown in place of them."""
    none: str = ""
    """Shown if there is no value; by default a dash."""
    usual: str = ""
    """For the form ``mark``: the value that does not stand out."""


class Input(NamedTuple):
    """A field of a form, and the request field that it fills."""

    field: str
    label: str
    kind: InputKind = "line"
    help: str = ""
    longest: int = 0
    is_required: bool = False
    is_optional: bool = False
    """True if the field may be null; in a change, an empty form field means null."""
    choices: tuple[str, ...] = ()
    default: object = ""
    is_more: bool = False
    """True if the field is in the part of the form that is collapsed at first."""


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

    An empty form field is left out, but a required text is sent empty. In a change, an empty form
    field sets null if the field may be null; otherwise it leaves a number or a choice unchanged,
    and empties any other field. Raise `WrongInput` if a form field cannot be parsed.
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
            if not is_whole_number(digits, len(f"{2**53}")):
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
    """Return the text to show in a form field: as sent, else from `record`, else the default.

    A secret that was sent is not shown again.
    """
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
"""The part of the console's menu that has the noun."""


class CustomMethod(NamedTuple):
    """A custom method (AIP-136) or the deletion: a button on the page of a resource."""

    verb: str
    """The last segment of the path of the method's page."""
    words: str
    """The verb shown to people, such as ``Purge``; pages add the noun."""
    action: str
    said: str
    """The notice shown after the method."""
    path: str = ""
    """Appended to the resource's path on ``/v1``; by default `verb`. Not used for a deletion."""
    asks: str = ""
    """Text of the confirmation page; if empty, there is no confirmation. The macro ``question`` of
    the noun's `parts` may add to it."""
    warns: str = ""
    """Warning beside the button; both are in a part of the page that is collapsed at first."""
    label: str = ""
    """Label of the button on the resource's page; by default `words` and the noun."""
    done: str = ""
    """Label of the button that confirms; by default `words` and the noun."""
    can: Callable[[RecordJson], bool] = lambda _: True
    """Returns True if the method can be applied to a record."""
    inputs: tuple[Input, ...] = ()
    """Form fields of the confirmation page; they become the query."""
    is_deletion: bool = False
    is_grave: bool = False
    stays: bool = False
    """True if the resource still exists for a while after its deletion."""
    answered: Callable[[PageRequest, Any, str], PageResponse] | None = None
    """Makes a page from the method's response, which is shown only once; the text is the path of
    the resource's page."""


async def _nothing(*_: object) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, kw_only=True, eq=False)
class NounPages:
    """The pages of a noun: their paths, the actions they require, and what they show.

    They are a list with filters, a page for each resource, forms, and confirmations.
    """

    service: str
    """The noun's family."""
    one: str
    """The singular on ``/v1``, such as ``queue``."""
    many: str
    noun: str = ""
    """The singular in sentences."""
    plural: str = ""
    title: str = ""
    """The title of the list; by default `plural`."""
    section: Section = "services"
    path: str = ""
    """The path of the page with the list."""
    api: str = ""
    intro: str = ""
    """A sentence that explains what such a resource is."""
    order: str = "the oldest first"
    """The order in which ``/v1`` lists the resources, in words."""
    label: str = "name"
    """The field with the name that people use."""
    unnamed: str = ""
    """The name shown for a resource that has no name any more."""
    key: str = "id"
    """The field that identifies a resource in paths."""
    list_action: str = ""
    create_action: str = ""
    update_action: str = ""
    created: str = ""
    """The notice after a creation; `updated` is the notice after a change."""
    updated: str = ""
    columns: tuple[Column, ...] = ()
    """The columns of the list, after the name."""
    details: tuple[Column, ...] = ()
    """The values on the page of one resource."""
    filters: tuple[Input, ...] = ()
    creates: tuple[Input, ...] = ()
    """The form fields for a new resource; if there are none, the noun's `parts` may have a form."""
    updates: tuple[Input, ...] = ()
    can_change: Callable[[RecordJson], bool] = lambda _: True
    """Returns True if a record can be changed."""
    methods: tuple[CustomMethod, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()
    """Commands to copy: (what it does, command); ``NAME`` stands for the resource's name."""
    parts: str = "noun_plain.html"
    """The template with the noun's own macros, all of them optional: ``list_panel``, ``creation``,
    ``panel`` and ``question``."""
    shows: Mapping[str, Any] = field(default_factory=dict)
    """Constants for the macros of `parts`."""
    more: Callable[[PageRequest, RecordJson], Awaitable[Mapping[str, Any]]] = _nothing
    """Reads the values that the macro ``panel`` shows; a value ``headers`` has response headers."""
    more_of_all: Callable[[PageRequest], Awaitable[Mapping[str, Any]]] = _nothing
    """Reads the values that the macro ``list_panel`` shows."""
    rights_on: Callable[[str], tuple[str, ...]] = lambda crn: (crn,)
    """Returns, for a resource's CRN, the CRNs on which its page reads the rights."""

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
