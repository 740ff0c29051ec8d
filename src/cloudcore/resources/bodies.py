"""The bodies of requests and answers of a resource, made from its record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, get_args

from msgspec import NODEFAULT, UNSET, Struct, UnsetType, defstruct

from cloudcore.jobs.faults import Fault
from cloudcore.resource_names import Uuid, with_article
from cloudcore.resources.resource import Described, Record, Resource, camel
from cloudcore.web.answers import RecordAnswers
from cloudcore.web.bodies import FaultRecord, ResourceRef, fault_record
from cloudcore.web.pagination import PageQuery
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, Timestamp, rfc3339

if TYPE_CHECKING:
    from cloudcore.web.context import RequestContext

R = TypeVar("R", bound=Record)
B = TypeVar("B", bound=Struct)
G = TypeVar("G", bound=RequestBody)


@dataclass(frozen=True, kw_only=True)
class Composite(Generic[R, G]):
    """A field of the bodies that represents several fields of the record, or none of them."""

    name: str
    words: str = ""
    """Its description in the OpenAPI document."""
    shown: Any
    """Its type in answers. Without `UnsetType`, all answers have the field."""
    given: type[G] | None = None
    """Its type in requests; None if only answers have it."""
    resolve: Callable[[RequestContext, G | None], Awaitable[Mapping[str, object]]] | None = None
    """Returns the fields of the record for the value in a request. It may read the database, and
    checks permissions."""
    show: Callable[[R], object] | None = None
    """Returns the value in an answer, or `UNSET` to omit the field. If `show` is None, callers pass
    the value to `Bodies.shown`."""
    after: str = ""
    """Name of the field after which this one is placed in bodies; by default, it is the last."""


@dataclass(frozen=True)  # no slots: cached properties
class Bodies(Generic[R]):
    """The types of a resource's bodies, with their names in the OpenAPI document."""

    of: Resource[R]
    composites: Sequence[Composite[R, Any]] = ()
    update_doc: str = (
        "The fields to change; null takes an optional one away, others are replaced whole."
    )
    update_words: Mapping[str, str] = field(default_factory=dict)
    """Descriptions of fields in updates, for the OpenAPI document; by default as in creations."""
    suffix: str = "Record"
    """End of the name of the record's type in answers."""

    @cached_property
    def create(self) -> type[RequestBody]:
        """Return the type of a creation's body, such as ``CreateQueue``."""
        taken = [
            (each.name, _taken(each), each.default) for each in self.of.of_use("given", "fixed")
        ]
        parts = [(each.after, (each.name, each.given | None, None)) for each in self._given]
        fixed = " and ".join(each.name for each in self.of.of_use("fixed"))
        doc = f"A new {self.of.noun}; its {fixed} stays."
        return self._made("Create", _joined(taken, parts), RequestBody, doc)

    @cached_property
    def update(self) -> type[RequestBody]:
        """Return the type of an update's body, such as ``UpdateQueue``."""
        taken = [(each.name, _cleared(each) | UnsetType, UNSET) for each in self.of.of_use("given")]
        parts = [
            (each.after, (each.name, each.given | UnsetType | None, UNSET)) for each in self._given
        ]
        words = {**self._words, **self.update_words}
        return self._made("Update", _joined(taken, parts), RequestBody, self.update_doc, words)

    @cached_property
    def record(self) -> type[ResponseBody]:
        """Return the type of a record in answers, such as ``QueueRecord``."""
        shown: list[Any] = [("id", Uuid), ("crn", str | None if self._may_lack_key else str)]
        shown += [_answered(each) for each in self.of.fields.values() if not each.use.hidden]
        parts: list[tuple[str, Any]] = [
            (each.after, (each.name, each.shown, UNSET))
            if UnsetType in get_args(each.shown)
            else (each.after, (each.name, each.shown if each.given is None else each.shown | None))
            for each in self.composites
        ]
        shown = [*_joined(shown, parts), ("created_at", RFC3339), ("updated_at", RFC3339)]
        noun = with_article(self.of.noun)
        doc = f"{noun[0].upper()}{noun[1:]}."
        return self._made("", shown, ResponseBody, doc, suffix=self.suffix)

    @cached_property
    def answers(self) -> RecordAnswers[ResponseBody]:
        """Return the types of answers: a record under its name, and a page of records."""
        of = self.of
        return RecordAnswers(self.record, of.one, self.shown, many=of.many, noun=of.noun)

    @cached_property
    def query(self) -> type[PageQuery]:
        """Return the type of a list's query, such as ``QueueQuery``: the page, and the filters."""
        fields = self.of.fields
        wanted = [
            (each.name, (fields[each.name].kind if each.name in fields else str) | None, None)
            for each in self.of.filters
        ]
        doc = "The filters of a list."
        return self._made("", wanted, PageQuery, doc, self._filter_words, suffix="Query")

    def shown(self, found: R, **more: object) -> ResponseBody:
        """Return a resource as it appears in answers; `more` has values of composites, by name."""
        values: dict[str, object] = {
            "id": found.id,
            "crn": None if getattr(found, self.of.key) is None else self.of.crn_of(found),
            "created_at": rfc3339(found.created_at),
            "updated_at": rfc3339(found.updated_at),
        }
        for each in self._answered:
            value = getattr(found, each.name)
            if value is not None:
                if each.is_moment:
                    value = rfc3339(value)
                elif each.is_reference:
                    target = self.of.refers[each.name].resource
                    crn = target.crn(found.region, found.account_id, value.name)
                    value = ResourceRef(id=value.id, crn=crn, name=value.name)
                elif each.is_faults:
                    value = self.faults(value)
            elif not each.use.shows_null:
                continue
            values[each.name] = value
        for part in self.composites:
            if part.show is None or part.name in more:
                values[part.name] = more[part.name]
            else:
                values[part.name] = part.show(found)
        return self.record(**values)

    def faults(self, faults: Sequence[Fault]) -> Sequence[FaultRecord]:
        """Return the faults of a record for an answer."""
        warnings = self.of.warnings
        return [
            fault_record(each, "warning" if each.code in warnings else "error") for each in faults
        ]

    @cached_property
    def _may_lack_key(self) -> bool:
        return self.of.key in self.of.fields and self.of.fields[self.of.key].is_optional

    @cached_property
    def _words(self) -> Mapping[str, str]:
        words = {each.name: each.words for each in self.composites if each.words}
        crn = {"crn": f"Null once the {self.of.noun} is deleted."} if self._may_lack_key else {}
        return words | crn

    @cached_property
    def _filter_words(self) -> Mapping[str, str]:
        return {
            each.name: f"Only {self.of.nouns} of this {each.name}."
            + (f" Without one, all but {each.hides} ones." if each.hides else "")
            for each in self.of.filters
        }

    @cached_property
    def _given(self) -> Sequence[Any]:
        return [each for each in self.composites if each.given is not None]

    @cached_property
    def _answered(self) -> Sequence[Described]:
        return [each for each in self.of.fields.values() if not each.use.hidden]

    def _made(
        self,
        verb: str,
        fields: Sequence[Any],
        base: type[B],
        doc: str,
        words: Mapping[str, str] | None = None,
        *,
        suffix: str = "",
    ) -> type[B]:
        """Return a new Struct type, whose fields have the docstrings of the record's fields."""
        fields = [each[:2] if each[2:] == (NODEFAULT,) else each for each in fields]
        made: Any = defstruct(
            f"{verb}{camel(self.of.one)}{suffix}",
            fields,
            bases=(base,),
            namespace={
                "__doc__": doc,
                "described_by": self.of.record,
                "field_words": self._words if words is None else words,
            },
            kw_only=True,
        )
        return cast("type[B]", made)


def _taken(each: Described) -> Any:  # noqa: ANN401 - a type
    if each.is_reference:
        return str | None if each.is_optional else str
    if each.is_moment:
        return Timestamp | None if each.is_optional else Timestamp
    return each.kind


def _cleared(each: Described) -> Any:  # noqa: ANN401 - a type
    """Return a field's type in updates; null is allowed if a creation may omit the field."""
    return _taken(each) if each.default is NODEFAULT else _taken(each) | None


def _answered(each: Described) -> Any:  # noqa: ANN401 - a field
    kind = each.plain
    if each.is_reference:
        kind = ResourceRef
    elif each.is_moment:
        kind = RFC3339
    elif each.is_text and each.name.endswith("_id"):
        kind = Uuid
    elif each.is_faults:
        kind = Sequence[FaultRecord]
    if not each.is_optional:
        return (each.name, kind)
    return (each.name, kind | None) if each.use.shows_null else (each.name, kind | UnsetType, UNSET)


def _joined(fields: Iterable[Any], parts: Iterable[tuple[str, Any]]) -> Sequence[Any]:
    """Insert the fields of composites, each after the field that it names, or at the end."""
    joined = list(fields)
    for after, part in parts:
        names = [each[0] for each in joined]
        joined.insert(names.index(after) + 1 if after else len(joined), part)
    return joined
