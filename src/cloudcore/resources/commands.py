"""The commands of a resource, from its description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_origin

from cloudcore.commands.nouns import Cell, Command, Deletion, Noun, Option, OptionKind
from cloudcore.resource_names import with_article
from cloudcore.resources.resource import Described, Resource, bare


def noun_of(
    of: Resource[Any],
    *,
    words: str,
    created: str = "",
    delete_words: str = "",
    question: str = "",
    options: tuple[Option, ...] = (),
    more_updates: tuple[Option, ...] = (),
    cells: tuple[Cell, ...] = (),
    commands: tuple[Command, ...] = (),
) -> Noun:
    """Return the noun for a resource's commands, from its description and the family's additions.

    `options` are for composite fields, `more_updates` only for ``update``, and `cells` the columns
    after the record's own.
    """
    label = of.label
    options_of = {each.name: _option(each, label) for each in of.of_use("given", "fixed")}
    changed = tuple(options_of[each.name] for each in of.of_use("given"))
    cleared = tuple(
        Option(
            each.name, f"have no {_words(each.name)}", "null", f"no-{each.name.replace('_', '-')}"
        )
        for each in of.of_use("given")
        if each.is_optional
    )
    has = {*of.methods, *of.actions}
    return Noun(
        noun=of.many.replace("_", "-"),
        words=words,
        path=of.path,
        one=of.one,
        many=of.many,
        name=label,
        singular=of.noun,
        plural=of.nouns,
        name_filter=label if any(each.name == label for each in of.filters) else "",
        columns=(
            *(
                Cell(each.use.heading, each.name, each.use.form)
                for each in of.fields.values()
                if each.use.heading
            ),
            *cells,
            "created_at",
            "id",
        ),
        filters=tuple(
            Option(
                each.name,
                f"only of this {_words(each.name)}"
                + (f" (all but {each.hides})" if each.hides else ""),
                choices=_literals(of.fields[each.name]) if each.name in of.fields else (),
            )
            for each in of.filters
            if each.name != label
        ),
        create=(*options_of.values(), *options) if "create" in has else None,
        created=created or f"Created {{{label}}}",
        update=(*changed, *options, *cleared, *more_updates) if "update" in has else None,
        delete=Deletion(
            words=delete_words or f"delete {with_article(of.noun)}",
            question=question or f"Delete the {of.noun} {{{label}}}?",
            said=f"Deleted {{{label}}}",
        )
        if "delete" in has
        else None,
        commands=commands,
    )


def _option(each: Described, label: str) -> Option:
    is_key = each.name == label
    return Option(
        each.name,
        each.use.words or _words(each.name),
        _kind(each),
        choices=_literals(each),
        metavar=each.name.upper() if is_key else "",
        is_argument=is_key,
    )


def _kind(each: Described) -> OptionKind:
    kinds: Mapping[Any, OptionKind] = {int: "number", bool: "boolean", dict[str, str]: "tags"}
    if each.use.is_long or each.is_moment:
        return "file" if each.use.is_long else "text"
    if get_origin(each.plain) is list:
        return "numbers" if bare(get_args(each.plain)[0]) is int else "texts"
    return kinds.get(each.plain, "document" if each.is_document else "text")


def _literals(each: Described) -> tuple[str, ...]:
    return tuple(map(str, get_args(each.plain))) if each.is_text else ()


def _words(name: str) -> str:
    return name.replace("_", " ")
