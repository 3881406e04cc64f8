"""Run the cases of a pytest run, show progress, and write its files."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest
from rich.live import Live
from rich.text import Text

from tfbench.errors import BaselineError, DeclarationError, SideError, TfbenchError, UsageError
from tfbench.facts import unusable_option
from tfbench.fs import check_outputs, write_whole
from tfbench.gpus.selection import parse_device
from tfbench.model import PLAIN, TIME, Case, Outcome, Report, Verdict, short_name
from tfbench.model.formats import plain
from tfbench.model.words import span, times
from tfbench.plugin import REPORTS, STARTED_WITH, in_use, only_lists, present_folders, setting, whole_suite
from tfbench.plugin.cases import (
    INI,
    adopts,
    by_environment,
    case_of,
    check_used,
    constructor_of,
    in_shard,
    is_benchmark,
    is_plain,
    parse_patterns,
    places,
    statistic_of,
    take_over,
    thresholds_of,
    unknown_fixture,
    wanted_by_device,
)  # fmt: skip
from tfbench.plugin.collect import CASE, COMMAND, given, may_need_tensorflow, selection_of, with_real_tensorflow
from tfbench.plugin.options import (
    check_folder,
    check_not_taken_for_test,
    check_replaced,
    gate_options,
    given_folder,
    given_history,
    job_options,
    kept_options,
    own_options,
    parse_device_gate,
    parse_slowdown,
    parse_suite_limit,
    suite_of,
    with_statistic,
    worker_processors,
    worker_variables,
)  # fmt: skip
from tfbench.policy import preset
from tfbench.race.lanes import parse_lanes
from tfbench.race.race import Race
from tfbench.race.workers import Suite
from tfbench.report import json_format, markdown, terminal
from tfbench.report.page import check_library
from tfbench.report.report_page import PageContext
from tfbench.report.report_page import render as render_html
from tfbench.report.screen import Screen
from tfbench.ruling import grave, rule
from tfbench.session.record import BaselineStore
from tfbench.session.request import CaseResult, RunProgress, RunRequest
from tfbench.session.results import not_collected
from tfbench.session.session import Session
from tfbench.session.strategies import ALL, CHOICES
from tfbench.storage.baselines import PROFILES, Layout
from tfbench.suite.claims import STATS
from tfbench.suite.functions import TF_TEST_FILES
from tfbench.suite.shards import parse_shard
from tfbench.suite.tensorflow_stub import fix_of, tf_test_classes
from tfbench.untrusted import NO_CASE, brief, harmless, is_case, some

# Turn the result of a case into the outcome of its pytest test, and into a row of pytest-benchmark


def end_test(result: CaseResult, strict: bool, worded: Callable[[str], str] = str) -> None:
    """Fail, skip or pass a test by the verdicts on its case, see `tfbench.ruling`.

    ``worded`` returns a text with the names of options that work in this run.
    """
    assert result.verdict is not None
    output = f"\n--- last output ---\n{result.output}" if result.output else ""
    if failures := result.failures:
        text = worded("\n".join([*map(_describe, failures), *result.why])) + output
        pytest.fail(harmless(text), pytrace=False)
    if bad := grave(result.rows, strict):
        text = harmless(worded("\n".join(map(_describe, bad))) + output)
        if strict:
            pytest.fail(text, pytrace=False)
        pytest.skip(text)


def _describe(verdict: Verdict) -> str:
    metric = "" if verdict.metric == TIME else f"{verdict.metric} "
    return f"{metric}{verdict.outcome}: {verdict.reason.message}"


def skip_reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    """Return why pytest skipped something; ``""`` if it did not."""
    if not report.skipped:
        return ""
    if hasattr(report, "wasxfail"):
        return f"marked xfail without a run: {report.wasxfail}"
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return text.removeprefix("Skipped: ") or "no reason given"


def failure(report: pytest.TestReport) -> str:
    """Return the error that failed a test, in a line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else report.longreprtext).strip().splitlines()
    return lines[0] if lines else "no reason given"


def may_be_skipped(item: pytest.Item) -> bool:
    """Whether a mark may keep pytest from running the item."""
    return any(item.get_closest_marker(name) is not None for name in ("skip", "skipif", "xfail"))


def benchmark_fixture(item: pytest.Function) -> Any:
    """Return pytest-benchmark's fixture of this item, ``None`` without one."""
    return item.funcargs.get("benchmark")


_TABLE_OPTIONS = ("columns", "sort", "group-by", "name", "histogram", "compare", "verbose", "cprofile")
"""Options of pytest-benchmark that are about its tables."""


def table_groups(config: pytest.Config, groups: Sequence[Any]) -> list[Any]:
    """Return the groups of pytest-benchmark's tables, which are wide and repeat the summary.

    All groups if the command line has an option of these tables, otherwise those of plain pytest-benchmark tests.
    """
    given = config.invocation_params.args
    if any(word.startswith(f"--benchmark-{name}") for word in given for name in _TABLE_OPTIONS):
        return list(groups)
    kept = [(name, [row for row in rows if "tfbench" not in row["extra_info"]]) for name, rows in groups]
    return [(name, rows) for name, rows in kept if rows]


def store_sample(item: pytest.Function, case: Case, result: CaseResult) -> None:
    """Hand the sample to pytest-benchmark, so that its table, storage and options work on the sample.

    This uses private parts of pytest-benchmark 5.3, so requirements.txt bounds its version.
    """
    sample, fixture = result.sample, benchmark_fixture(item)
    if fixture is None or fixture.disabled or sample is None or not sample.runs:
        return
    if (noted := sample.runs[-1].facts.get(PLAIN)) is not None:
        fixture.group = noted["group"]
        fixture.extra_info |= noted["extra_info"]
    else:
        fixture.group = fixture.group or case.group.rpartition("::")[2]
        fixture.params = {**(fixture.params or {}), **case.levels}
        fixture.params.pop("variant", None)
    verdict = plain(result.verdict) if result.verdict else None
    fixture.extra_info["tfbench"] = {"verdict": verdict, "facts": sample.runs[0].facts}
    iterations = sample.runs[0].iterations
    stats = fixture._make_stats(iterations)
    for seconds in sample.seconds:
        stats.update(seconds * iterations)


# Show a progress bar with the current race, its result so far and the remaining time


_BAR = 12


class Display:
    """Draws the latest `RunProgress` on a terminal. A log has a line for each case that takes longer than usual.

    ``reporter`` is pytest's terminal reporter, ``None`` under ``-p no:terminal``.
    """

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter
        self._file = _duplicate(reporter._tw._file) if reporter else None
        self._is_terminal = bool(reporter and reporter.isatty)
        self._logged = set[str]()
        self._live: Live | None = None
        self._began: tuple[float, int] | None = None
        """Time of the first progress report, and the number of cases done before it, such as those of a resumed run."""

    def __call__(self, progress: RunProgress) -> None:
        if self._file is None:
            return
        if not self._is_terminal:
            self._log(self._file, progress)
            return
        if self._live is None:
            # pytest would capture a newline of the reporter. Without a current file it prints the file name again.
            self._file.write("\n")
            self._reporter.currentfspath = None
            console = Screen(file=self._file, force_terminal=True)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(self._line(progress), refresh=True)

    def _log(self, file: IO[str], progress: RunProgress) -> None:
        race = progress.race
        if race is None or not race.is_long or progress.text in self._logged:
            return
        self._logged.add(progress.text)
        each = race.wall_seconds / len(race.all_launches)
        name = short_name(progress.text)
        file.write(f"\n{harmless(name)}: a launch takes {each:.0f} s, so this race may take {race.limit:.0f} s\n")
        file.flush()
        self._reporter.currentfspath = None

    def clear(self) -> None:
        """Remove the bar until the next progress, so that pytest can print."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def close(self) -> None:
        """Remove the bar, and release the terminal."""
        self.clear()
        if self._file is not None:
            self._file.close()

    def _line(self, progress: RunProgress) -> Text:
        filled = round(_BAR * progress.done / progress.total) if progress.total else 0
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append("━" * filled, "green").append("━" * (_BAR - filled), "dim")
        line.append(f" {progress.done}/{progress.total}{self._left(progress)}  ").append(
            short_name(progress.text), "bold"
        )
        if progress.race is not None:
            line.append(f"  {race_summary(progress.race)}")
        return line

    def _left(self, progress: RunProgress) -> str:
        now = time.monotonic()
        began, before = self._began = self._began or (now, progress.done)
        if progress.done == before:
            return ""
        seconds = (now - began) / (progress.done - before) * (progress.total - progress.done)
        return f", {span(seconds)} left"


def _duplicate(file: Any) -> IO[str] | None:
    """Return a duplicate of a file, ``None`` of one without a descriptor: pytest captures its own while a test runs."""
    with suppress(OSError, AttributeError):
        return os.fdopen(os.dup(file.fileno()), "w")
    return None


def race_summary(race: Race) -> str:
    """Summarise a race: its launches, and the interval of the first undecided comparison."""
    words = f"launch {len(race.all_launches)}/{race.policy.looks[-1]}"
    if race.is_long:
        words += f", {race.wall_seconds:.0f} s of at most {race.limit:.0f} s"
    known = [(index, race.decisions[index]) for index in race.undecided if index in race.decisions]
    if known:
        index, decision = known[0]
        label = f" {race.entrants[index].case.label}" if len(race.entrants) > 2 else ""
        words += f",{label} {times(decision.comparison.ratio)}"
    return words


# Record a run for later runs, and tell how its changes become the baseline


def remember(session: Session, root: Path) -> list[str]:
    """Record the run in its history and as a candidate for its baseline; return notes for the user.

    Raises `TfbenchError` or `OSError` if the run cannot be recorded.
    """
    with suppress(OSError):  # a history may be elsewhere
        Layout(session.request.folder).write_gitignore()
    candidate = session.remember()
    changed = (Outcome.REGRESSED, Outcome.IMPROVED)
    if candidate is None or not any(verdict.outcome in changed for verdict in session.report().verdicts):
        return []
    return [f"if the change is intended, {_how_to_accept(session, root, candidate.stem)}"]


def _how_to_accept(session: Session, root: Path, baseline: str) -> str:
    """Return the command that accepts this run, or what to run first."""
    left_out = BaselineStore(root).left_out(baseline)
    gone = {verdict.case.name for verdict in session.strategy.missing()}
    if unmeasured := [name for name in left_out if name not in gone]:
        why = f"this run did not measure {len(unmeasured)} of its cases"
        return f"run without -k to be able to update the baseline {baseline!r}: {why}"
    drop = " --drop-missing" if left_out else ""
    return f"update the baseline: tfbench baseline accept {baseline} --reason '…'{drop}"


# Write the report files that the options of pytest name: JSON, HTML and Markdown


def _written(option: str) -> str:
    return f"--{option.replace('_', '-')}"


class ReportFiles:
    """The report files of a run, checked before it starts.

    Raises `UsageError` if a path would be taken for a test or is given twice, or HTML's chart library is not installed.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        given = {option: setting(config, option) for option in REPORTS}
        self._paths: Mapping[str, str] = {option: path for option, path in given.items() if path}
        for option, path in self._paths.items():
            check_not_taken_for_test(config, _written(option), path)
        check_outputs({_written(option): path for option, path in self._paths.items()})
        if "report_html" in self._paths:
            check_library()
        if only_lists(config):
            self._paths = {}

    def write(self, report: Report, strict: bool = False) -> list[str]:
        """Write every file, each as a whole, and return a note on each.

        Raises `UsageError` if a file cannot be written.
        """
        writers: Mapping[str, Callable[[Report], str]] = {
            "report_json": json_format.render, "report_html": partial(self._html, strict=strict),
            "report_markdown": lambda report: in_use(self._config, markdown.render(report, strict=strict)),
        }  # fmt: skip
        for option, path in self._paths.items():
            try:
                write_whole(Path(path), writers[option](report))
            except OSError as error:
                raise UsageError(f"{_written(option)} {path}: {error.strerror or error}") from None
        return [f"report written: {path}" for path in self._paths.values()]

    def _html(self, report: Report, strict: bool) -> str:
        from tfbench.doctor.calibration import measured_false_alarms  # only a page has the rate of this machine

        way = "sides" if any(row.side == "baseline" for row in report.rounds) else "variants"
        rate = measured_false_alarms(
            Layout.of(self._config.rootpath).calibration, str(report.policy.get("name", "")), way
        )
        return render_html(report, PageContext(false_alarms=rate, strict=strict))


# Run the benchmarks that pytest collected; loaded only under ``--benchmark``


OK = pytest.ExitCode.OK


class Runner:
    """Turns pytest items into cases, asks the session for their results, and turns results into test outcomes.

    Raises `UsageError` if an option has an invalid value.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.cases: dict[str, Case] = {}
        self._config = config
        self._notes: list[str] = []
        self._errors: list[str] = []
        self._session: Session | None = None
        self._display: Display | None = None
        self._suite: list[Case] = []  # of all shards
        self.collected: dict[str, pytest.Function] = {}
        self._places: Mapping[str, tuple[int, int]] = {}
        self._uncollected: dict[str, CaseResult] = {}
        self._unlisted: list[str] = []  # files with classes of tf.test.Benchmark, and these
        self.imported: list[str] = []  # TensorFlow and packages on top of it

        def option(name: str) -> Any:
            return setting(config, name)

        if unusable := unusable_option():
            raise UsageError(unusable)
        if not only_lists(config):
            check_replaced(config)
        self._files = ReportFiles(config)
        self._write_report()  # the report of an earlier run must not stay where this one fails
        self._device, self._gpus = parse_device(option("device"))
        if option("replay") not in CHOICES:
            raise UsageError(f"--replay {option('replay')!r}: choose from {', '.join(CHOICES)}")
        if option("against") and option("baseline"):
            raise UsageError("--against and --baseline both name the other side; give only one of them")
        self._slowdown, listing = parse_slowdown(option("inject_slowdown")), only_lists(config)
        raced = bool(option("against") or option("baseline"))
        if self._slowdown and not (raced or listing):
            raise UsageError("--inject-slowdown slows down the contender of a comparison; add --against self")
        if self._slowdown >= 1:
            times = f"the contender does {1 + self._slowdown:g} times the work"
            self._notes.append(f"--inject-slowdown {self._slowdown:g}: {times}; for 10% more, write 0.10")
        # pytest-xdist registers its scheduler later than this.
        distributed = config.getoption("tx", None) and config.getoption("dist", "no") != "no" and not only_lists(config)
        if distributed or hasattr(config, "workerinput"):
            raise UsageError("tfbench cannot measure in parallel; run it without pytest-xdist's -n, or add -n 0")
        if config.getoption("forked", False) and not only_lists(config):
            raise UsageError("each case is measured in processes of its own already; run it without --forked")
        self._profile = option("profile") or ""
        check_folder(config, "--profile", self._profile)
        check_folder(config, "--history", option("history"))
        self._shard = parse_shard(option("shard")) if option("shard") else None
        self._job = job_options(config)
        self._adopting = adopts(config)
        self._patterns = parse_patterns(config.getini(INI))
        policy = preset(option("policy")).with_device_gate(parse_device_gate(option("gate_device")))
        self.policy = with_statistic(policy, option("statistic"))
        parts = {"--shard": self._shard, "--job": self._job, "--changed-only": option("changed_only")}
        partial = next((name for name, given in parts.items() if given), "")
        self._suite_limit = parse_suite_limit(option("gate_suite"), raced=raced or listing, partial=partial)
        if option("changed_only") and not (option("against") or listing):
            raise UsageError("--changed-only compares the code of two sides; add --against git:REV")
        self._processors = worker_processors(option("cpus"), listing=listing)
        count = "1" if listing else option("lanes")
        self._lanes = parse_lanes(count, self._processors, option("cpus"))
        if lost := own_options(config)[1]:
            self._notes.append(
                f"the measuring processes do not see the values of {some(lost, 3)}: no text, numbers or lists"
            )

    # Collection

    def seen(self, items: Sequence[pytest.Item]) -> None:
        """Note the names of all benchmarks, before pytest deselects any."""
        self._places = places(items)
        self.collected = {item.nodeid: item for item in items if is_benchmark(item, adopting=True)}
        if self._unlisted:
            files = some(self._unlisted, 3)
            self._notes.append(f"left out, because {TF_TEST_FILES} in the ini file does not name them: {files}")
        if not items and not self._uncollected:
            config = self._config
            given = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else present_folders(config)
            where = str(config.invocation_params.dir)
            fix = "start pytest in the project's folder, or add a pytest.ini there, which pytest finds from below"
            if given:
                where, names = " ".join(given), " or ".join(config.getini("python_files"))
                fix = f"pytest collects functions named test_* from files named {names}"
            self._notes.append(f"no benchmark was collected in {where}; {fix}")

    def selected(self, items: list[pytest.Item]) -> None:
        """Drop every item that is not a benchmark of this run, and prepare to run the rest.

        Raises `TfbenchError` if a benchmark is declared wrongly, or an option names something that does not exist.
        """
        if whole_suite(self._config):
            check_used(self._patterns, self.collected)
        kept: list[pytest.Item] = []
        unused: list[str] = []
        for item in items:
            if is_benchmark(item, self._adopting):
                case = self.case(item)
                if case.name in self.cases:
                    raise DeclarationError(f"{case.name} was collected twice; give each benchmark a unique name")
                if not wanted_by_device(case, self._device):
                    continue
                self._suite.append(case)
                if self._shard is None or self._shard.has(case):
                    if not only_lists(self._config):
                        take_over(item, self.run)
                    self.cases[case.name] = case
                    kept.append(item)
            elif is_plain(item) and in_shard(item, self._shard):
                kept.append(item)
            elif unknown := unknown_fixture(item):
                self._uncollected[item.nodeid] = not_collected(item.nodeid, f"fixture {unknown!r} not found")
                kept.append(item)  # pytest reports it, with the fixtures that there are
            else:
                unused.append(item.name)
        option = partial(setting, self._config)
        if option("against") or (option("baseline") and option("replay") == ALL):
            kept = by_environment(kept, self.cases)
            self.cases = {item.nodeid: self.cases[item.nodeid] for item in kept if item.nodeid in self.cases}
        staying = set(kept)
        if gone := [item for item in items if item not in staying]:
            self._config.hook.pytest_deselected(items=gone)
        items[:] = kept
        if option("history") and any(is_plain(item) and item.nodeid not in self.cases for item in kept):
            self._notes.append(
                "pytest-benchmark's own numbers are not kept in the history; add --against or --baseline"
            )
        if unused:
            self._notes.append(f"left out, because they take neither bench of tfbench nor benchmark: {some(unused, 3)}")
        have = len(self._processors.every)
        if wanting := [case.short_name for case in self.cases.values() if case.cpus > have]:
            self._notes.append(f"more processors are asked for than the {have} of this run: {some(wanting, 3)}")
        if unnamed := [case.name for case in self.cases.values() if not is_case(case.name)]:
            self._notes.append(f"no comment can show {some([brief(name) for name in unnamed], 3)}, {NO_CASE}")
        if not only_lists(self._config):
            self._display = Display(self._config.pluginmanager.get_plugin("terminalreporter"))
            self._session = Session.assemble(self._request(), list(self.cases.values()), self._display)
            self._write_report()  # a run that is killed leaves every case as an error

    def case(self, item: pytest.Function) -> Case:
        """Return the case of an item. Raises `DeclarationError` if it is declared wrongly."""
        if CASE in item.stash:
            return item.stash[CASE]
        own = thresholds_of(item, self._patterns, self.policy)
        return case_of(item, self._places[item.nodeid], own, statistic_of(item))

    def again(self, collector: pytest.Collector, report: pytest.CollectReport) -> pytest.CollectReport:
        """Collect a module with the real TensorFlow if the stub may have broken it; return the report that counts."""
        call = getattr(report, "call", None)
        error = call.excinfo.value if call is not None and call.excinfo is not None else None
        if not (self.imported and may_need_tensorflow(collector, error)):
            return report
        try:
            collected = with_real_tensorflow(collector, self.policy)
        except SideError as failed:
            report.sections.append(("tfbench", f"with the real TensorFlow: {failed}"))
            return report
        why = f"its import uses a value of TensorFlow ({brief(error)})"
        self._notes.append(f"{collector.nodeid} was collected with the real TensorFlow, because {why}")
        return pytest.CollectReport(collector.nodeid, "passed", None, list(collected))

    def not_collected(self, report: pytest.CollectReport) -> None:
        """Note a file or class that pytest could not collect, or that skips itself."""
        error = report.longreprtext
        if fix := fix_of(error, self._config.rootpath):
            report.sections.append(("tfbench", fix))
        self._uncollected[report.nodeid] = not_collected(report.nodeid, error, skip_reason(report), fix)

    def left_out(self, collector: pytest.Collector) -> None:
        """Note classes whose benchmarks pytest leaves out, some with a warning."""
        if isinstance(collector, pytest.Module) and (names := tf_test_classes(collector.obj)):
            self._unlisted.append(f"{collector.nodeid} ({some(names, 3)})")
        if why := constructor_of(collector):
            self._uncollected[collector.nodeid] = not_collected(collector.nodeid, why)
            self._errors.append(why)

    @property
    def suite(self) -> Suite:
        """The files of the selected cases, and how pytest imports them."""
        option, commands = partial(setting, self._config), only_lists(self._config)  # commands may race commits
        other_tree = commands or bool(option("baseline")) or "git:" in option("against")
        variables = worker_variables(STARTED_WITH, os.environ, other_tree)
        every = [case.name for case in self._suite] or self.cases
        return suite_of(self._config, self.cases, every, variables, bool(self.imported), other_tree)

    def _request(self) -> RunRequest:
        config, option = self._config, partial(setting, self._config)
        root, logs = config.rootpath, (config.getoption(name, None) for name in ("xmlpath", "log_file"))
        options = given(config)
        return RunRequest(
            root=root,
            suite=self.suite,
            policy=self.policy,
            processors=self._processors,
            lanes=self._lanes,
            lanes_ahead=2 * len(self._lanes) if config.getoption("maxfail") else None,
            uncertain=frozenset(name for name, item in self.collected.items() if may_be_skipped(item)),
            executable=sys.executable,
            folder=Layout.of(root).folder,
            collect_command=COMMAND,
            against=option("against"),
            baseline=option("baseline"),
            replay=option("replay"),
            save=option("save_baseline"),
            statistic=options.tfbench_statistic or "",
            slowdown=self._slowdown,
            device=self._device,
            gpus=self._gpus,
            require_gpu=option("require_gpu"),
            changed_only=option("changed_only"),
            gate=gate_options(config.option),
            selection=selection_of(config, options, self.policy.name),
            shard=self._shard,
            suite_cases=tuple(self._suite),
            collected=frozenset(self.collected),
            resume=option("resume"),
            suite_limit=self._suite_limit,
            uncollected=tuple(self._uncollected.values()),
            profile=self._profiles if self._profile else None,
            history=given_history(config, option("history")),
            written=frozenset(Path(file).resolve() for file in (*map(option, REPORTS), *logs) if file),
            variables=STARTED_WITH,
            profile_regressed=self._profiles if option("profile_on_regression") else None,
            **{"seed": random.SystemRandom().randrange(2**32), **self._job},
        )

    @property
    def _profiles(self) -> Path:
        return given_folder(self._config, self._profile, PROFILES)

    # Running

    def run(self, item: pytest.Function) -> None:
        """End the item's test according to the result of its case, which is measured now if necessary."""
        assert self._session is not None
        assert self._display is not None
        case, fixture = self.cases[item.nodeid], benchmark_fixture(item)
        if fixture is not None:
            fixture._mode = "tfbench"  # otherwise pytest-benchmark warns that no test used it
        try:
            with self._session.avoid_worker_cpus():
                result = self._session.lanes.result(case)
        finally:
            self._display.clear()
        if result.sample is not None:
            store_sample(item, case, result)
            if any(run.facts.get(PLAIN, {}).get("reads_stats") for run in result.sample.runs):
                self._notes.append(f"{case.short_name}: {STATS}")
        elif fixture is not None:
            fixture.skipped = True
        if result.verdict is None:
            pytest.skip(result.skip)
        end_test(result, self._strict, partial(in_use, self._config))

    def ended(self, case: Case, report: pytest.TestReport) -> None:
        """Note that pytest, a mark or another plugin ended a case; a result that the case has stays."""
        if self._session is None:
            return
        if report.skipped:
            self._session.runs.skip(case, skip_reason(report))
        elif report.failed:
            text = f"pytest ended it in its {report.when} phase: {failure(report)}"
            if "from pytest-timeout" in text:
                text += "; a race takes longer than a test: add --timeout=0 (tfbench ci --arguments=--timeout=0)"
            self._session.runs.fail(case, text)

    @property
    def _strict(self) -> bool:
        return bool(setting(self._config, "strict_gate"))

    # Ending

    def finish(self, status: int | pytest.ExitCode) -> int | pytest.ExitCode:
        """Write the baseline and the report, and return the exit status of the run."""
        if self._session is None:
            return status
        with suppress(KeyboardInterrupt):  # the report says so
            self._session.judge_suite()
        complete = self._conclude(self._session)
        report, failed = self._session.report(complete=complete), status not in (OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        ruling = rule(report, strict=self._strict, part=True)
        if (report.due or report.verdicts) and ruling.pytest_code and not failed:
            self._errors.append(f"exit code 1, {ruling.result}: {ruling.because}")
            failed = True
        if name := setting(self._config, "save_baseline"):
            if failed or self._session.edited:
                self._errors.append(f"the baseline {name!r} was not saved: the run failed")
            else:
                try:
                    self._notes.append(f"baseline saved: {self._session.save()}")
                except BaselineError as error:
                    self._errors.append(str(error))
                except SideError as error:  # git cannot keep the source tree
                    self._errors.append(f"the baseline {name!r} was not saved: {error}")
        try:
            self._notes += remember(self._session, self._config.rootpath)
        except (TfbenchError, OSError) as error:
            lost = self._errors if setting(self._config, "history") else self._notes
            lost.append(f"the measurements of this run could not be recorded: {error}")
        try:
            self._notes += self._write_report(report)
        except UsageError as error:
            self._errors.append(str(error))
        if status == pytest.ExitCode.NO_TESTS_COLLECTED and self._shard is not None and self._suite:
            status = OK  # the cases are all in other shards
        if self._errors and status == OK:
            return pytest.ExitCode.TESTS_FAILED
        return status

    def _conclude(self, session: Session) -> bool:
        """Find out which cases are missing; false if that is not possible."""
        try:
            session.conclude()
        except TfbenchError as error:
            self._errors.append(f"the cases that are missing here are unknown: {error}")
            return False
        if session.edited:
            self._errors.append(
                f"code was edited during the run, so its measurements are of unknown code: {some(session.edited, 3)}; run it again"
            )
        return not session.edited

    def _write_report(self, report: Report | None = None) -> list[str]:
        """Write the report files that the user asked for, and return a note on each.

        ``report`` is ``None`` before the end of the run. Raises `UsageError` if a file cannot be written.
        """
        if report is None and self._session is not None:
            report = self._session.report()
        empty = Report({"name": setting(self._config, "policy")}, {}, complete=False)
        return self._files.write(report or empty, self._strict)

    def summarise(self, reporter: Any) -> None:
        """Print the report's tables, the notes and the errors."""
        if self._session is None or not (self.cases or self._notes or self._errors):
            return
        reporter.section("tfbench")
        report = self._session.report(complete=True)
        if self.cases:
            width, colour = reporter._tw.fullwidth, reporter._tw.hasmarkup
            text = terminal.render(report, width=width, colour=colour, strict=self._strict, here=self._here)
            reporter.write(in_use(self._config, text))
        if report.profiles:
            place = os.path.relpath(Path(report.profiles[0]["folder"]).parents[1], self._config.invocation_params.dir)
            reporter.line(f"profiles: {place}; tfbench explain CASE --profile {place} reads them")
        if report.interrupted:
            text = "the same command with --resume goes on, and keeps the cases that were measured"
            if lost := self._session.journal.lost:
                text = f"no case that was measured is kept for --resume: {lost}"
            reporter.line(in_use(self._config, text))
        for note in (*self._session.notes, *self._notes):
            reporter.line(in_use(self._config, note))
        for error in self._errors:
            reporter.line(in_use(self._config, error), red=True)

    def _here(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Return the words of a command as they work in the folder that pytest was started in, with the options of this run."""
        if not words:
            return ()
        file, colons, name = words[-1].partition("::")
        place = os.path.relpath(self._config.rootpath / file, self._config.invocation_params.dir)
        return (*words[:-1], *kept_options(self._config.invocation_params.args), f"{place}{colons}{name}")

    def close(self) -> None:
        """End every process, and remove the progress bar."""
        if self._session is not None:
            self._session.close()
        if self._display is not None:
            self._display.close()
