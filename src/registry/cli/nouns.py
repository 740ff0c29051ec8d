"""The commands of nouns that families describe (`cloudcore.command_line.Noun`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final
from urllib.parse import quote

from cloudcore.command_line import Act, Cell, Deletion, Noun, Record
from cloudcore.crn import Crn
from cloudcore.errors import InvalidInput
from cloudcore.uuids import parse_uuid
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.failure import FAILED, Missing, Misuse
from registry.cli.listing import add_quiet, show_list, show_rows
from registry.cli.noun_options import add_options, document_of, values_of
from registry.cli.options import Verbs, add_noun, add_verb
from registry.cli.output import (
    TABLE,
    Column,
    duration_text,
    echo,
    printable,
    size_text,
    text_of,
    time_text,
    write_record,
)

_FORMS: Final = {"time": time_text, "size": size_text, "duration": duration_text}


def add_described(commands: Verbs, noun: Noun) -> None:
    """Add a noun with the commands of its description."""
    verbs = add_noun(commands, noun.noun, noun.words)
    many = noun.many.replace("_", " ")
    one = _one(noun)
    listing = add_verb(verbs, "list", partial(_list, noun), f"list {many}")
    _add_parents(listing, noun)
    add_options(listing, noun.filters)
    add_quiet(listing, "names" if noun.name == "name" else f"{noun.name}s")
    _add_named(add_verb(verbs, "show", partial(_show, noun), f"show {one}"), noun)
    if noun.create is not None:
        create = add_verb(verbs, "create", partial(_create, noun), f"create {one}")
        _add_parents(create, noun)
        add_options(create, noun.create)
    if noun.update is not None:
        update = add_verb(verbs, "update", partial(_update, noun), f"change {one}")
        _add_named(update, noun)
        add_options(update, noun.update)
    if noun.delete is not None:
        deletion = add_verb(verbs, "delete", partial(_delete, noun, noun.delete), noun.delete.words)
        _add_named(deletion, noun)
        add_options(deletion, noun.delete.options)
        add_confirmation(deletion)
    for act in noun.acts:
        parser = add_verb(verbs, act.verb, partial(_act, noun, act), act.words)
        if not act.is_public:
            (_add_parents if act.is_of_all else _add_named)(parser, noun)
        add_options(parser, act.options)
        if act.row_name:
            add_quiet(parser, f"{act.row_name}s")
        if act.question:
            add_confirmation(parser)


class NounInvocation:
    """One run of a command (`cloudcore.command_line.Invocation`)."""

    def __init__(
        self, noun: Noun, parsed: argparse.Namespace, values: dict[str, Any], *, is_of_all: bool
    ) -> None:
        # Late, because a server's command line needs no client.
        from registry.cli.api import open_client  # noqa: PLC0415

        self.client = open_client(parsed)
        self.values = values
        self._noun = noun
        self._parsed = parsed
        self._is_of_all = is_of_all

    @cached_property
    def path(self) -> str:
        """Return the path of the resource that the command names, or that of the list."""
        path = self.list_path
        if self._is_of_all:
            return path
        written = self._written
        if self._noun.is_named_in_path:
            name = written if self._crn is None else self._crn.name
            return f"{path}/{quote(name, safe='')}"
        if (found := parse_uuid(written)) is not None:
            return f"{path}/{found}"
        return f"{path}/{self.record['id']}"

    @property
    def _written(self) -> str:
        """Return what the command line calls the resource."""
        written: str = getattr(self._parsed, self._noun.one)
        if not written:
            raise Misuse(f"which {_words(self._noun)}? an empty text names none")
        return written

    @cached_property
    def _crn(self) -> Crn | None:
        """Return the CRN by which the command line calls the resource, or None if it is a name.

        Raises:
            Misuse: it is one of another kind of resource, or of another account.

        """
        written = self._written
        if not written.startswith("crn:"):
            return None
        from registry.cli.crns import own_crn  # noqa: PLC0415 - late, as the client

        own = own_crn(self.client, _crn_of(self._noun, written))
        if own is None:
            raise Misuse(f"{printable(written)!r} is {_one(self._noun)} of another account")
        return own

    @cached_property
    def list_path(self) -> str:
        """Return the path of the list."""
        if self._noun.parent is None:
            return self._noun.path
        above = NounInvocation(self._noun.parent, self._parsed, {}, is_of_all=False)
        return f"{above.path}/{self._noun.path}"

    @cached_property
    def record(self) -> Record:
        """Return the resource that the command names."""
        noun, written = self._noun, self._written
        if noun.is_named_in_path or parse_uuid(written) is not None:
            found: Record = self.client.call("GET", self.path)[noun.one]
            return found
        crn = self._crn
        name, field, sought = written, noun.name, written
        if crn is not None:
            name, field, sought = crn.name, "crn", str(crn)
        query = {noun.name_filter: name} if noun.name_filter else None
        from registry.cli.transport import RequestRefused  # noqa: PLC0415 - late, as the client

        try:
            for row in self.client.rows(self.list_path, noun.many, query):
                if row[field] == sought:
                    return row
        except RequestRefused as error:
            if error.status != 403:
                raise
            advice = f"the id of the {_words(noun)} is found without a list: give that"
            raise RequestRefused(f"{error}; {advice}", error.status, error.code) from None
        raise Missing(
            f"there is no {_words(noun)} {printable(written)!r}; "
            f"'entrepot {noun.noun} list' shows those there are"
        )

    def say(self, text: str, record: Record | None = None) -> None:
        """Print a line for a person; for a program the record, if there is one."""
        echo(text, self._parsed.output, record)

    @property
    def is_for_program(self) -> bool:
        """Return True if the output is a document, not text for a person."""
        return bool(self._parsed.output != TABLE)

    def warn(self, text: str) -> None:
        """Print a line to the standard error."""
        sys.stdout.flush()
        sys.stderr.write(f"entrepot: {printable(text)}\n")

    def for_each(self, items: Iterable[str], act: Callable[[str], None]) -> bool:
        """Call `act` with each item; tell which were refused, and return False if any was."""
        from registry.cli.transport import RequestRefused  # noqa: PLC0415 - late, as the client

        is_done = True
        for item in items:
            try:
                act(item)
            except RequestRefused as error:
                self.warn(f"{item}: {error}")
                is_done = False
        return is_done

    def show(self, record: Record) -> None:
        """Print a record."""
        write_record(record, self._parsed.output)

    def show_rows(self, rows: Iterable[Record], columns: Sequence[Cell]) -> None:
        """Print rows as they come."""
        show_rows(self._parsed, rows, columns_of(columns))


def columns_of(cells: Iterable[Cell]) -> list[Column]:
    """Return the columns of a table as `registry.cli.output` draws them."""
    return [
        Column(
            each.heading,
            partial(_cell, each),
            is_number=each.form in ("number", "size"),
            is_whole=each.form == "whole",
        )
        for each in cells
    ]


def _cell(cell: Cell, record: Record) -> object:
    value: Any = record
    for name in cell.field.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    shape: Any = _FORMS.get(cell.form)
    return value if shape is None or value is None else shape(value)


def _list(noun: Noun, parsed: argparse.Namespace) -> int:
    run = NounInvocation(noun, parsed, values_of(parsed, noun.filters), is_of_all=True)
    rows = run.client.rows(run.path, noun.many, run.values)
    return show_list(parsed, rows, columns_of(noun.columns), lambda row: str(row[noun.name]))


def _show(noun: Noun, parsed: argparse.Namespace) -> int:
    run = NounInvocation(noun, parsed, {}, is_of_all=False)
    # Also after a search for the name: a list may show less of each.
    run.show(run.client.call("GET", run.path)[noun.one])
    return 0


def _create(noun: Noun, parsed: argparse.Namespace) -> int:
    values = values_of(parsed, noun.create or ())
    run = NounInvocation(noun, parsed, values, is_of_all=True)
    answer = run.client.create(run.path, document_of(values))
    made = answer[noun.one]
    if noun.told_once not in answer:
        run.say(_filled(noun.created, made), made)
        return 0
    secret = answer[noun.told_once]
    run.say(_filled(noun.created, made), {**made, noun.told_once: secret})
    run.say(f"Its {noun.told_once.replace('_', ' ')} is {secret}")
    return 0


def _update(noun: Noun, parsed: argparse.Namespace) -> int:
    values = values_of(parsed, noun.update or ())
    if not values:
        raise Misuse(
            f"say what is to change; 'entrepot {noun.noun} update --help' shows the options"
        )
    run = NounInvocation(noun, parsed, values, is_of_all=False)
    changed = run.client.call("PATCH", run.path, document_of(values))[noun.one]
    run.say(f"Changed {text_of(changed[noun.name])}", changed)
    return 0


def _delete(noun: Noun, deletion: Deletion, parsed: argparse.Namespace) -> int:
    values = values_of(parsed, deletion.options)
    run = NounInvocation(noun, parsed, values, is_of_all=False)
    record = run.record
    confirm(parsed, _filled(deletion.question, record))
    gone = run.client.call("DELETE", run.path, query=values)
    run.say(_filled(deletion.said, record), gone.get(noun.one) if gone else None)
    return 0


def _act(noun: Noun, act: Act, parsed: argparse.Namespace) -> int:
    values = values_of(parsed, act.options)
    if act.is_public:
        from registry.cli.api import send_public  # noqa: PLC0415 - late, as the client

        answer = send_public(parsed, act.method, act.path, document_of(values))
        echo(_filled(act.said, answer), parsed.output, answer)
        return 0
    run = NounInvocation(noun, parsed, values, is_of_all=act.is_of_all)
    if act.question:
        known = _known(run) if noun.is_named_in_path else run.record
        confirm(parsed, _filled(act.question, known))
    if act.run is not None:
        return 0 if act.run(run) else FAILED
    path = f"{run.path}/{act.path}" if act.path else run.path
    if act.row_name:
        rows = run.client.rows(path, act.answer, values)
        return show_list(parsed, rows, columns_of(act.columns), lambda row: str(row[act.row_name]))
    answer = _send(run, act, path)
    found: Any = answer[act.answer] if act.answer else answer
    if act.columns:
        run.show_rows(found, act.columns)
    elif act.said and parsed.output == TABLE:
        run.say(_filled(act.said, _known(run) | (found or {})))
    elif found:
        run.show(found)
    sys.stdout.flush()
    return 0


def _send(run: NounInvocation, act: Act, path: str) -> dict[str, Any]:
    if act.method in ("GET", "DELETE"):
        return run.client.call(act.method, path, query=run.values)
    document = document_of(run.values) if act.options else None
    if act.takes_key:
        return run.client.create(path, document)
    return run.client.call(act.method, path, document)


def _known(run: NounInvocation) -> dict[str, Any]:
    """Return the resource if it was read, else what the command line calls it."""
    if "record" in vars(run):
        return dict(run.record)
    noun = run._noun
    return {noun.name: getattr(run._parsed, noun.one, "")}


def _filled(words: str, record: Record) -> str:
    return words.format_map({name: text_of(value) for name, value in record.items()})


def _add_named(parser: argparse.ArgumentParser, noun: Noun) -> None:
    """Add the arguments that name a resource: those above it first."""
    _add_parents(parser, noun)
    has_id = noun.name != "id" and not noun.is_named_in_path
    known = f"{noun.name}{', id' if has_id else ''} or CRN"
    parser.add_argument(noun.one, metavar=metavar_of(noun), help=known)


def _add_parents(parser: argparse.ArgumentParser, noun: Noun) -> None:
    if noun.parent is not None:
        _add_named(parser, noun.parent)


def metavar_of(noun: Noun) -> str:
    """Return what the help calls the argument that names such a resource."""
    return noun.one.upper().replace("_", "-")


def _crn_of(noun: Noun, written: str) -> Crn:
    """Return the CRN of a resource.

    Raises:
        Misuse: it is no CRN, or one of another kind of resource.

    """
    try:
        crn = Crn.parse(written)
    except InvalidInput:
        crn = None
    if crn is None or crn.type != noun.one:
        raise Misuse(f"{printable(written)!r} is no CRN of {_one(noun)}")
    return crn


def _words(noun: Noun) -> str:
    return noun.one.replace("_", " ")


def _one(noun: Noun) -> str:
    words = _words(noun)
    return f"{'an' if words[0] in 'aeio' else 'a'} {words}"
