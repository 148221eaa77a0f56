"""The documentation is true: what its pages say to type is typed, and prints what they say it prints.

The pages with Spark in them are followed in `tests/spark/test_pages.py`, by the session of the tests there.
"""

import contextlib
import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import boto3
import pytest
from typer._click.exceptions import MissingParameter

from esker.stores.open_kv import sqlite_url
from tests import pages, python_reference
from tests.pages import ROOT, RUNS, Reader
from tests.server.live import lakefs, live
from tests.server.running import fresh_database

SPARK: Final = ("README.md", "docs/tutorial.md", "docs/spark.md")

PLAIN: Final = tuple(
    name
    for name in (str(page.relative_to(ROOT)) for page in pages.pages())
    if name not in SPARK and any(block.language in RUNS and not block.why_not for block in pages.blocks(ROOT / name))
)


@pytest.mark.parametrize("name", PLAIN)
def test_who_does_what_a_page_says_sees_what_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    replace = {"/data/": f"{tmp_path}/data/"}
    environment: dict[str, str] = {}
    text = (ROOT / name).read_text()
    if "postgresql://" in text:
        url = fresh_database(request.getfixturevalue("postgres_url"))
        replace["postgresql://esker@db/esker"] = url
    with contextlib.ExitStack() as stack:
        if "s3://" in text or "dynamodb://" in text:
            moto = request.getfixturevalue("moto_url")
            environment |= {"AWS_ENDPOINT_URL": moto, "AWS_ALLOW_HTTP": "true"}
            bucket = f"pages-{uuid.uuid4().hex}"
            boto3.resource("s3", endpoint_url=moto).create_bucket(Bucket=bucket)
            replace["s3://my-bucket/"] = f"s3://{bucket}/"
            if "lakefs.example.com" in text:
                replace |= stack.enter_context(_like_lakefs(tmp_path, f"s3://{bucket}/theirs", environment))
        follow(name, tmp_path, monkeypatch, replace, environment)


@contextlib.contextmanager
def _like_lakefs(base: Path, place: str, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """What stands for a lakeFS server: another of ours, with the repository of the page. As it is called there."""
    database = sqlite_url(base / "theirs.db")
    with live(base, ESKER_LAKE=place, ESKER_KV=database, ESKER_SECRET_KEY="0" * 64, **environment) as server:
        repo = lakefs.Repository("sales", server.wrapper()).create(storage_namespace=f"{place}/sales")
        main = repo.branch("main")
        main.object("orders/1.csv").upload(b"id,total\n1,10\n", metadata={"from": "till"})
        repo.tag("v1").create(main.commit("First orders"))
        fix = repo.branch("fix").create("main")
        main.object("orders/2.csv").upload(b"")
        main.commit("More")
        fix.object("orders/1.csv").delete()
        fix.commit("One too many")
        fix.merge_into(main, message="Merge 'fix' into 'main'")
        fix.delete()
        dev = repo.branch("dev").create("main")
        dev.object("orders/3.csv").upload(b"id,total\n3,30\n")
        dev.commit("Three")
        yield {"https://lakefs.example.com": server.url, "AKIA...": server.key_id, "lakefs-secret": server.secret}


def follow(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    replace: dict[str, str],
    environment: dict[str, str],
) -> None:
    """Follow a page from an empty directory."""
    directory = tmp_path / "here"
    directory.mkdir()
    reader = Reader(directory, replace=replace, environment=environment)
    monkeypatch.chdir(directory)
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    try:
        assert reader.follow(ROOT / name) > 0
    finally:
        reader.close()


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_on_a_page_is_one_that_esker_takes(page: Path) -> None:
    text = page.read_text("utf-8")
    fenced = [block for block in pages.blocks(page) if block.language == "sh"]
    indented = re.findall(r"^    (esker .*)$", text, re.MULTILINE) if "docs/cli.md" in str(page) else []
    for script in (*(block.code for block in fenced), *indented):
        for arguments in pages.commands(script):
            pages.parse(arguments)


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_sentence_names_is_there(page: Path) -> None:
    """Commands, which may lack arguments, targets of make, and files of the repository."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for block in pages.blocks(page):
        assert set(re.findall(r"^make ([a-z-]+)", block.code, re.MULTILINE)) <= {*targets}, block.where
    for code in re.findall(r"`([^`\n]+)`", pages.outside(page)):
        if code.startswith("esker ") and "--install-completion" not in code and "spec" not in page.parts:
            for arguments in pages.commands(code):
                with contextlib.suppress(MissingParameter):
                    pages.parse(arguments)
        elif code.startswith("make "):
            assert code.split()[1] in targets, code
        elif re.fullmatch(r"(bench|demo|docs|java|scripts|src|tests)/[\w./-]+", code):
            assert (ROOT / code).exists() or code == "bench/results/", code


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_in_a_language_that_is_looked_at_and_commands_stand_in_blocks(page: Path) -> None:
    text = page.read_text("utf-8")
    found = list(pages.blocks(page))
    for block in found:
        pages.check(block)
        assert block.language in RUNS or not block.output, f"{block.where}: nobody compares its output"
    assert text.count("\n```") + text.startswith("```") == sum(4 if block.output else 2 for block in found)
    if page.name != "cli.md":  # written by a program, from help that is tested as it is
        outside = pages.outside(page)
        assert not re.findall(r"^    (?:\$ )?(?:esker|make|pip|curl|python|git) .*", outside, re.MULTILINE)
        assert not re.findall(r"^(?:[ \t]+```|~~~).*", text, re.MULTILINE), (
            "blocks begin at the margin, or nobody sees them"
        )


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_outside_of_the_site_lead_somewhere(name: str) -> None:
    """Those between pages of the site are the site's builder's to check."""
    found = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text())
    assert [link for link in found if not (ROOT / link).exists() and not link.startswith("bench/results/")] == []


def test_the_reference_of_python_is_what_the_package_says() -> None:
    assert python_reference.written()[1] == python_reference.reference(), "python -m tests.python_reference"


def test_the_site_builds_without_a_warning_and_asks_nobody_else_for_anything(tmp_path: Path) -> None:
    site = tmp_path / "site"
    build: list[str | Path] = [ROOT / ".venv/bin/mkdocs", "build", "--strict", "--site-dir", site]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = list(site.rglob("*.html")) + list(site.rglob("*.css"))
    assert len(made) > 10
    for file in made:
        asked = re.findall(r"""(?:src=|<link[^>]*href=|url\()["']?((?:https?:)?//[^"')\s>]+)""", file.read_text())
        assert asked == [], file
