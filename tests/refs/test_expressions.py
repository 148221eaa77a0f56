"""Ref expressions: what parses, what it stands for, and what is said when it stands for nothing."""

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.errors import InvalidError, Kind, NotFoundError
from esker.model import CommitID
from esker.refs import commits
from esker.refs.expressions import Lookup, Resolved, View, parse, resolve
from esker.stores.kv_memory import MemoryKV
from tests.refs.dags import Dag, dags

UID = "7f"

# 0 - 1 - 2 - 3 - 6: main, v1
#  \         \   /
#   4 - - - - 5 -      (5 merges 4 and 3; 6 merges 3 and 5)
DAG = Dag([[], [0], [1], [2], [0], [4, 3], [3, 5]])
MAIN, DEV = DAG.names[6], DAG.names[4]


def lookup(dag: Dag = DAG, branches: dict[str, CommitID] | None = None, **tags: CommitID) -> Lookup:
    kv = MemoryKV()
    for commit in dag.commits.values():
        commits.put(kv, UID, commit)
    reader = commits.Commits(kv, UID)
    branches = {"main": MAIN, "dev": DEV} if branches is None else branches
    return Lookup("sales", branches.get, tags.get, reader.get, reader.find_prefix, lambda: [*branches, *tags])


def place(text: str, where: Lookup | None = None) -> int:
    return DAG.names.index(resolve(parse(text), where or lookup(v1=MAIN)).commit)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("main", 6),
        ("v1", 6),
        ("main~0", 6),
        ("main^0", 6),
        ("main~", 3),
        ("main~1", 3),
        ("main^", 3),
        ("main^1", 3),
        ("main^2", 5),
        ("main~2", 2),
        ("main~~", 2),
        ("main^^", 2),
        ("main~2^0~0", 2),
        ("main^2^2", 3),
        ("main^2~", 4),
        ("v1^2~2", 0),
        ("main~4", 0),
        ("main~000000004", 0),
        (f"{MAIN}^2", 5),
        (f"{MAIN[:12]}^2", 5),
        ("main@", 6),
        ("main$", 6),
    ],
)
def test_an_expression_stands_for(text: str, expected: int) -> None:
    assert place(text) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("main~7", "main~7: 'main' has only 4 ancestors along first parents"),
        ("main^2~3", "main^2~3: 'main^2' has only 2 ancestors along first parents"),
        ("main~3~2", "main~3~2: 'main~3' has only 1 ancestor along first parents"),
        ("main~4~", "main~4~: 'main~4' has no ancestor along first parents"),
        ("main^3", "main^3: 'main' has only 2 parents"),
        ("main~^2", "main~^2: 'main~' has only one parent"),
        ("main~4^", "main~4^: 'main~4' has no parent"),
        ("mian", "no branch, tag or commit 'mian' in 'sales'; did you mean 'main'?"),
        ("mian~2", "mian~2: no branch, tag or commit 'mian' in 'sales'; did you mean 'main'?"),
        ("0" * 64, f"no branch, tag or commit '{'0' * 64}' in 'sales'"),
        (MAIN[:3], f"no branch, tag or commit '{MAIN[:3]}' in 'sales'"),
    ],
)
def test_what_is_not_there_is_named(text: str, told: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        place(text)
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not empty"),
        ("~1", "starts with a branch, tag or commit"),
        ("@", "starts with a branch, tag or commit"),
        ("$", "starts with a branch, tag or commit"),
        ("main@~1", "stand alone"),
        ("main$^", "stand alone"),
        ("main~1@", "stand alone"),
        ("main^$", "stand alone"),
        ("main@$", "stand alone"),
        ("main@@", "stand alone"),
        ("main~x", "there is a number"),
        ("main~1x", "there is a number"),
        ("main~-1", "there is a number"),
        ("main~1.5", "there is a number"),
        ("main~\u0661", "there is a number"),
        ("main^{commit}", "there is a number"),
        ("main~9999999999", "further back than any history goes"),
        ("main~" + "9" * 1000, "further back than any history goes"),
        ("main dev", "no spaces"),
        ("v1@", "'v1' is a tag"),
        ("v1$", "'v1' is a tag"),
        (f"{MAIN}@", "is a commit"),
        (f"{MAIN[:8]}$", "is a commit"),
    ],
)
def test_what_is_no_expression_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidError, match=told) as caught:
        place(text)
    assert caught.value.kind is Kind.INVALID_REF


def test_the_first_kind_of_name_that_fits_is_taken() -> None:
    commit, prefix = DAG.names[1], DAG.names[1][:10]
    branches = {commit: DAG.names[2], prefix: DAG.names[3], "x": DAG.names[4]}
    where = lookup(DAG, branches, **{commit: DAG.names[5], prefix: DAG.names[5], "x": DAG.names[5]})
    assert place(commit, where) == 1, "a whole commit id before a branch"
    assert place(prefix, where) == 3, "a branch before a prefix"
    assert place("x", where) == 4, "a branch before a tag"
    assert place(prefix, lookup(DAG, {}, **{prefix: DAG.names[5]})) == 5, "a tag before a prefix"
    assert place(prefix, lookup(DAG, {})) == 1
    missing = "0" * 64
    assert place(missing, lookup(DAG, {missing: MAIN})) == 6, "an id of no commit may be another's name"


def test_a_prefix_of_several_is_ambiguous() -> None:
    dag = Dag([[]] * 1500)
    (prefix, n), *_ = Counter(name[:4] for name in dag.names).most_common()
    assert n > 1, "the history is fixed, and some of its ids begin alike"
    with pytest.raises(InvalidError, match="give more digits") as caught:
        resolve(parse(prefix), lookup(dag, {}))
    assert caught.value.kind is Kind.AMBIGUOUS_REF


def test_a_branch_is_known_as_one_only_where_something_can_be_staged_on_it() -> None:
    where = lookup(v1=MAIN)
    assert resolve(parse("main"), where) == Resolved("main", MAIN, "main")
    assert resolve(parse("main@"), where) == Resolved("main@", MAIN, "main", View.COMMITTED)
    assert resolve(parse("main$"), where) == Resolved("main$", MAIN, "main", View.STAGED)
    assert resolve(parse("main~0"), where).branch is None
    assert resolve(parse("v1"), where).branch is None


def test_what_is_staged_is_no_commit() -> None:
    where = lookup()
    assert resolve(parse("main"), where).as_commit() == resolve(parse("main@"), where).as_commit() == MAIN
    with pytest.raises(InvalidError, match=r"main\$: this is no commit; write 'main'"):
        resolve(parse("main$"), where).as_commit()


@given(dags(), st.data())
def test_steps_go_along_parents(dag: Dag, data: st.DataObject) -> None:
    text, expected = "main", dag.names[-1]
    for _ in range(data.draw(st.integers(0, 4))):
        if data.draw(st.booleans()):
            back = data.draw(st.integers(0, 3))
            text += f"~{back}"
            for _ in range(back):
                expected = (*dag.get(expected).parents[:1], CommitID(""))[0]
                if not expected:
                    break
        else:
            parent = data.draw(st.integers(0, 3))
            text += f"^{parent}"
            parents = (expected, *dag.get(expected).parents)
            expected = parents[parent] if parent < len(parents) else CommitID("")
        if not expected:
            break
    where = lookup(dag, {"main": dag.names[-1]})
    if expected:
        assert resolve(parse(text), where).commit == expected
    else:
        with pytest.raises(NotFoundError, match="has") as caught:
            resolve(parse(text), where)
        assert caught.value.kind is Kind.COMMIT_NOT_FOUND


@given(st.text(max_size=8) | st.text("ab~^@$012 ", max_size=8))
def test_any_text_parses_or_is_refused_and_none_is_lost(text: str) -> None:
    with suppress(InvalidError):
        parsed = parse(text)
        assert parsed.base + "".join(step.text for step in parsed.steps) + (parsed.view or "") == text
