"""The guide's examples run, in order, and print or raise what the guide says."""

import contextlib
import io
import re
import textwrap
import traceback
from pathlib import Path

import pytest

from esker.errors import EskerError

GUIDE = Path(__file__).parents[1] / "docs" / "guide.md"

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$(?:\n\n```\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)


def test_every_example_of_the_guide_does_what_the_guide_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = GUIDE.read_text()
    names: dict[str, object] = {"__name__": "guide"}
    ran = 0
    for block in _BLOCK.finditer(text):
        language, code, expected = block.groups()
        if language != "python":
            continue
        line = text.count("\n", 0, block.start()) + 2
        assert _run("\n" * (line - 1) + code, names) == (expected or ""), f"the example at docs/guide.md:{line}"
        ran += 1
    assert ran == text.count("```python") > 0


def _run(code: str, names: dict[str, object]) -> str:
    """What it prints. It may end in an error of ours: then also the last line of the traceback, folded to the page."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(code, GUIDE, "exec"), names)
        except EskerError as error:
            last = "".join(traceback.format_exception_only(error))
            out.write(textwrap.fill(last, 120, subsequent_indent="    ", break_long_words=False) + "\n")
    return out.getvalue()
