"""Describe a kind of resource that accounts have: its record, and the resource itself.

A record is a frozen struct of the stored fields; each field declares whether the client or the
platform sets it. Requests, answers, options of commands and columns of tables are derived from the
fields, so each is written once: its type with its bounds, its default, its help text. A `Resource`
adds the names, the actions, the filters and the references.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

from msgspec import NODEFAULT, Meta, Struct, structs
from msgspec import field as struct_field

from cloudcore.iam.vocabulary import ResourceKind
from cloudcore.jobs.faults import Fault, add_fault
from cloudcore.quotas.quota import Quota
from cloudcore.resource_names import check_name

if TYPE_CHECKING:
    from cloudcore.commands.nouns import CellForm
    from cloudcore.db.base import Connection
    from cloudcore.events import Events

Use = Literal["given", "fixed", "own"]
"""Who sets a field: its owner at any time, its owner at the creation only, or the platform."""


class Field(NamedTuple):
    """How a field of a record is set and shown, besides its type."""

    use: Use
    words: str = ""
    """Help text of the option."""
    heading: str = ""
    """Heading of its column in a command's table; if empty, the table has no such column."""
    form: CellForm = "text"
    """How a table shows it. A field with the form ``time`` is a moment: microseconds since the
    epoch in the record, RFC 3339 in requests and answers."""
    hidden: bool = False
    """True if no answer has the field."""
    shows_null: bool = False
    """True if answers have null where there is no value, instead of omitting the field."""
    is_long: bool = False
    """True for a text of many lines, which a command reads from a file."""


given: Final = partial(Field, "given")
fixed: Final = partial(Field, "fixed")
own: Final = partial(Field, "own")
ResourceName = Annotated[
    str,
    Meta(min_length=1, max_length=63),
    fixed("1 to 63 of a-z 0-9 . _ -; fixed", heading="NAME"),
]
"""A name that the owner chooses at the creation; `check_name` checks the characters."""
Description = Annotated[str, Meta(max_length=1000), given('for persons; "" takes it away')]


class Record(Struct, kw_only=True, frozen=True):
    """Base of records: the fields that all resources of accounts have.

    Moments are microseconds since the epoch.
    """

    id: str
    account_id: str
    region: str
    created_at: int
    updated_at: int


DELETING: Final = "deleting"


class Worked(Record, kw_only=True, frozen=True):
    """Base of records that have a workflow (`cloudcore.resources.workflow`)."""

    status: Annotated[str, own(heading="STATUS")]
    """``deleting`` from the request of its deletion until it is gone."""
    faults: Annotated[tuple[Fault, ...], own()] = ()
    """What goes wrong; a success clears it."""

    def with_fault(self, code: str, message: str, now: int, subject: str = "") -> Self:
        """Return a copy with one more fault, counted as by `add_fault`."""
        faults = tuple(add_fault(self.faults, code, message, now, subject=subject))
        return structs.replace(self, faults=faults)

    def without_faults(self, *codes: str) -> Self:
        """Return a copy without the faults that have these codes."""
        return structs.replace(
            self, faults=tuple(each for each in self.faults if each.code not in codes)
        )


class Reference(Struct, frozen=True):
    """A reference to another resource of the account: the stored id, and the name read with it."""

    id: str
    name: str = ""


BASE: Final = Record.__struct_fields__


class Described(NamedTuple):
    """A field of a record."""

    name: str
    kind: Any
    """Its type, with its bounds."""
    use: Field
    default: Any
    """`msgspec.NODEFAULT` if it must be given."""

    @property
    def is_moment(self) -> bool:
        """Return True if the field is a moment."""
        return self.use.form == "time"

    @property
    def is_optional(self) -> bool:
        """Return True if the field may be None."""
        return type(None) in _members(bare(self.kind))

    @property
    def plain(self) -> Any:  # noqa: ANN401 - a type
        """Return the field's type without bounds and without None."""
        members = [bare(each) for each in _members(bare(self.kind)) if each is not type(None)]
        return members[0] if len(members) == 1 else Union[tuple(members)]  # noqa: UP007

    @property
    def is_reference(self) -> bool:
        """Return True if the field refers to another resource."""
        return self.plain is Reference

    @property
    def is_faults(self) -> bool:
        """Return True if the field has the faults of a workflow."""
        return bool(self.plain == tuple[Fault, ...])

    @property
    def is_text(self) -> bool:
        """Return True if the column stores plain text: any text, or one of several words."""
        return self.plain is str or get_origin(self.plain) is Literal

    @property
    def is_document(self) -> bool:
        """Return True if the column stores JSON: for an object, a list or a struct."""
        return not (self.is_text or self.is_reference or self.plain in (int, bool, bytes))

    @property
    def is_bounded(self) -> bool:
        """Return True if the field's bounds keep its number within 32 bits."""
        metas = [each for kind in _members(self.kind) for each in getattr(kind, "__metadata__", ())]
        ends = [end for each in metas for end in (each.ge, each.le) if end is not None]
        return len(ends) == 2 and all(-(1 << 31) <= end < 1 << 31 for end in ends)

    @property
    def column(self) -> str:
        """Return the name of the field's column."""
        return f"{self.name}_id" if self.is_reference else self.name


@cache
def fields_of(record: type[Record]) -> Mapping[str, Described]:
    """Map names to fields of a record, without those that every record has."""
    return {
        each.name: Described(each.name, *_split(each.type), _default(each))
        for each in structs.fields(record)
        if each.name not in BASE
    }


def bare(kind: Any) -> Any:  # noqa: ANN401 - a type
    """Return a type without its bounds."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _members(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a type
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _split(kind: Any) -> tuple[Any, Field]:  # noqa: ANN401 - a type
    """Split a type into the type without its `Field`, and the `Field`."""
    if get_origin(kind) is not Annotated:
        raise TypeError(f"{kind}: a field says who sets it, by given, fixed or own")
    inner = get_args(kind)[0]
    rest: tuple[Any, ...] = kind.__metadata__
    (use,) = [each for each in rest if isinstance(each, Field)]
    kept = [each for each in rest if not isinstance(each, Field)]
    return (Annotated[(inner, *kept)] if kept else inner), use


def _default(info: structs.FieldInfo) -> Any:  # noqa: ANN401 - of any type
    if info.default_factory is not NODEFAULT:
        return struct_field(default_factory=info.default_factory)
    return info.default


R = TypeVar("R", bound=Record)
Verb = Literal["create", "list", "get", "update", "delete"]
VERBS: Final[tuple[Verb, ...]] = ("create", "list", "get", "update", "delete")
"""The standard methods (Google's AIP-131 to 135)."""
_PAST: Final[Mapping[Verb, str]] = {"create": "created", "update": "updated", "delete": "deleted"}


class Filter(NamedTuple):
    """A query parameter of a list, which filters by a text column."""

    name: str
    column: str = ""
    """Name of the column; by default the parameter's name."""
    read: Callable[[str], str] = str
    """Converts the parameter's value to the column's."""
    hides: str = ""
    """A value of the column; its rows are listed only if the parameter requests them."""


class ReferenceTarget(NamedTuple):
    """The kind of resource to which a field refers."""

    resource: Resource[Any]
    action: str
    """The action that must be allowed on a resource to name it, such as ``queue:SendMessage``."""


@dataclass(frozen=True, kw_only=True)  # no slots: cached properties
class Resource(Generic[R]):
    """A kind of resource, described by its record. Cheap to import: no table, route or parser."""

    record: type[R]
    service: str
    """The family's name."""
    one: str
    """Name of one resource in bodies: ``queue``."""
    many: str
    words: str = ""
    """Noun for one resource in sentences; by default `one`. The plural ends in the last word of
    `many`."""
    table: str = ""
    """Name of the table; by default `many`."""
    key: str = "name"
    """The field that is unique within account and region, and that CRNs contain. If the field may
    be None, a resource without a key has no CRN, and policies see the resource's id."""
    named: str = ""
    """The field by which people know a resource, if that is not the key."""
    check_key: Callable[[str], None] = check_name
    """Raises `InvalidInput` if a new resource cannot have this key."""
    is_queried_in_all_regions: bool = False
    """True if queries find resources in all regions: renaming the install's region hides none."""
    quota: int = 1000
    """Maximum number of resources of an account, where no operator has set another limit."""
    filters: tuple[Filter, ...] = ()
    refers: Mapping[str, ReferenceTarget] = field(default_factory=dict, hash=False)
    """The kinds of resources to which the reference fields refer, by field."""
    methods: tuple[Verb, ...] = VERBS
    """The standard methods that are generated; a family writes the others by hand."""
    actions: Mapping[Verb, str] = field(default_factory=dict, hash=False)
    """Actions of standard methods whose names are not verb and noun, such as ``{"get":
    "DescribeKeys"}``, and actions of standard methods that a family writes by hand."""
    more_actions: tuple[str, ...] = ()
    """Actions of custom methods, without the service."""
    summaries: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Sentences for actions that no operation documents."""
    methods_with_events: tuple[Verb, ...] = ("create", "update", "delete")
    """The methods whose changes emit an event."""
    sample: Callable[[int], Mapping[str, object]] | None = None
    """Returns the fields of a creation request, different for each number; the shared tests use
    them. By default, there is only a name."""
    warnings: frozenset[str] = frozenset()
    """Codes of faults that may end by themselves."""
    states: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Statuses whose beginning emits an event, with the sentence for the event."""
    state_data: Callable[[R], Mapping[str, object]] = lambda _found: {}
    """Returns further data of the events of `states`, besides the resource, status and faults."""
    keeps_deleted: bool = False
    """True if a deleted resource keeps its row for a while, without its name (``deleted_at``)."""

    @property
    def fields(self) -> Mapping[str, Described]:
        """Map names to fields of the record, without those that every record has."""
        return fields_of(self.record)

    @property
    def label(self) -> str:
        """Return the name of the field by which people identify a resource."""
        return self.named or self.key

    @property
    def noun(self) -> str:
        """Return the singular noun for sentences."""
        return self.words or self.one.replace("_", " ")

    @property
    def nouns(self) -> str:
        """Return the plural noun for sentences."""
        *before, last = self.noun.split(" ")
        return " ".join((*before, f"{last}s" if last.isupper() else self.many.rpartition("_")[2]))

    @property
    def room(self) -> Quota:
        """Return the quota: how many of these resources an account may have in a region."""
        return Quota(self.many, self.quota, self.nouns)

    @property
    def path(self) -> str:
        """Return the path of the list."""
        return f"/v1/{self.many.replace('_', '-')}"

    @property
    def path_of_one(self) -> str:
        """Return the route template of one resource."""
        return f"{self.path}/{{{self.one}_id:str}}"

    def crn(self, region: str, account_id: str, key: str) -> str:
        """Return the CRN of a resource; `key` may be a pattern."""
        return f"crn:{self.service}:{region}:{account_id}:{self.type}/{key}"

    def crn_of(self, found: R) -> str:
        """Return the CRN of a record."""
        return self.crn(found.region, found.account_id, getattr(found, self.key) or found.id)

    @property
    def type(self) -> str:
        """Return the type in the CRNs of this kind."""
        return self.one.replace("_", "-")

    def action(self, verb: Verb) -> str:
        """Return the action of a standard method: ``queue:CreateQueue``, ``queue:ListQueues``."""
        noun = camel(self.many if verb == "list" else self.one)
        return f"{self.service}:{self.actions.get(verb, verb.title() + noun)}"

    @cached_property
    def kind(self) -> ResourceKind:
        """Return the kind and its actions, for the vocabulary of policies."""
        own = {self.action(verb) for verb in (*self.methods, *self.actions)}
        more = {f"{self.service}:{each}" for each in self.more_actions}
        return ResourceKind(
            crn=f"crn:{self.service}:<region>:<account>:{self.type}/<{self.label}>",
            actions=tuple(sorted(own | more)),
            summaries=self.summaries,
        )

    @cached_property
    def event_types_by_action(self) -> Mapping[str, str]:
        """Map actions to the types of their events."""
        return {
            self.action(verb): f"{self.service}.{self.one}.{_PAST[verb]}"
            for verb in self.methods_with_events
        }

    @cached_property
    def state_events(self) -> Mapping[str, str]:
        """Return the types of the events for the beginning of a status, by status."""
        return {each: f"{self.service}.{self.one}.{each}" for each in self.states}

    def tell_state(self, events: Events, tx: Connection, before: R, after: R) -> None:
        """Publish an event if the status has changed to one that has an event."""
        old, new = cast("tuple[Worked, Worked]", (before, after))
        if new.status not in self.states or new.status == old.status:
            return
        key = getattr(after, self.label)
        data = {
            self.one: {"id": new.id, "crn": self.crn_of(after), self.label: key},
            "status": new.status,
            "faults": [{"code": each.code, "message": each.message} for each in new.faults],
            **self.state_data(after),
        }
        events.emit(tx, new.account_id, self.state_events[new.status], [data], new.updated_at)

    def sampled(self, number: int = 0) -> Mapping[str, object]:
        """Return the fields of a sample creation request, different for each number."""
        return self.sample(number) if self.sample else {self.key: f"{self.type}-{number}"}

    def of_use(self, *uses: str) -> Sequence[Described]:
        """Return the fields with one of these uses; see `Field.use`."""
        return [each for each in self.fields.values() if each.use.use in uses]


def camel(name: str) -> str:
    """Convert a name to camel case: ``ip_pool`` to ``IpPool``."""
    return name.title().replace("_", "")
