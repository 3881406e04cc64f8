"""Text and JSON of unknown origin: strict reading, and printing without effect on terminals and runners."""

import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_architecture import COPIED, FILES, PACKAGE
from tfbench import cli, untrusted
from tfbench.report import terminal
from tfbench.report.screen import Screen, say
from tfbench.untrusted import brief, harmless, is_case, is_shared_spec, parse_json, printable, render_json

EVIL = "\x1b]0;owned\x07 \x1b[2J \x9b31m \u202e \u2066 \u200f \u061c \u2028 \ufeff \ud800 \U000e0041 \x00 \r \x7f"


def test_no_invisible_character_is_printable():
    shown = printable(EVIL)
    assert set(shown) <= set(" ]0;owned[2J31m\N{REPLACEMENT CHARACTER}")
    assert printable("Grüße, 日本, µs ± ½ 🙂\n\t") == "Grüße, 日本, µs ± ½ 🙂\n\t"


@given(st.text())
def test_a_quote_is_one_short_line(text):
    assert len(brief(text)) <= 200
    assert len(brief(text).splitlines()) <= 1
    assert printable(brief(text)) == brief(text)


COMMANDS = [
    "::error::x",
    "  ::set-output name=a::b",
    "a\n::add-mask::x",
    "\t::warning::x",
    "x ##[error]y",
    "##[set-env name=A]b",
]


def commands_in(text):
    """Find what GitHub's runner takes for a command, as its ActionCommand.cs does."""
    return [line for line in text.splitlines() if line.lstrip().startswith("::") or "##[" in line]


@pytest.mark.parametrize("text", COMMANDS)
def test_no_text_is_a_command_to_the_runner(text, monkeypatch, capsys):
    assert commands_in(text)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert not commands_in(harmless(text))
    say(text)
    Screen(width=20).print(text)
    Screen(width=20).print(f"{'a' * 18}::error::x")
    assert not commands_in(capsys.readouterr().out)


def test_outside_of_a_job_names_stay_as_they_are(monkeypatch):
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert harmless("::x") == "::x"


def test_a_screen_shows_no_control_and_no_markup():
    screen = Screen(file=io.StringIO(), width=200)
    screen.print(f"[bold]x[/] [/no] :smile: {EVIL}")
    with screen.status("[/x]") as status:
        status.update("[/y]")
    shown = screen.file.getvalue()
    assert shown.startswith("[bold]x[/] [/no] :smile: ")
    assert not set(shown) - set("\n") & {character for character in EVIL if printable(character) != character}


def test_an_error_shows_no_control(tmp_path, capsys):
    assert cli.main(["gate", str(tmp_path / "a\x1b[2Jb")]) == 5
    assert "\x1b" not in capsys.readouterr().err


def test_everything_is_printed_through_the_screen():
    """`comment` prints through `say`; `gate` prints annotations, which escape themselves."""
    own = {PACKAGE / "report/screen.py"}
    inside_workers = [file for file in FILES if "worker" in file.parts]
    for file in set(FILES) - own - set(inside_workers) - {COPIED}:
        text = re.sub(r'"[^"\n]*"', '""', file.read_text())
        assert not re.search(r"\bConsole\(", text), file
        prints = re.findall(r"(?<![\w.])print\((?!\))[^\n]*", text)
        assert all("annotation(" in one for one in prints), (file, prints)
    assert terminal.Screen is Screen


@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", "[Infinity]", "1e999", "9" * 19, '{"a": 1, "a": 2}', "[" * 100_000, "[" * 40 + "]" * 40,
     '"\\ud800"', '{"\\udc00": 1}', "\ufeff1", "[1,]", "01"],
)  # fmt: skip
def test_other_text_than_strict_json_is_refused(text):
    with pytest.raises(ValueError, match=r"..") as caught:
        parse_json(text)
    assert len(brief(caught.value)) <= 200


def test_strict_json_is_read():
    assert parse_json('{"a": [1, 2.5, null, true, "\\ud83d\\ude42"]}') == {"a": [1, 2.5, None, True, "🙂"]}
    assert parse_json("[" * untrusted.DEEPEST + "]" * untrusted.DEEPEST)


NAMES = (
    "b/test_x.py::test_x[a=1]",
    "test_x.py",
    "a b/test_ü.py::T::test_x[x y]",
    "t.py::x[<f4]",
    "t.py::x[../a::b->c]",
)
OTHER_NAMES = (
    "--rootdir=/x::y", "@x.py", "-p::x", "/etc/x.py", "../x.py::y", "a/../b::c", "x::y\n-p", "x::\x1b", "x::\u202ey", "~/x::y", "x",
    "x::", "a<b.py::y", "a`b.py", "x::y[`z`]", "x::<img src=x>", "",
)  # fmt: skip
SPECS = ("self", "git:main", "git:HEAD~3", "git:0123abc^", "tensorflow==2.20.0", "git:a/b+keras==3.5.0")
OTHER_SPECS = (
    "",
    "git:",
    "git:-x",
    "python:/x",
    "env:A=b",
    "evil==1.0",
    "git:main;id",
    "self\n",
    "git:a b",
    "git:main+env:A=b",
)


def test_names_of_benchmarks_and_specifications_that_may_be_shown():
    assert [name for name in (*NAMES, *OTHER_NAMES) if is_case(name)] == [*NAMES]
    assert [spec for spec in (*SPECS, *OTHER_SPECS) if is_shared_spec(spec)] == [*SPECS]


def test_a_command_is_quoted():
    assert untrusted.command("tfbench", "bisect", "--good", "git:a b;c") == "tfbench bisect --good 'git:a b;c'"


def test_the_security_page_names_tests_that_exist():
    page = (PACKAGE.parent / "docs/security.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)
    assert len(named) > 30
    for file, test in named:
        assert f"def {test}" in (PACKAGE.parent / file).read_text(), f"{file}::{test}"


def test_what_is_written_can_be_read():
    odd = {"a": ["caf\udce9 \U0001f480 \\udce9", float(1)], "\udcff": None}
    for indent in (None, 1):
        assert parse_json(render_json(odd, indent)) == {"a": ["caf? \U0001f480 \\udce9", 1.0], "?": None}
    assert render_json({"a": "\U0001f480"}) == json.dumps({"a": "\U0001f480"})
    with pytest.raises(ValueError, match="JSON"):
        render_json(["\udce9", float("nan")])


def test_a_number_is_written_with_the_plural_of_its_noun():
    assert [untrusted.plural(1, "launch"), untrusted.plural(0, "case"), untrusted.plural(2, "launch")] == [
        "1 launch",
        "0 cases",
        "2 launches",
    ]
    assert untrusted.plural(12_345, "round") == "12,345 rounds"
