"""The commands of nouns that families describe (`cloudcore.command_line.Noun`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from cloudcore.command_failures import RequestRefused
from cloudcore.command_line import Act, Deletion, Noun, Record, Told
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.failure import FAILED, Misuse
from registry.cli.invocation import NounInvocation, columns_of, field_of, one_of
from registry.cli.listing import add_quiet, show_list
from registry.cli.noun_options import (
    add_options,
    document_of,
    flags_of,
    is_given,
    query_of,
    sent_of,
)
from registry.cli.options import Verbs, add_noun, add_verb
from registry.cli.output import echo, shaped, text_of

_Answer = dict[str, Any]


def add_described(commands: Verbs, noun: Noun) -> None:
    """Add a noun with the commands of its description."""
    verbs = add_noun(commands, noun.noun, noun.words)
    many = noun.many.replace("_", " ")
    one = one_of(noun)
    listing = add_verb(verbs, "list", partial(_list, noun), f"list {many}")
    _add_parents(listing, noun)
    add_options(listing, noun.filters)
    add_quiet(listing, f"{_last(noun.quiet or noun.name)}s")
    if noun.has_show:
        show = add_verb(verbs, "show", partial(_show, noun), f"show {one}")
        _add_named(show, noun)
    if noun.create is not None:
        create = add_verb(verbs, "create", partial(_create, noun), f"create {one}")
        _add_parents(create, noun)
        add_options(create, noun.create)
        if noun.secret is not None:
            add_quiet(create, noun.secret.words)
    if noun.update is not None:
        update = add_verb(verbs, "update", partial(_update, noun), f"change {one}")
        _add_named(update, noun)
        add_options(update, noun.update)
    if noun.delete is not None:
        deletion = add_verb(verbs, "delete", partial(_delete, noun, noun.delete), noun.delete.words)
        _add_named(deletion, noun, is_needed=True)
        add_options(deletion, noun.delete.options)
        add_confirmation(deletion)
    for act in noun.acts:
        add_act(verbs, noun, act)


def add_act(verbs: Verbs, noun: Noun, act: Act) -> None:
    """Add a command of a noun."""
    parser = add_verb(verbs, act.verb, partial(_act, noun, act), act.words)
    if not act.path.startswith("/"):
        (_add_parents if act.is_of_all else _add_named)(parser, noun)
    add_options(parser, act.options)
    if act.row_name:
        add_quiet(parser, f"{_last(act.row_name)}s")
    elif act.secret is not None:
        add_quiet(parser, act.secret.words)
    if act.question or act.asks:
        add_confirmation(parser)


def add_command(commands: Verbs, act: Act) -> None:
    """Add a command that is of no noun."""
    nothing = Noun(noun="", words="", path="", one="", many="", columns=())
    add_act(commands, nothing, act._replace(is_of_all=True))


def _list(noun: Noun, parsed: argparse.Namespace) -> int:
    run = NounInvocation(noun, parsed, noun.filters, verb="list", is_of_all=True)
    rows = run.client.rows(run.path, noun.many, run.values)
    name = noun.quiet or noun.name
    return show_list(parsed, rows, columns_of(noun.columns), lambda row: str(field_of(row, name)))


def _show(noun: Noun, parsed: argparse.Namespace) -> int:
    run = NounInvocation(noun, parsed, verb="show")
    # Also after a search for the name: a list may show less of each.
    record = run.client.call("GET", run.path)[noun.one]
    if noun.shown is None or run.is_for_program:
        run.show(record)
    else:
        noun.shown(run, record)
    return 0


def _create(noun: Noun, parsed: argparse.Namespace) -> int:
    options = noun.create or ()
    run = NounInvocation(noun, parsed, options, verb="create", is_of_all=True)
    path = run.path
    document, query = document_of(sent_of(run.values, options)), query_of(run.values, options)
    answer = _advised(noun, run, lambda: run.client.create(path, document, query))
    made = answer[noun.one]
    words = _told(noun.created, run, made)
    if noun.secret is not None:
        run.say_secret(words, made, noun.secret)
        return 0
    if noun.told_once not in answer:
        run.say(words, made)
        return 0
    secret = answer[noun.told_once]
    run.say(words, {**made, noun.told_once: secret})
    run.say(f"Its {noun.told_once.replace('_', ' ')} is {secret}")
    return 0


def _update(noun: Noun, parsed: argparse.Namespace) -> int:
    options = noun.update or ()
    if not any(is_given(parsed, each) for each in options if not each.is_query):
        *flags, last = flags_of(options)
        raise Misuse(f"say what is to change: {', '.join(flags)}{' or ' if flags else ''}{last}")
    run = NounInvocation(noun, parsed, options, verb="update")
    path = run.path
    document, query = document_of(sent_of(run.values, options)), query_of(run.values, options)
    changed = run.client.call("PATCH", path, document, query)[noun.one]
    words = noun.updated or f"Changed {{{noun.name}}}"
    run.say(_told(words, run, changed), changed)
    return 0


def _delete(noun: Noun, deletion: Deletion, parsed: argparse.Namespace) -> int:
    run = NounInvocation(noun, parsed, deletion.options, verb="delete")
    record = run.record
    confirm(parsed, _told(deletion.question, run, record))
    path = run.path
    gone = _advised(noun, run, lambda: run.client.call("DELETE", path, query=run.values))
    run.say(_told(deletion.said, run, record), gone.get(noun.one) if gone else None)
    return 0


def _act(noun: Noun, act: Act, parsed: argparse.Namespace) -> int:
    run = NounInvocation(
        noun, parsed, act.options, verb=act.verb, is_of_all=act.is_of_all, caller=act.caller
    )
    if act.is_public:
        from registry.cli.api import send_public  # noqa: PLC0415 - a server needs no client

        answer = send_public(parsed, act.method, act.path, document_of(run.values))
        echo(_filled(act.said, answer), parsed.output, answer)
        return 0
    if act.question:
        is_read = not (act.is_of_all or noun.is_named_in_path)
        known = run.record if is_read else _known(run)
        confirm(parsed, _filled(act.question, known))
    if act.run is not None:
        return 0 if act.run(run) else FAILED
    path = act.path if act.path.startswith("/") else "/".join(filter(None, (run.path, act.path)))
    if act.row_name:
        rows = run.client.rows(path, act.answer, run.values)
        run.show_rows(rows, act.columns, act.row_name)
        return 0
    answer = _send(run, act, path)
    found: Any = answer[act.answer] if act.answer else answer
    if act.columns:
        run.show_rows(found, act.columns)
    elif act.said:
        run.say(_filled(act.said, _known(run) | (found or {})), found or None)
    elif found:
        run.show(found)
    sys.stdout.flush()
    return 0


def _send(run: NounInvocation, act: Act, path: str) -> _Answer:
    if act.method in ("GET", "DELETE"):
        return run.client.call(act.method, path, query=run.values)
    document = document_of(sent_of(run.values, act.options)) | dict(act.document)
    query = query_of(run.values, act.options)
    sent = document if act.options or act.document else None
    if act.takes_key:
        return run.client.create(path, sent, query)
    return run.client.call(act.method, path, sent, query)


def _advised(noun: Noun, run: NounInvocation, send: Callable[[], _Answer]) -> _Answer:
    """Return what is answered; after a CONFLICT tell what may be done."""
    try:
        return send()
    except RequestRefused as error:
        advice = noun.conflicts.get(run.verb)
        if advice is None or error.code != "CONFLICT":
            raise
        raise error.with_advice(_filled(advice, run.names)) from None


def _known(run: NounInvocation) -> dict[str, Any]:
    """Return the resource if it was read, else what the command line calls it."""
    return dict(run.record) if "record" in vars(run) else run.names


def _told(words: Told, run: NounInvocation, record: Record) -> str:
    """Return what is told of a record."""
    return words(run, record) if callable(words) else _filled(words, record)


def _filled(words: str, record: Record) -> str:
    return words.format_map({name: text_of(shaped(name, record[name])) for name in record})


def _add_named(parser: argparse.ArgumentParser, noun: Noun, *, is_needed: bool = False) -> None:
    """Add the arguments that name a resource: those above it first."""
    _add_parents(parser, noun)
    has_id = noun.name != "id" and not noun.is_named_in_path
    known = noun.known_by or f"{noun.name}{', id' if has_id else ''} or CRN"
    if noun.find is None or is_needed:
        parser.add_argument(noun.one, metavar=metavar_of(noun), help=known)
    else:
        parser.add_argument(
            noun.one, metavar=metavar_of(noun), nargs="?", default="", help=f"{known} (the obvious)"
        )


def _add_parents(parser: argparse.ArgumentParser, noun: Noun) -> None:
    if noun.parent is None:
        return
    if noun.is_below_option:
        flag = f"--{noun.parent.one.replace('_', '-')}"
        parser.add_argument(
            flag, dest=noun.parent.one, metavar="NAME", default="", help=noun.parent.known_by
        )
    else:
        _add_named(parser, noun.parent)


def metavar_of(noun: Noun) -> str:
    """Return what the help calls the argument that names such a resource."""
    return noun.metavar or noun.one.upper().replace("_", "-")


def _last(field: str) -> str:
    return field.rpartition(".")[2].replace("_", " ")
