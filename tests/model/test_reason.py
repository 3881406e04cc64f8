"""A reason is data, which one place turns into words."""

import ast
import inspect
import re
from pathlib import Path
from string import Formatter

import pytest

import tfbench
from tfbench.model import Note, Ratio, Reason, ReasonCode, because
from tfbench.model.formats import plain

RATIO = Ratio(1.052, 1.03, 1.07, 0.99)
SLOWER = because(ReasonCode.SLOWER, ratio=RATIO, launches=6)


CODES = {"Note": Note, "ReasonCode": ReasonCode}


JOINED = {"changed": ("ratio", "launches"), "evidence": ("ratio", "launches"), "values": ("before", "now", "unit")}
"""Field of a template -> the facts that it joins."""


def constructions():
    """Every code that the code names in a call, with the names of the facts that the call gives it."""
    for file in sorted(Path(tfbench.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(args=[ast.Attribute(ast.Name(("Note" | "ReasonCode") as kind), name), *_]):
                    facts = [keyword.arg for keyword in node.keywords]
                    yield pytest.param(CODES[kind][name], facts, id=f"{file.name}:{node.lineno}:{name}")


@pytest.mark.parametrize(("code", "facts"), constructions())
def test_the_facts_of_a_reason_are_those_of_its_sentence(code, facts):
    sentence = code.words
    given = dict.fromkeys(name for name in facts if name is not None)
    if not callable(sentence):
        fields = {re.match(r"\w+", name)[0] for _, name, _, _ in Formatter().parse(sentence) if name}
        named = {fact for field in fields for fact in JOINED.get(field, (field,))}
        assert not given or (named >= set(given) if None in facts else named == set(given))
    elif None in facts:  # further facts come from a dictionary
        inspect.signature(sentence).bind_partial(**given)
    elif given:
        inspect.signature(sentence).bind(**given)


def test_every_note_has_a_sentence():
    assert all(note.words for note in Note)


def test_a_template_says_its_facts_in_their_form():
    assert because(ReasonCode.SET_LATE, before=[], now=["A"]).message.count("sets A, and the baseline none;") == 1
    assert (
        because(ReasonCode.DISTURBED, launches=1, why="heat").message == "not decided, as 1 launch was discarded: heat"
    )
    assert because(Note.FEW_LAUNCHES, needed=5, before=1.0, now=2e6, unit="B").message == (
        "1 B before, 1.91 MiB now, but 5 launches of each side are needed, as --policy standard has"
    )


def test_notes_follow_the_sentence_or_complete_it():
    assert SLOWER.message == "5.2% slower (interval +3.0% to +7.0% at 99% confidence, 6 launches)"
    twice = SLOWER.noted(None, because(Note.FOUND_TWICE, SLOWER), because(Note.OWN_TIMES))
    assert twice.message == f"{SLOWER}; found twice, the first time as {SLOWER}; {because(Note.OWN_TIMES)}"
    assert because(ReasonCode.SAVED_TIMES, because(Note.RACE_ALL)).message == "race it with --replay all"


def test_a_median_that_is_slower_than_the_mean_with_slow_calls_comes_first():
    text = because(ReasonCode.SLOW_CALLS, ratio=RATIO, launches=6, median=3.0).message
    assert text.startswith("the median is 3.0x slower; slow calls: the geometric mean of the calls is 5.2% slower")
    assert because(ReasonCode.SLOW_CALLS, ratio=RATIO, launches=6, median=1.01).message.startswith("slow calls: the")


def test_a_reason_from_a_file_keeps_its_message():
    stored = Reason("slower", "five percent", {"unknown": 1})
    assert stored.message == "five percent"
    assert stored.noted(because(Note.RACE_ALL)).message == "five percent; race it with --replay all"
    assert plain(Reason("from-the-future", "why")) == {"code": "from-the-future", "message": "why"}


def test_a_reason_is_json_with_its_facts_and_notes():
    assert plain(SLOWER.noted(because(Note.RACE_ALL))) == {
        "code": "slower",
        "message": f"{SLOWER}; race it with --replay all",
        "facts": {"ratio": {"center": 1.052, "low": 1.03, "high": 1.07, "confidence": 0.99}, "launches": 6},
        "notes": [{"code": "race-all", "message": "race it with --replay all"}],
    }


def test_a_code_from_a_file_equals_its_member():
    assert Reason("slower", str(SLOWER)) == SLOWER
    assert len({Reason("slower", str(SLOWER)), SLOWER}) == 1
    assert {ReasonCode.SLOWER: "found"}["slower"] == "found"
    assert str(ReasonCode.SLOWER) == "slower"
