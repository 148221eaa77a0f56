"""`docs/python.md` from the package itself: `python -m tests.python_reference` writes it."""

import enum
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import esker
import esker.spark

DOCUMENT: Final = Path(__file__).parents[1] / "docs" / "python.md"
MARK: Final = "<!-- reference: written by `python -m tests.python_reference` -->"

_MODULES: Final = (esker, esker.spark)
_LINE: Final = 110


def reference() -> str:
    """All that follows the mark."""
    return "\n".join([MARK, "", *(line for module in _MODULES for line in _module(module))]).rstrip("\n") + "\n"


def written() -> tuple[str, str]:
    """What people wrote before the mark, and what follows."""
    before, mark, after = DOCUMENT.read_text("utf-8").partition(MARK)
    return before, mark + after


def _module(module: ModuleType) -> Iterator[str]:
    public = {name: getattr(module, name) for name in module.__all__}
    groups = {
        "functions": [name for name, one in public.items() if inspect.isroutine(one)],
        "classes": [name for name, one in public.items() if _is_class(one) and not issubclass(one, BaseException)],
        "errors": [name for name, one in public.items() if _is_class(one) and issubclass(one, BaseException)],
    }
    yield f"## {module.__name__}"
    yield ""
    for name in groups["functions"]:
        yield from _routine(f"{module.__name__}.{name}", public[name], "###")
    for name in groups["classes"]:
        yield from _class(f"{module.__name__}.{name}", public[name])
    if groups["errors"]:
        yield "### Errors"
        yield ""
        yield "| | |"
        yield "|---|---|"
        for name in groups["errors"]:
            yield f"| `{module.__name__}.{name}` | {' '.join((public[name].__doc__ or '').split())} |"
        yield ""


def _is_class(one: Any) -> bool:
    return inspect.isclass(one)


def _class(name: str, one: Any) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    yield from _text(one.__doc__ or "")
    if issubclass(one, enum.Enum):
        yield ", ".join(f"`{member.name}` (`{member.value!r}`)" for member in one)
        yield ""
        return
    fields = getattr(one, "__struct_fields__", None) or getattr(one, "_fields", None)
    fields = fields or tuple(getattr(one, "__dataclass_fields__", ()))
    if fields:
        yield f"Fields: {', '.join(f'`{field}`' for field in fields)}."
        yield ""
    inherited = [base for base in one.__mro__[1:] if base in vars(esker).values()]
    if inherited:
        yield f"It is a `{inherited[0].__name__}`, and has all of its methods."
        yield ""
    for method, member in vars(one).items():
        if method.startswith("_") or method in (fields or ()):
            continue
        if isinstance(member, (classmethod, staticmethod)) or inspect.isfunction(member):
            yield from _routine(method, getattr(one, method), "####", of=one.__name__)
        elif isinstance(member, property) and member.__doc__:
            yield f"#### {one.__name__}.{method}"
            yield ""
            yield from _text(member.__doc__)


def _routine(name: str, routine: Any, level: str, of: str = "") -> Iterator[str]:
    signature = inspect.signature(routine)
    given = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    shown = ", ".join(_parameters(given))
    title = f"{of}.{name}" if of else name
    call = f"{name}({shown})"
    answer = "" if signature.return_annotation in (None, "None", inspect.Signature.empty) else _kind(signature)
    yield f"{level} {title}"
    yield ""
    if len(call) > _LINE:
        yield "```text"
        yield f"{name}("
        yield from textwrap.wrap(shown, _LINE, initial_indent="    ", subsequent_indent="    ", break_long_words=False)
        yield f"){answer}"
    else:
        yield "```text"
        yield f"{call}{answer}"
    yield "```"
    yield ""
    yield from _text(routine.__doc__ or "")


def _parameters(given: list[inspect.Parameter]) -> Iterator[str]:
    starred = False
    for one in given:
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        starred = starred or one.kind is inspect.Parameter.VAR_POSITIONAL
        star = "*" if one.kind is inspect.Parameter.VAR_POSITIONAL else ""
        if one.default is inspect.Parameter.empty:
            yield star + one.name
        else:
            default = repr(one.default)
            yield f"{one.name}={default if len(default) < 20 and '<' not in default and '(' not in default else '...'}"


def _kind(signature: inspect.Signature) -> str:
    kind = signature.return_annotation
    text = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    return " -> " + re.sub(r"\b(?:\w+\.)+(?=[A-Z])|['\"]", "", text)


def _text(doc: str) -> Iterator[str]:
    """Its examples are indented."""
    for part in re.split(r"\n\n+", inspect.cleandoc(doc)):
        if not part:
            continue
        if all(line.startswith("    ") for line in part.splitlines()):
            yield "```text"
            yield textwrap.dedent(part)
            yield "```"
        else:
            yield part
        yield ""


if __name__ == "__main__":
    before, _ = written()
    DOCUMENT.write_text(before + reference(), "utf-8")
    sys.stdout.write(f"wrote {DOCUMENT}\n")
