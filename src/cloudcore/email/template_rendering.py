"""The rendering of email templates: a pure function of a template and its variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from jinja2 import TemplateError, TemplateSyntaxError, meta
from msgspec import Struct

from cloudcore.email import template_language as language
from cloudcore.email.template import Template
from cloudcore.errors import InvalidInput

MAX_SUBJECT: Final = 998
"""Most characters of a rendered subject: those of a line (RFC 5322 §2.1.1)."""
MAX_RENDERED: Final = 1 << 20
"""Most characters of a rendered body."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_FAILURES: Final = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What filters and operators raise for values that they are not for."""
_HTML: Final = language.language(is_html=True)
_TEXT: Final = language.language(is_html=False)


class Rendered(Struct, frozen=True):
    """What a message says."""

    subject: str
    html: str | None
    text: str | None


def variables_of(template: Template) -> list[str]:
    """Return the names of the variables that a template uses, sorted.

    Raises:
        InvalidInput: the syntax of a part is wrong; the message has the line and the reason.

    """
    found: set[str] = set()
    for field in ("subject", "html", "text"):
        source = getattr(template, field)
        if source is None:
            continue
        of = _HTML if field == "html" else _TEXT
        try:
            tree = language.read(of, source)
            found |= meta.find_undeclared_variables(tree)
            of.compile(tree)
        except TemplateSyntaxError as error:
            raise _malformed(field, error.lineno, error.message or "") from None
        except (SyntaxError, RecursionError) as error:  # of the program made of it
            raise _malformed(field, 1, str(error)) from None
    return sorted(found)


def render(template: Template, variables: Mapping[str, Any]) -> Rendered:
    """Return what a template says with these variables, which are values of JSON.

    Raises:
        InvalidInput: a variable is missing (`params` says which), a value is none that it can use,
            the subject has a line break, or it would be too long or take too long.

    """
    subject = _rendered("subject", template.subject, variables, MAX_SUBJECT)
    if _CONTROL.search(subject):
        words = "subject: with these variables it has a line break or another control character"
        raise InvalidInput(words, field="subject", reason="malformed")
    if not subject.strip():
        words = "subject: with these variables it is empty"
        raise InvalidInput(words, field="subject", reason="out_of_range")
    bodies = {
        field: None if source is None else _rendered(field, source, variables, MAX_RENDERED)
        for field, source in (("html", template.html), ("text", template.text))
    }
    return Rendered(subject, bodies["html"], bodies["text"])


def _rendered(field: str, source: str, variables: Mapping[str, Any], most: int) -> str:
    of = _HTML if field == "html" else _TEXT
    pieces, left = [], most
    try:
        made = of.from_string(language.counting(language.read(of, source)))
        for piece in made.generate({**variables, **language.start()}):
            left -= len(piece)
            if left < 0:
                words = f"{field}: with these variables it has more than {most} characters"
                raise InvalidInput(words, field=field, reason="out_of_range")
            pieces.append(piece)
    except language.Missing as error:
        name = error.name
        words = f"variables: the {field} needs {name}, which is not there"
        raise InvalidInput(words, field="variables", reason="missing", variable=name) from None
    except language.TooMuch as error:
        raise InvalidInput(f"{field}: {error}", field=field, reason="out_of_range") from None
    except _FAILURES as error:
        words = f"{field}: with these variables it fails: {error}"
        raise InvalidInput(words, field=field, reason="malformed") from None
    return "".join(pieces)


def _malformed(field: str, line: int, words: str) -> InvalidInput:
    return InvalidInput(
        f"{field}: line {line}: {words}", field=field, reason="malformed", line=line
    )
