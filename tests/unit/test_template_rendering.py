"""Rendering of email templates: what they say, what is missing, and that none takes long."""

from __future__ import annotations

from typing import Any

import pytest

from cloudcore.email.resources import Template
from cloudcore.email.templates import MAX_RENDERED, Rendered, render, variables_of
from cloudcore.errors import InvalidInput


def template(subject: str = "Hello", html: str | None = None, text: str | None = "x") -> Template:
    base: dict[str, Any] = {"id": "", "account_id": "", "region": "", "created_at": 0}
    return Template(**base, updated_at=0, name="a", subject=subject, html=html, text=text)


def rendered(text: str, **variables: object) -> str:
    found = render(template(text=text), variables).text
    assert found is not None
    return found


def refusal(of: Template, **variables: object) -> dict[str, Any]:
    with pytest.raises(InvalidInput) as refused:
        render(of, variables)
    return dict(refused.value.params)


def syntax_refusal(source: str) -> dict[str, Any]:
    with pytest.raises(InvalidInput) as refused:
        variables_of(template(text=source))
    return dict(refused.value.params)


def test_values_are_escaped_in_html_alone() -> None:
    hello = "Hi {{ name }}"
    found = render(template(hello, hello, hello), {"name": "<b>Ada & Bob</b>"})
    plain = "Hi <b>Ada & Bob</b>"
    assert found == Rendered(plain, "Hi &lt;b&gt;Ada &amp; Bob&lt;/b&gt;", plain)


def test_conditions_loops_filters_and_arithmetic() -> None:
    source = (
        "{% for each in order.items if each.count > 0 %}{{ loop.index }}. {{ each.name|upper }}:"
        " {{ (each.count * each.price)|round(2) }}{{ '' if loop.last else ', ' }}{% endfor %}"
        "{% for key, value in order.notes|dictsort %} {{ key }}={{ value|join('+') }}{% endfor %}"
        "{% if note is defined %}{{ note }}{% endif %}{{ greeting|default(' Bye') }}"
    )
    assert rendered("{{ a[1] }}{{ a[0].b }}", a=[{"b": 2}, 1]) == "12"
    items = [{"name": "tea", "count": 2, "price": 1.25}, {"name": "no", "count": 0, "price": 1}]
    order = {"items": items, "notes": {"b": ["x", "y"], "a": []}}
    assert rendered(source, order=order) == "1. TEA: 2.5 a= b=x+y Bye"


def test_variables_are_found_in_all_sources() -> None:
    of = template("{{ b }}", "{% for x in c %}{{ x.d }}{{ loop.index }}{% endfor %}", "{{ a.z }}")
    assert variables_of(of) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("source", "given", "missing"),
    [
        ("{{ name }}", {}, "name"),
        ("{{ order.id }}", {"order": {}}, "id"),
        ("{{ order.id }}", {}, "order"),
        ("{% for x in names %}{% endfor %}", {}, "names"),
        ("{{ names|join }}", {}, "names"),
        ("{{ total + 1 }}", {}, "total"),
        ("{{ total is odd }}", {}, "total"),
        ("{% if a == 1 %}{% endif %}", {}, "a"),
    ],
)
def test_a_missing_variable_is_named(source: str, given: dict[str, object], missing: str) -> None:
    params = refusal(template(text=source), **given)
    assert params == {"field": "variables", "reason": "missing", "variable": missing}


@pytest.mark.parametrize(
    "control", ["\r\nBcc: eve@example.com", "\n", "\r", "\0", "\u2028", "\x85"]
)
def test_a_line_break_in_a_subject_is_refused(control: str) -> None:
    params = refusal(template("Hi {{ name }}"), name=f"Ada{control}")
    assert params == {"field": "subject", "reason": "malformed"}


def test_a_subject_is_not_empty_and_not_longer_than_a_line() -> None:
    assert refusal(template("{{ name }}"), name=" ")["field"] == "subject"
    assert refusal(template("{{ name }}"), name="a" * 999)["reason"] == "out_of_range"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("a\n{{ name", 2),
        ("\n\n{% if a %}", 3),
        ("{% nothing %}", 1),
        ("{{ 1 if 'x'[0] else 2 }}", 1),
        ("{{ 'x'.y and 1 }}", 1),
        ("{{ a|nofilter }}", 1),
        ("{{ a is notest }}", 1),
        ("\n{{ range(1000000000) }}", 2),
        ("{{ name.upper() }}", 1),
        ("{% set a = 1 %}", 1),
        ("{% macro a() %}{% endmacro %}", 1),
        ("{% include 'x' %}", 1),
        ("{% extends 'x' %}", 1),
        ("{% import 'x' as y %}", 1),
        ("{% block a %}{% endblock %}", 1),
        ("{% filter upper %}x{% endfilter %}", 1),
        ("{% autoescape false %}{% endautoescape %}", 1),
        ("{% for a in b recursive %}{% endfor %}", 1),
        ("{{ a ~ b }}", 1),
        ("{{ 2 ** 9 }}", 1),
        ("{{ [a, a] }}", 1),
        ("{{ a, b }}", 1),
        ("{{ {1: a} }}", 1),
        ("{{ a[1:2] }}", 1),
        ("{{ a|join(*b) }}", 1),
        ("{{ self }}", 1),
        ("{{ '\\ud800' }}", 1),
        ("{{ " + "9" * 5000 + " }}", 1),
        ("{{ a|round(1e999) }}", 1),
        ("{{ 9223372036854775808 }}", 1),
        ("{{ " + "(" * 3000 + " }}", 1),
        ("{{ a" + ".a" * 60 + " }}", 1),
        ("{% if a %}" * 2000, 1),
        ("{% for a in b %}" * 25 + "{% endfor %}" * 25, 1),
        ("{{a}}" * 4000, 1),
    ],
)
def test_what_the_language_has_not_is_refused_with_its_line(source: str, line: int) -> None:
    params = syntax_refusal(source)
    assert (params["field"], params["reason"], params["line"]) == ("text", "malformed", line)


@pytest.mark.parametrize("name", ["__class__", "upper", "__init__", "items", "_fail"])
def test_attributes_of_objects_are_not_there(name: str) -> None:
    values: list[object] = ["text", 1, [], {}, None]
    for value in values:
        assert refusal(template(text=f"{{{{ a.{name} }}}}"), a=value)["variable"] == name
        assert refusal(template(text=f"{{{{ a['{name}'] }}}}"), a=value)["variable"] == name


@pytest.mark.parametrize("name", ["_iterable", "cycle", "changed", "__class__"])
def test_a_loop_tells_no_more_than_where_it_is(name: str) -> None:
    source = f"{{% for a in b %}}{{{{ loop.{name} }}}}{{% endfor %}}"
    assert refusal(template(text=source), b=[1])["variable"] == name


MANY = list(range(1000))


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in many %}" * 3 + "{% endfor %}" * 3,
        "{% for a in many %}{% for b in many %}{{ '' }}{% endfor %}{% endfor %}",
        "{% for a in many %}{% if long|upper == 'a' %}{% endif %}{% endfor %}",
        "{% for a in many %}{% if long == other %}{% endif %}{% endfor %}",
        "{% for a in many %}{% if long in other %}{% endif %}{% endfor %}",
        "{{ many|join(long) }}",
        "{{ long|join(long) }}",
        "{{ long|trim(other) }}",
        "{{ long|int(0, 16) is divisibleby(other|int(0, 16)) }}",
        "{{ 9223372036854775807 * 9223372036854775807 }}",
        "{% for a in many %}{{ long }}{% endfor %}",
    ],
)
def test_what_would_take_long_is_refused(source: str) -> None:
    long = "a" * 50_000
    params = refusal(template(text=source), many=MANY, long=long, other="a" * 49_999 + "b")
    assert params == {"field": "text", "reason": "out_of_range"}


def test_rounding_makes_no_number_of_any_size() -> None:
    assert rendered("{{ a|round(-1000000000) }} {{ a|round(1000000000) }}", a=5) == "5.0 5.0"


def test_filters_of_texts_and_numbers() -> None:
    assert rendered("{{ ' a '|trim }}{{ '--b-'|trim('-') }}") == "ab"
    assert rendered("{{ '12'|int + 1 }} {{ 'x'|int(7) }} {{ 'ff'|int(0, 16) }}") == "13 7 255"


def test_a_body_has_at_most_a_mebibyte() -> None:
    source = "{{ a }}" * 3
    assert len(rendered(source, a="b" * (MAX_RENDERED // 3))) <= MAX_RENDERED
    assert refusal(template(text=source), a="b" * (MAX_RENDERED // 3 + 1))["field"] == "text"


@pytest.mark.parametrize(
    "source",
    [
        *("{{ a + 1 }}", "{{ 'x' * 9 }}", "{{ 1 / 0 }}", "{{ a < 1 }}"),
        *("{{ '%9000000000d' % 1 }}", "{{ '%9000000000d' is odd }}"),
        *("{{ '%9000000000d' is even }}", "{{ '%9000000000d' is divisibleby 1 }}"),
        *("{{ 1 is divisibleby 0 }}", "{{ a|dictsort }}", "{{ a|items }}", "{{ a|abs }}"),
        *(
            "{{ a|truncate(9, nothing=1) }}",
            "{{ a|truncate(2) }}",
            "{{ a|truncate(9, leeway=-1) }}",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_refused(source: str) -> None:
    assert refusal(template(text=source), a="b") == {"field": "text", "reason": "malformed"}


def test_tests_of_numbers() -> None:
    source = "{{ 3 is odd }} {{ 3 is even }} {{ 4 is even }} {{ 9 is divisibleby 3 }}"
    assert rendered(source) == "True False True True"


def test_variables_cannot_replace_what_counts() -> None:
    assert rendered("{{ a }}", **{"a": 1, " work": None, "loop": 2}) == "1"
