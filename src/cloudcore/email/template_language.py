"""The language of email templates: a subset of Jinja2 whose renderings always end soon.

A template can use values, conditions, loops over its variables, arithmetic on numbers, and the
filters and tests below. It cannot call functions or assign variables, and sees only data, no
attributes of objects. The work of a rendering is limited: each iteration, each filter and each
comparison costs as much as the size of its input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any, Final, cast

from jinja2 import (
    StrictUndefined,
    TemplateError,
    TemplateRuntimeError,
    TemplateSyntaxError,
    Undefined,
    filters,
    nodes,
)
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.utils import missing, pass_context
from markupsafe import escape

MAX_WORK: Final = 1_000_000
"""The most work of a rendering, which is roughly the number of characters, iterations and parts."""
MAX_TOKENS: Final = 10_000
MAX_DEPTH: Final = 40
MAX_LOOPS: Final = 8
"""How deep loops may be nested; Python itself allows 20."""
_WORK: Final = " work"
"""The name of the variable that counts the work; no template can spell it."""
_MOST: Final = 1 << 63
_LOOP: Final = frozenset({"index", "index0", "revindex", "revindex0", "first", "last", "length"})
_NODES: Final = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.If,
    nodes.Name,
    nodes.Keyword,
    nodes.Getattr,
    nodes.Getitem,
    nodes.CondExpr,
    nodes.Compare,
    nodes.Operand,
    nodes.And,
    nodes.Or,
    nodes.Not,
    nodes.Neg,
    nodes.Pos,
    nodes.Add,
    nodes.Sub,
    nodes.Mul,
    nodes.Div,
    nodes.FloorDiv,
    nodes.Mod,
)


class TooMuch(TemplateError):
    """A rendering exceeds its limit of work."""


class Missing(TemplateRuntimeError):
    """A template needs a variable, or a field of a variable, that was not passed."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class RenderingWork:
    """Counts the work of one rendering."""

    def __init__(self) -> None:
        self._left = MAX_WORK

    def spend(self, amount: int) -> None:
        """Add work; raise `TooMuch` if the sum exceeds the limit."""
        self._left -= amount
        if self._left < 0:
            raise TooMuch("it takes too long with these variables")


class _Required(StrictUndefined):
    """Stands for a missing variable; using it raises `Missing`."""

    def __init__(
        self,
        hint: str | None = None,
        obj: Any = missing,  # noqa: ANN401 - as Jinja2 has it
        name: str | None = None,
        exc: Any = None,  # noqa: ANN401 - as Jinja2 has it
    ) -> None:
        made: Any = exc or (lambda message: Missing(str(name), message))
        super().__init__(hint, obj, name, made)


class _Language(ImmutableSandboxedEnvironment):
    """Jinja2 restricted to JSON values and to arithmetic on numbers."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%"})

    def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401 - a value
        """Return a field of a JSON object, or of the loop variable."""
        if isinstance(obj, LoopContext) and attribute in _LOOP:
            return getattr(obj, attribute)
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:  # noqa: ANN401 - a value
        """Return a field of a JSON object or an item of a list, or a stand-in for a missing one."""
        if isinstance(obj, dict) and isinstance(argument, str) and argument in obj:
            return obj[argument]
        if isinstance(obj, list) and type(argument) is int and 0 <= argument < len(obj):
            return obj[argument]
        if isinstance(obj, Undefined):
            str(obj)  # raises `Missing`
        return self.undefined(f"there is no {argument}", name=str(argument))

    def call_binop(
        self,
        context: Context,  # noqa: ARG002
        operator: str,
        left: Any,  # noqa: ANN401 - a value
        right: Any,  # noqa: ANN401 - a value
    ) -> Any:  # noqa: ANN401 - a value
        """Calculate with two numbers; raise `SecurityError` for other operands."""
        for each in (left, right):
            if isinstance(each, Undefined):
                str(each)  # raises `Missing`
            if not isinstance(each, int | float):
                raise SecurityError(f"{operator} is for numbers alone")
        found = self.binop_table[operator](left, right)
        if isinstance(found, int) and abs(found) >= _MOST:
            raise TooMuch(f"{operator} gives a number of more than 63 bits")
        return found


def _weight(value: object) -> int:
    """Return the size of a value, which is the cost of processing it."""
    waiting, found = [value], 0
    while waiting:
        each = waiting.pop()
        found += 1
        if isinstance(each, str):
            found += len(each)
        elif isinstance(each, list | tuple):
            waiting.extend(each)
        elif isinstance(each, dict):
            waiting.extend(each)
            waiting.extend(each.values())
    return found


def _counted(of: Callable[..., Any], gets: str = "") -> Callable[..., Any]:
    """Wrap a filter so that each call costs the size of its input.

    `gets` is the first argument that the filter needs: ``environment``, ``eval_ctx`` or none.
    """

    @pass_context
    def counted(context: Context, value: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401
        _work(context).spend(sum(map(_weight, (value, *given, *named.values()))))
        first = {"environment": context.environment, "eval_ctx": context.eval_ctx}
        return of(first[gets], value, *given, **named) if gets else of(value, *given, **named)

    return counted


def _work(context: Context) -> RenderingWork:
    return cast("RenderingWork", context.resolve(_WORK))


@pass_context
def _join(context: Context, value: Any, d: Any = "") -> Any:  # noqa: ANN401 - values
    """Join the items of a list; this costs the size of the result."""
    values = list(value)
    _work(context).spend(_weight(values) + len(values) * _weight(d))
    return filters.do_join(context.eval_ctx, values, d)


@pass_context
def _turns(context: Context, value: Any, size: int) -> list[Any]:  # noqa: ANN401 - values
    """Return the items of a loop; each iteration costs `size` units of work."""
    values = list(value)
    _work(context).spend(1 + len(values) * size)
    return values


@pass_context
def _trim(context: Context, value: Any, chars: Any = None) -> str:  # noqa: ANN401 - values
    """Strip characters at both ends; the cost is the size of `value` times that of `chars`."""
    _work(context).spend(_weight(value) * max(1, _weight(chars)))
    return filters.do_trim(value, chars)


def _int(value: Any, default: int = 0, base: int = 10) -> Any:  # noqa: ANN401 - a value
    """Convert to an integer; raise `TooMuch` for more than 63 bits, which would be slow."""
    found: Any = filters.do_int(value, default, base)
    if isinstance(found, int) and abs(found) >= _MOST:
        raise TooMuch("int gives a number of more than 63 bits")
    return found


def _items(value: Any) -> list[Any]:  # noqa: ANN401 - values
    return list(filters.do_items(value))


def _round(value: Any, precision: int = 0) -> float:  # noqa: ANN401 - a value
    """Round a number; Jinja2's own filter can produce arbitrarily large numbers."""
    return round(float(value), max(0, min(int(precision), 20)))


_FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "abs": _counted(abs),
    "capitalize": _counted(filters.do_capitalize),
    "default": _counted(filters.do_default),
    "dictsort": _counted(filters.do_dictsort),
    "escape": _counted(escape),
    "first": _counted(filters.sync_do_first, "environment"),
    "float": _counted(filters.do_float),
    "int": _counted(_int),
    "items": _counted(_items),
    "join": _join,
    "last": _counted(filters.do_last, "environment"),
    "length": _counted(len),
    "lower": _counted(filters.do_lower),
    "round": _counted(_round),
    "safe": _counted(filters.do_mark_safe),
    "sort": _counted(filters.do_sort, "environment"),
    "title": _counted(filters.do_title),
    "trim": _trim,
    "truncate": _counted(filters.do_truncate, "environment"),
    "unique": _counted(
        lambda environment, value: list(filters.do_unique(environment, value)), "environment"
    ),
    "upper": _counted(filters.do_upper),
    "urlencode": _counted(filters.do_urlencode),
}


def _divisible_by(value: Any, of: Any) -> bool:  # noqa: ANN401 - values
    """Return True if a number is a multiple of `of`.

    Jinja2's own test would apply ``%`` to a text too, which formats the text.
    """
    for each in (value, of):
        if isinstance(each, Undefined):
            str(each)  # raises `Missing`
        if not isinstance(each, int | float):
            raise SecurityError("only a number is odd, even or divisible")
    return bool(value % of == 0)


_OF_JINJA: Final = (
    "boolean",
    "defined",
    "false",
    "mapping",
    "none",
    "number",
    "string",
    "true",
    "undefined",
)
_TESTS: Final[Mapping[str, Any]] = {
    **{name: TESTS[name] for name in _OF_JINJA},
    "divisibleby": _divisible_by,
    "even": lambda value: _divisible_by(value, 2),
    "odd": lambda value: not _divisible_by(value, 2),
}
_SAME: Final = " same"
_TURNS: Final = " turns"


def language(*, is_html: bool) -> _Language:
    """Return the Jinja2 environment; if `is_html`, values are escaped."""
    made = _Language(
        autoescape=is_html,
        undefined=_Required,
        keep_trailing_newline=True,
        optimized=False,
        cache_size=0,
    )
    made.globals = {}
    made.tests = dict(_TESTS)
    made.filters = {
        **_FILTERS,
        _SAME: _counted(lambda value: value),
        _TURNS: _turns,
    }
    return made


def read(of: _Language, source: str) -> nodes.Template:
    """Parse a template.

    Raise `TemplateSyntaxError` if it is malformed, or uses something outside the language.
    """
    line = 1
    for count, (line, _, _) in enumerate(of.lex(source)):
        if count >= MAX_TOKENS:
            raise TemplateSyntaxError("there is too much in it", line)
    try:
        tree = of.parse(source)
    except RecursionError:
        raise TemplateSyntaxError("too much is nested", line) from None
    except ValueError as error:  # a number of thousands of digits
        raise TemplateSyntaxError(str(error), line) from None
    for each, line, depth, loops in _walk(tree):
        if wrong := _wrong(each, depth, loops):
            raise TemplateSyntaxError(wrong, line)
    return tree


def counting(tree: nodes.Template) -> nodes.Template:
    """Make each loop and comparison in the tree count its work; return the tree."""
    for each in list(tree.find_all(nodes.For)):
        size = 1 + sum(1 for _ in each.find_all(nodes.Node))
        each.iter = _filtered(cast("nodes.Expr", each.iter), _TURNS, nodes.Const(size))
    for compared in list(tree.find_all(nodes.Compare)):
        compared.expr = _filtered(compared.expr, _SAME)
        for operand in compared.ops:
            operand.expr = _filtered(operand.expr, _SAME)
    return tree


def counter_variables() -> dict[str, Any]:
    """Return a variable that counts the work of one rendering, to add to a template's variables."""
    return {_WORK: RenderingWork()}


def _filtered(node: nodes.Expr, name: str, *given: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(given), [], None, None, lineno=node.lineno)


def _walk(tree: nodes.Template) -> Iterator[tuple[nodes.Node, int, int, int]]:
    """Yield (node, line, depth, number of enclosing loops) for all nodes."""
    waiting: list[tuple[nodes.Node, int, int, int]] = [(tree, 1, 0, 0)]
    while waiting:
        each, line, depth, loops = waiting.pop()
        line = each.lineno or line
        yield each, line, depth, loops
        inner = loops + isinstance(each, nodes.For)
        waiting.extend((child, line, depth + 1, inner) for child in each.iter_child_nodes())


def _wrong(each: nodes.Node, depth: int, loops: int) -> str:
    """Return why a node is not allowed in the language, or an empty string if it is."""
    if depth > MAX_DEPTH or loops > MAX_LOOPS:
        return "too much is nested"
    if isinstance(each, nodes.Filter | nodes.Test):
        return _wrong_call(each)
    if isinstance(each, nodes.For):
        return "a loop cannot call itself" if each.recursive else ""
    if isinstance(each, nodes.Name) and each.name == "self":
        return "no variable is called self"
    if isinstance(each, nodes.Const):
        return _wrong_constant(each.value)
    is_target = isinstance(each, nodes.Tuple) and each.ctx == "store"
    kind = type(each).__name__.lower()
    is_known = is_target or isinstance(each, _NODES)
    return "" if is_known else f"there is no {kind} in templates of mail"


def _wrong_call(each: nodes.Filter | nodes.Test) -> str:
    """Return why a filter or test is not allowed, or an empty string if it is."""
    if each.dyn_args or each.dyn_kwargs:
        return "* and ** cannot be used"
    if isinstance(each, nodes.Test):
        return "" if each.name in _TESTS else f"there is no test {each.name}"
    is_known = each.node is not None and each.name in _FILTERS
    return "" if is_known else f"there is no filter {each.name}"


def _wrong_constant(value: object) -> str:
    """Return why a constant is not allowed, or an empty string if it is."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return "half of a surrogate pair is no character"
    elif isinstance(value, int) and abs(value) >= _MOST:
        return "a number has at most 63 bits"
    elif isinstance(value, float) and not isfinite(value):  # Jinja2 would write it as a name
        return "a number is too large"
    return ""
