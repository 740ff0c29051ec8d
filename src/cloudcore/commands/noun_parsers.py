"""Add the parsers of the nouns that families describe, and carry out the nouns' commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

from cloudcore.command_failures import FAILED, Missing, Misuse, RequestRefused
from cloudcore.commands.invocation import Invocation, one_of
from cloudcore.commands.nouns import Columns, Command, Deletion, Naming, Noun, Record, Sentence
from cloudcore.commands.options import (
    add_options,
    document_of,
    flags_of,
    is_given,
    request_of,
)
from cloudcore.commands.parser import Commands, Verbs, add_noun, add_verb
from cloudcore.commands.prompts import add_confirmation, confirm
from cloudcore.commands.records import add_full_digests, add_quiet, cells_of, shows_digests

_Answer = dict[str, Any]
_T = TypeVar("_T")


def _add_noun(commands: Verbs, noun: Noun) -> Verbs:
    verbs = add_noun(commands, noun.noun, noun.words)
    one = one_of(noun)
    own = {each.verb for each in noun.commands}
    if noun.columns and "list" not in own:
        words = f"list {noun.plural or noun.many.replace('_', ' ')}"
        listing = add_verb(verbs, "list", partial(_list, noun), words)
        _add_parents(listing, noun)
        add_options(listing, noun.filters)
        _add_row_options(listing, noun.columns, noun.quiet or noun.name)
    if noun.has_show and "show" not in own:
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
    for act in noun.commands:
        _add_act(verbs, noun, act)
    return verbs


def _add_act(verbs: Verbs, noun: Noun, act: Command) -> None:
    parser = add_verb(verbs, act.verb, partial(_act, noun, act), act.words)
    if not act.path.startswith("/"):
        (_add_parents if act.is_on_list else _add_named)(parser, noun)
    add_options(parser, act.options)
    _add_row_options(parser, act.columns, act.row_name, has_digests=act.has_digests)
    if act.secret is not None:
        add_quiet(parser, act.secret.words)
    if act.question or act.asks:
        add_confirmation(parser)


def _add_row_options(
    parser: argparse.ArgumentParser,
    columns: Columns,
    name: Naming,
    *,
    has_digests: bool = False,
) -> None:
    """Add ``--quiet`` if rows have a `name`, and ``--full-digests`` if they have digests."""
    if name:
        last = "" if callable(name) else name.rpartition(".")[2].replace("_", " ")
        add_quiet(parser, f"{last}s" if last else "how others name each")
    if has_digests or any(map(shows_digests, cells_of(columns))):
        add_full_digests(parser)


def _list(noun: Noun, parsed: argparse.Namespace) -> None:
    run = Invocation(noun, parsed, noun.filters, verb="list", is_on_list=True)
    rows = run.client.rows(run.path, noun.many, run.values)
    run.show_rows(rows, noun.columns, noun.quiet or noun.name)


def _show(noun: Noun, parsed: argparse.Namespace) -> None:
    run = Invocation(noun, parsed, verb="show")
    # Read even if a search by name has found a row: a list may show fewer fields.
    path = run.path
    record = _with_advice(noun, run, lambda: run.client.call("GET", path))[noun.one]
    if noun.shown is None or run.is_for_program:
        run.show(record)
    else:
        noun.shown(run, record)


def _create(noun: Noun, parsed: argparse.Namespace) -> None:
    options = noun.create or ()
    run = Invocation(noun, parsed, options, verb="create", is_on_list=True)
    path = run.path
    document, query = request_of(run.values, options)
    answer = _with_advice(noun, run, lambda: run.client.create(path, document, query))
    made = {**answer.pop(noun.one), **answer}
    words = _sentence_of(noun.created, run, made)
    if noun.secret is not None:
        run.say_secret(words, made, noun.secret)
    else:
        run.say(words, made)


def _update(noun: Noun, parsed: argparse.Namespace) -> None:
    options = noun.update or ()
    if not any(is_given(parsed, each) for each in options if not each.is_query):
        *flags, last = flags_of(options)
        raise Misuse(f"say what is to change: {', '.join(flags)}{' or ' if flags else ''}{last}")
    run = Invocation(noun, parsed, options, verb="update")
    path = run.path
    document, query = request_of(run.values, options)
    changed = run.client.call("PATCH", path, document, query)[noun.one]
    if noun.is_single and not noun.updated:
        run.show(changed)
        return
    words = noun.updated or f"Changed {{{noun.name}}}"
    run.say(_sentence_of(words, run, changed), changed)


def _delete(noun: Noun, deletion: Deletion, parsed: argparse.Namespace) -> None:
    run = Invocation(noun, parsed, deletion.options, verb="delete")
    record = _known(run) if noun.is_single else run.record
    confirm(parsed, _sentence_of(deletion.question, run, record))
    path = run.path
    gone = _with_advice(noun, run, lambda: run.client.call("DELETE", path, query=run.values))
    left = gone.get(noun.one) if gone else None
    run.say(_sentence_of(deletion.said, run, left or record), left)


def _act(noun: Noun, act: Command, parsed: argparse.Namespace) -> int:
    run = Invocation(
        noun, parsed, act.options, verb=act.verb, is_on_list=act.is_on_list, caller=act.caller
    )
    if act.question:
        is_read = not (act.is_on_list or noun.is_named_in_path)
        known = run.record if is_read else _known(run)
        confirm(parsed, run.text(act.question, known))
    return _with_advice(noun, run, lambda: _carry_out(act, run, parsed))


def _carry_out(act: Command, run: Invocation, parsed: argparse.Namespace) -> int:
    """Send the request of a command, or call its function; return the exit status."""
    if act.run is not None:
        return FAILED if act.run(run) is False else 0
    path = act.path if act.path.startswith("/") else "/".join(filter(None, (run.path, act.path)))
    if act.row_name:
        rows = run.client.rows(path, act.answer, run.values)
        run.show_rows(rows, act.columns, act.row_name)
        return 0
    if act.is_public:
        sent = document_of(run.values) or None
        answer = parsed.product.send_public(parsed, act.method, act.path, sent)
    else:
        answer = _send(run, act, path)
    found: Any = answer[act.answer] if act.answer else answer
    if act.columns:
        run.show_rows(found, act.columns)
    elif act.said:
        run.say(run.text(act.said, _known(run) | (found or {})), found or None)
    elif found:
        run.show(found)
    sys.stdout.flush()
    return 0


def _send(run: Invocation, act: Command, path: str) -> _Answer:
    if act.method in ("GET", "DELETE"):
        return run.client.call(act.method, path, query=run.values)
    document, query = request_of(run.values, act.options)
    sent = {**document, **act.document} if act.options or act.document else None
    if act.takes_key:
        return run.client.create(path, sent, query)
    return run.client.call(act.method, path, sent, query)


def _with_advice(noun: Noun, run: Invocation, send: Callable[[], _T]) -> _T:
    """Return the result of `send`; add the noun's advice to a CONFLICT error.

    Raise `Missing` with the noun's explanation for a 404. Without advice or explanation for the
    verb, the error is unchanged.
    """
    try:
        return send()
    except RequestRefused as error:
        advice, missing = noun.conflicts.get(run.verb), noun.missing.get(run.verb)
        if missing is not None and error.status == HTTPStatus.NOT_FOUND:
            if noun.is_single and noun.parent is not None:
                _ = run.above.record  # raises `Missing` if the parent is missing
            raise Missing(_sentence_of(missing, run, run.names)) from None
        if advice is not None and error.code == "CONFLICT":
            raise error.with_advice(run.text(advice, run.names)) from None
        raise


def _known(run: Invocation) -> dict[str, Any]:
    """Return the resource if it was read, or else its names on the command line."""
    return dict(run.record) if "record" in vars(run) else run.names


def _sentence_of(words: Sentence, run: Invocation, record: Record) -> str:
    return words(run, record) if callable(words) else run.text(words, record)


def _add_named(parser: argparse.ArgumentParser, noun: Noun, *, is_needed: bool = False) -> None:
    """Add the arguments that name a resource, those of its parents first."""
    if noun.locate is None:
        _add_parents(parser, noun)
    if noun.is_single:
        return
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
    """Return the placeholder in the help for the argument that names a resource of this kind."""
    return noun.metavar or noun.one.upper().replace("_", "-")


def command_names(module: Any) -> Collection[str]:  # noqa: ANN401
    """Return the names of a module's ``COMMANDS``; empty for a module with ``add_parsers``."""
    commands = getattr(module, "COMMANDS", ())
    return [each.noun if isinstance(each, Noun) else each.verb for each in commands]


class CommandTable(Commands):  # type: ignore[type-arg] # argparse has no type parameters at run time
    """The top-level commands."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - of argparse
        super().__init__(*args, **kwargs)
        self.described: list[Noun] = []
        """The nouns added by `add_described`."""

    def add_module(self, module: Any) -> None:  # noqa: ANN401 - of either kind
        """Add a module's commands, from its ``COMMANDS`` or by its ``add_parsers``."""
        if hasattr(module, "add_parsers"):
            module.add_parsers(self)
            return
        for each in module.COMMANDS:
            if isinstance(each, Noun):
                self.add_described(each)
            else:
                _add_act(self, Noun(noun="", words=""), each._replace(is_on_list=True))

    def add_described(self, noun: Noun) -> Verbs:
        """Add a noun with its described commands; return its subparsers, to add others."""
        self.described.append(noun)
        return _add_noun(self, noun)
