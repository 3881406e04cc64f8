"""Options: their values, what contradicts, and names that others have as well."""

import argparse
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfbench.errors import UsageError
from tfbench.plugin.options import available_cpus, check_options, parse_cpus
from tfbench.plugin.runner import table_groups
from tfbench.policy import preset
from tfbench.session.options import OPTIONS, RunOptions
from tfbench.suite.shards import Shard

ROOT = Path(__file__).resolve().parents[2]


def test_processors_are_parsed_from_lists_and_ranges():
    first, last = available_cpus()[0], available_cpus()[-1]
    assert parse_cpus(f"{first}") == (first,)
    assert parse_cpus(f"{last},{first}-{first}") == tuple(sorted({first, last}))


@pytest.mark.parametrize("text", ["x", "1-", "", "3-2", "99999", "-1", "0;1", "0-99999999999", "9" * 5000])
def test_an_invalid_list_of_processors_is_refused(text):
    with pytest.raises(UsageError, match="--cpus"):
        parse_cpus(text)


def read(**given):
    absent = dict.fromkeys(f"tfbench_{option.setting}" for option in OPTIONS)
    return RunOptions.of(argparse.Namespace(**absent | {f"tfbench_{name}": text for name, text in given.items()}))


def checked(folder, *args, **given):
    config = SimpleNamespace(
        invocation_params=SimpleNamespace(dir=folder, args=args), stash={}, option=SimpleNamespace(),
        getoption=lambda name, default: default,
    )  # fmt: skip
    check_options(config, read(**given))


@pytest.mark.parametrize(
    ("name", "value", "texts", "refused"),
    [
        ("inject_slowdown", 0.1, ["0.10", "10%"], ["x", "-1", "nan", "11"]),
        ("gate_suite", 0.005, ["0.5%", "0.005"], ["x", "%", "0", "100%", "nan", "-1%"]),
        ("gate_device", 0.05, ["5%", "0.05"], ["0", "50%", "nan", "five"]),
        ("shard", Shard(2, 4), ["2/4"], ["0/4", "5/4", "x"]),
        ("statistic", "mean", ["mean"], ["median"]),
        ("replay", "never", ["never"], ["some"]),
        ("policy", preset("quick"), ["quick"], ["lax"]),
    ],
)
def test_the_value_of_an_option_is_parsed_or_refused_in_a_line(name, value, texts, refused):
    for text in texts:
        assert getattr(read(**{name: text}), name) == value
    for text in refused:
        with pytest.raises(UsageError, match=rf"^--{name.replace('_', '-')} '|^no policy named 'lax'"):
            read(**{name: text})


def test_options_that_are_not_given_have_their_defaults():
    assert read() == RunOptions()
    assert read(gate_device="5%", statistic="mean").policy == replace(
        preset("standard").with_device_gate(0.05), statistic="mean"
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"gate_suite": "1%"}, "--gate-suite judges the mean .*: add --against SPEC or --baseline"),
        ({"gate_suite": "1%", "against": "self", "shard": "1/2"}, "--gate-suite .* without --shard"),
        ({"gate_suite": "1%", "against": "self", "changed_only": True}, "--gate-suite .* without --changed-only"),
        ({"save_baseline": "x", "shard": "1/2"}, "--save-baseline needs all cases in one run; run without --shard"),
        ({"save_baseline": "x", "against": "self", "changed_only": True}, "--save-baseline .* without --changed-only"),
        ({"inject_slowdown": "1%"}, "--inject-slowdown .*; add --against self"),
        ({"changed_only": True, "baseline": "x"}, "--changed-only .*; add --against git:REV"),
        ({"against": "self", "baseline": "x"}, "give only one of them"),
        ({"job": "j", "against": "self"}, "--job needs --against and --report-json"),
        ({"history": "times"}, "--history times: this is a file; name a folder"),
    ],
)
def test_options_that_contradict_each_other_are_refused(tmp_path, given, why):
    (tmp_path / "times").write_text("")
    with pytest.raises(UsageError, match=why):
        checked(tmp_path, **given)


@pytest.mark.parametrize("place", ["", "absent", "."])
def test_a_history_is_a_folder(tmp_path, place):
    checked(tmp_path, history=place)


# Names that other plugins, and the conftest.py of a project, have as well

TAKEN = {
    "pytest-playwright": ("--device", "choose from cpu, gpu, all"),
    "pytest-profiling": ("--profile", "1 test collected"),
    "pytest-replay": ("--replay", "--tfbench-replay 'x': choose from all, never"),
    "pytest-resume": ("--resume", "ignored explicit argument 'x'"),
    "any other": ("--policy", "no policy named 'x'"),
}
"""Plugin -> an option that it shares with tfbench, and what tfbench says of the value x. The reference has the same."""


def run_pytest(folder, *words, file="other.py", plugin=("-p", "tfbench.plugin")):
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plugins = ["-p", "other"] if file == "other.py" else []
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, *plugins, "-p", "no:cacheprovider", *words],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\ntfbench_paths = speed\n")
    (tmp_path / "test_a.py").write_text(
        "def test_a(request):\n    print('GIVEN', request.config.getoption('theirs', None))\n"
    )
    (tmp_path / "other.py").touch()
    (tmp_path / "speed").mkdir()
    (tmp_path / "speed" / "test_b.py").write_text("def test_b(bench):\n    bench(int)\n")
    return tmp_path


@pytest.mark.parametrize("limit", [12, 16])
def test_a_limit_of_too_few_open_files_is_one_line_with_the_fix(folder, limit):
    (folder / "other.py").write_text(
        f"import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))\n"
    )
    code, text = run_pytest(folder, "--benchmark", "--against", "self")
    assert code == pytest.ExitCode.USAGE_ERROR, text
    assert f"ERROR: the limit of {limit} open files is too low; raise it with ulimit -n 1024" in text


def owner(folder, *options, file="other.py"):
    added = (f"    parser.addoption({option!r}, dest='theirs', action='append')\n" for option in options)
    (folder / file).write_text(f"def pytest_addoption(parser):\n{''.join(added)}")


@pytest.mark.parametrize("file", ["other.py", "conftest.py"])
def test_options_of_the_same_names_stay_with_their_owner(folder, file):
    options = [option for option, _ in TAKEN.values()]
    given = [f"{option}=x" for option in options]
    owner(folder, *options, file=file)
    code, output = run_pytest(folder, "test_a.py", "-s", *given, file=file)
    assert (code, f"GIVEN {['x'] * len(options)}" in output) == (0, True), output
    assert "tfbench:" not in output
    code, output = run_pytest(folder, "--benchmark", "--collect-only", *given, file=file)
    assert code == 0, output
    for option in options:
        assert f"tfbench: {option} belongs to another plugin here; use --tfbench-{option[2:]}" in output


@pytest.mark.parametrize(("option", "said"), TAKEN.values(), ids=TAKEN)
def test_the_longer_name_of_a_shared_option_is_read(folder, option, said):
    owner(folder, option)
    assert said in run_pytest(folder, "--benchmark", "--collect-only", f"--tfbench-{option[2:]}=x")[1]


def test_the_reference_names_the_shared_options():
    text = " ".join((ROOT / "docs/reference.md").read_text().split())
    shared = dict(re.findall(r"(pytest-\w+) \(`(--\w+)`\)", text))
    assert shared == {plugin: option for plugin, (option, _) in TAKEN.items() if plugin != "any other"}


def test_a_run_without_benchmarks_sees_one_option(folder):
    code, output = run_pytest(folder, "--help")
    assert code == 0
    assert "--benchmark " in output
    assert "--against" not in output
    assert "--tfbench" not in output
    code, output = run_pytest(folder, "--benchmark", "--help")
    assert "--tfbench-against=SPEC" in output


@pytest.mark.parametrize(
    "given",
    ["--against=self", "--tfbench-against=self", "--resume", "--history", "--save-baseline=x", "--report-json=r"],
)
def test_an_option_without_benchmark_is_refused(folder, given):
    code, output = run_pytest(folder, given)
    assert code == 4
    assert f"{given.partition('=')[0]} needs --benchmark; add it" in output


@pytest.mark.parametrize("given", ["--policy=quick", "--tfbench-device=cpu", "--strict-gate"])
def test_settings_of_benchmark_runs_may_stand_in_addopts(folder, given):
    assert run_pytest(folder, "test_a.py", given)[0] == 0


def test_both_names_set_the_same_value_and_values_are_not_taken_for_paths(folder):
    (folder / "self").mkdir()
    (folder / "self" / "conftest.py").write_text("raise RuntimeError('this folder is only a value here')\n")
    for name in ("--policy", "--tfbench-policy"):
        code, output = run_pytest(folder, "--benchmark", name, "nothing", "--against", "self")
        assert code == 4, output
        assert "no policy named 'nothing'" in output


@pytest.mark.parametrize("by", ["words", "PYTEST_ADDOPTS"])
@pytest.mark.parametrize("option", ["--report-json", "--tfbench-profile", "--history"])
def test_an_output_elsewhere_that_an_earlier_run_wrote_is_no_test(folder, tmp_path_factory, monkeypatch, option, by):
    place = tmp_path_factory.mktemp("elsewhere")
    (place / "r.json").write_text('{"schema":"tfbench-report/1"')
    words = [option, str(place / "r.json" if option == "--report-json" else place)]
    if by == "PYTEST_ADDOPTS":
        monkeypatch.setenv(by, " ".join(words))
        words = []
    code, output = run_pytest(folder, "--benchmark", "--collect-only", "-q", *words)
    assert (code, output.splitlines()[0]) == (0, "speed/test_b.py::test_b"), output


def test_a_conftest_that_names_the_plugin_gives_its_options_too(tmp_path, tmp_path_factory):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tfbench.plugin"]\n')
    (tmp_path / "test_b.py").write_text("def test_b(bench):\n    bench(int)\n")
    words = ("--benchmark", "--policy=nothing", "test_b.py", "--profile", str(tmp_path_factory.mktemp("elsewhere")))
    assert "no policy named 'nothing'" in run_pytest(tmp_path, *words, file="conftest.py", plugin=())[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--setup-plan"], "SETUP    F bench"),
        (["--setup-only"], "SETUP    F data"),
        (["--collect-only"], "<Function test_b>"),
        (["--co", "-q"], "speed/test_b.py::test_b"),
        (["--fixtures"], "measures a step under"),
        (["--fixtures-per-test"], "fixtures used by test_b"),
        (["--cache-show"], "cache is empty"),
        (["--markers"], "@pytest.mark.tfbench"),
        (["--version"], "pytest"),
    ],
)
def test_what_pytest_lists_is_listed_and_nothing_is_measured(folder, words, said):
    (folder / "speed" / "test_b.py").write_text(
        "import pytest, unittest\nimport tensorflow as tf\n\n@pytest.fixture\ndef data():\n    return tf.ones(3) + 1\n\n"
        "def test_b(bench, data):\n    bench(int)\n\ndef test_plain(benchmark):\n    benchmark(int)\n"
    )
    words = [*words, "--tfbench-against=self", "--tfbench-report-json=r.json", "-p", "pytest_benchmark.plugin"]
    code, output = run_pytest(folder, "--benchmark", *words, "-p", "cacheprovider")
    assert (code, said in output) == (0, True), output
    assert "error" not in output
    assert not (folder / "r.json").exists()


@pytest.mark.parametrize("file", ["other.py", "conftest.py"])
def test_messages_name_the_options_that_work(folder, file):
    owner(folder, "--against", file=file)
    code, output = run_pytest(folder, "--benchmark", "--tfbench-gate-suite=1%", file=file)
    assert code == 4
    assert "cases that race a baseline: add --tfbench-against SPEC or --baseline" in output


def test_a_benchmark_of_hypothesis_is_told_what_to_do(folder):
    (folder / "speed" / "test_b.py").write_text(
        "import hypothesis, hypothesis.strategies as st\n\n@hypothesis.given(n=st.just(1))\n"
        "def test_b(bench, n):\n    bench(int)\n"
    )
    code, output = run_pytest(folder, "--benchmark", "-p", "_hypothesis_pytestplugin")
    assert code == 1, output
    assert "bench measures one step, and hypothesis calls it with many: replace @given by @parametrize" in output


def test_a_fixture_or_parameter_of_the_project_named_bench_makes_no_benchmark(folder):
    (folder / "speed" / "test_b.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef bench():\n    return 'wooden'\n\n"
        "def test_fixture(bench):\n    assert bench == 'wooden'\n\n"
        "@pytest.mark.parametrize('bench', ['steel'])\ndef test_parameter(bench):\n    assert bench == 'steel'\n"
    )
    (folder / "speed" / "test_c.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef bench(bench):\n    return bench\n\ndef test_c(bench):\n    bench(int)\n"
    )
    code, output = run_pytest(folder, "speed", "-rs")
    assert (code, "2 passed, 1 skipped" in output) == (0, True), output
    code, output = run_pytest(folder, "--benchmark", "--collect-only", "-q", "speed")
    assert (code, "test_c.py::test_c" in output, "test_b" in output) == (0, True, False), output


@pytest.mark.parametrize("option", ["--against", "--save-baseline", "--tfbench-shard"])
def test_an_empty_value_is_refused_since_the_run_would_pass_without_it(folder, option):
    code, output = run_pytest(folder, "--benchmark", f"{option}=")
    assert code == 4
    assert "the value is empty; give one, or leave the option out" in output


@pytest.mark.parametrize(("given", "code"), [(["--against=self"], 5), ([], 0)])
def test_a_comparison_whose_cases_another_plugin_all_leaves_out_does_not_pass(folder, given, code):
    (folder / "other.py").write_text(
        "import pytest\n\n"
        "def pytest_collection_modifyitems(items):\n    items.clear()\n\n"
        "@pytest.hookimpl(tryfirst=True)\ndef pytest_sessionfinish(session):\n    session.exitstatus = 0\n"
    )
    found, output = run_pytest(folder, "--benchmark", *given)
    assert found == code, output


def test_tables_of_pytest_benchmark_have_plain_tests_alone_unless_they_are_asked_for():
    ours, plain = {"extra_info": {"tfbench": {}}}, {"extra_info": {}}
    groups = [("a", [ours, plain]), ("b", [ours])]
    for option, shown in (
        ("--benchmark-json=x", [("a", [plain])]),
        ("--benchmark-columns=min", groups),
        ("--benchmark-verbose", groups),
    ):
        config = SimpleNamespace(invocation_params=SimpleNamespace(args=("--benchmark", option)))
        assert table_groups(config, groups) == shown
