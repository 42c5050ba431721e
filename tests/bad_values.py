"""Values for every key of the configuration, most of them bad, drawn from the keys' own types.

A key that is added to `study/config_types.py` is drawn like the others.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import yaml
from hypothesis import strategies as st
from tfscaling.study import config_validation
from tfscaling.study.config_types import Config

Step = str | int
#: What a file says of a shell, a path, a page, a spreadsheet, a format, YAML.
TEXTS = tuple(
    text
    for row in (
        ("", " ", "\n", "a\nb", "a\tb", "\x00", "a\x7fb", "\x85", "\u2028", "\ufeff", "a b", "a,b"),
        ("..", "../../etc/passwd", "/etc/passwd", "a/b", ".", ".hidden", "~", "$HOME", "*"),
        ("$(touch hacked)", "`touch hacked`", "; touch hacked", "a' ; touch hacked; '", '"', "\\"),
        ("&& touch hacked", "| touch hacked", "> hacked", "-rf", "--nodes=9", "--", "--wrap=x"),
        ("=cmd|' /C calc'!A1", "@SUM(A1)", "+1", "<script>alert(1)</script>", "</style>", "&lt;"),
        ("{x}", "{epochs", "{wildcards.nodes}", "{{", "%s", "%(x)s", "(", "(.*", "(.+)", "["),
        ("null", "None", "yes", "on", "0", "064", "1e3", "1.0e+3", "nan", ".inf", "1:30"),
        ("é", "日本", "😀", "\u202eabc", "ﬁ", "İ", "a" * 101, "a" * 300, "a" * 3_000, "9" * 5_000),
        ("own:model", "os:system", ":", "a:b:c", "..:x", "a.:b", "1+1", "2+0", "weak+depth=1"),
        ("mnist_cnn", "mnist", "mirrored", "single", "own", "laptop", "cluster", "weak", "runs"),
        ("python", "python -E x.py", "{dataset}", "{folder}", "{parameters.depth}", "{seed}"),
        ("TF_CONFIG", "PATH", "srun", "local", "loss", "test_accuracy", "speedup", "2022-05"),
    )
    for text in row
)
NUMBERS = tuple(
    number
    for row in (
        (0, 1, -1, 2, 3, 7, 10_000, 100_000, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63, 10**30),
        (0.0, -0.0, 0.5, 1.0, 1e-300, 1e300, 1.5, 10**400, float("nan"), float("inf"), -(2**70)),
    )
    for number in row
)
#: Entries of mappings whose names must be known.
NAMED: dict[tuple[Step, ...], str] = {
    ("recipes",): "weak",
    ("platforms",): "cluster",
    ("datasets",): "mnist",
    ("plots",): "speedup",
    ("question", "limits"): "test_accuracy",
}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(TEXTS),
    st.sampled_from(NUMBERS),
    st.integers(),
    st.floats(),
    st.text(st.characters(codec="utf-8"), max_size=30),
    st.dates(),
    st.binary(max_size=4),
)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(TEXTS) | st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


class Place(NamedTuple):
    """A key of the configuration, or an item of a list: where it is, and what may be there."""

    path: tuple[Step, ...]
    schema: config_validation.Schema


def places() -> list[Place]:
    """Every key of every mapping of the configuration."""
    whole = config_validation.json_schema(Config)
    return list(_places(whole, whole["$defs"], ()))


def _places(
    schema: config_validation.Schema,
    parts: dict[str, config_validation.Schema],
    path: tuple[Step, ...],
) -> Iterator[Place]:
    if "$ref" in schema:
        schema = parts[schema["$ref"].rpartition("/")[2]]
    if path:
        yield Place(path, schema)
    for key, inner in schema.get("properties", {}).items():
        yield from _places(inner, parts, (*path, key))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _places(schema["additionalProperties"], parts, (*path, NAMED.get(path, "name")))
    if "items" in schema:
        yield from _places(schema["items"], parts, (*path, 0))
    for option in schema.get("anyOf", ()):
        inner_places = _places(option, parts, path)
        yield from (place for place in inner_places if len(place.path) > len(path))


def values(schema: config_validation.Schema) -> st.SearchStrategy[Any]:
    """Values at and beyond the bounds of a key, of other types, and some that are allowed."""
    bounds = [schema[key] for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
              if key in schema]  # fmt: skip
    near = [bound + step for bound in bounds for step in (-1, 0, 1, 0.5)]
    known = [*schema.get("enum", ()), *([schema["default"]] if "default" in schema else [])]
    options = [values(option) for option in schema.get("anyOf", ())]
    own = [st.sampled_from([*near, *known])] if near or known else []
    if "pattern" in schema:
        own.append(st.from_regex(schema["pattern"].replace(r"\d", "[0-9]"), fullmatch=True))
    if "items" in schema:
        own.append(st.lists(values(schema["items"]) | scalars, max_size=4))
    return st.one_of(*own, *options, anything)


class Change(NamedTuple):
    """A value at a place; None for `present` takes the key away."""

    path: tuple[Step, ...]
    value: Any
    is_removed: bool = False


@st.composite
def changes(draw: Callable[..., Any], known: list[Place]) -> list[Change]:
    """One to three changes of a good configuration."""
    found = []
    for place in draw(st.lists(st.sampled_from(known), min_size=1, max_size=3)):
        kind = draw(st.sampled_from(("value", "value", "value", "value", "unknown", "removed")))
        if kind == "value":
            found.append(Change(place.path, draw(values(place.schema))))
        elif kind == "unknown":
            name = draw(st.sampled_from(TEXTS) | st.text(min_size=1, max_size=10))
            found.append(Change((*place.path[:-1], name), draw(anything)))
        else:
            found.append(Change(place.path, None, is_removed=True))
    return found


def changed(good: dict[str, Any], wanted: list[Change]) -> dict[str, Any]:
    """The configuration with the changes, as far as an earlier one leaves their places there."""
    content = copy.deepcopy(good)
    for change in wanted:
        place: Any = content
        for step, following in zip(change.path, change.path[1:], strict=False):
            if isinstance(place, dict) and isinstance(step, str):
                place = place.setdefault(step, [] if isinstance(following, int) else {})
            elif isinstance(place, list) and isinstance(step, int) and step < len(place):
                place = place[step]
            else:
                place = None
        last = change.path[-1]
        if change.is_removed and isinstance(place, dict):
            place.pop(last, None)
        elif isinstance(place, dict):
            place[last] = change.value
        elif isinstance(place, list) and isinstance(last, int):
            place[last : last + 1] = [change.value]
    return content


#: A line of a file that reads as something else, or as nothing.
LINES = tuple(
    line.encode("latin-1") + b"\n"
    for line in (
        *("\tseed: 1", "seed: 1\nseed: 2", "seed: 064", "seed: .nan", "seed: 1_000", "on: 1"),
        *("? [a, b]\n: 1", "<<: *nothing", "recipes: &r {r: *r}", "---", "...", "%YAML 9.9"),
        "seed: !!python/object/apply:os.system ['touch hacked']",
        "a: &a [x, x]\nb: &b [*a, *a, *a]\nseed: *b",
        *(
            "grid: [",
            "}",
            "'",
            "\xff\xfe",
            "\x00",
            "\x07",
            "\xc2\x85",
            "- 1",
            "1",
            ": :",
            "&",
            "*x",
        ),
        *("seed: !!binary aGk=", "seed: !!set {a, b}", "seed: 2020-13-45", "study: ../up"),
        *("[" * 3000, "a: " + "{a: " * 3000, "seed: " + "9" * 5000, "__use_yte__: true"),
    )
)


@st.composite
def mutated(draw: Callable[..., Any], text: bytes) -> bytes:
    """A file with one to three damages: cut off, lines doubled, lost, added, bytes changed."""
    for _ in range(draw(st.integers(1, 3))):
        lines = text.splitlines(keepends=True) or [b""]
        at = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(("cut", "double", "lose", "indent", "line", "bytes", "word")))
        if kind == "cut":
            text = text[: draw(st.integers(0, len(text)))]
            continue
        if kind == "double":
            lines.insert(at, lines[at])
        elif kind == "lose":
            del lines[at]
        elif kind == "indent":
            lines[at] = draw(st.sampled_from((b" ", b"\t", b"  - "))) + lines[at]
        elif kind == "line":
            lines.insert(at, draw(st.sampled_from(LINES)))
        elif kind == "bytes":
            place = draw(st.integers(0, len(lines[at])))
            new = draw(st.binary(min_size=1, max_size=3))
            lines[at] = lines[at][:place] + new + lines[at][place + 1 :]
        else:
            word = yaml.safe_dump(draw(scalars), default_flow_style=True, allow_unicode=True)
            key = lines[at].partition(b":")[0]
            lines[at] = key + b": " + word.partition("\n")[0].encode("utf-8", "replace") + b"\n"
        text = b"".join(lines)
    return text
