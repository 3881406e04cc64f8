"""Run the cases of a pytest run, show progress, and write its files."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest
from rich.live import Live
from rich.text import Text

from tfbench.errors import DeclarationError, SideError, TfbenchError, UsageError
from tfbench.facts import foreign_distribution, hear_of_children
from tfbench.fs import check_outputs, write_whole
from tfbench.gpus.selection import parse_device
from tfbench.model import PLAIN, TIME, Case, Outcome, Report, Verdict, short_name
from tfbench.model.formats import plain
from tfbench.model.words import span, times
from tfbench.plugin import STARTED_WITH, TAKEN, cases, in_use, only_lists, present_folders, refused
from tfbench.plugin import options as opts
from tfbench.race.lanes import parse_lanes
from tfbench.race.race import Race
from tfbench.race.workers import Suite
from tfbench.report import json_format, markdown, terminal
from tfbench.report.page import check_library
from tfbench.report.report_page import render as render_html
from tfbench.report.screen import QUIET, Screen
from tfbench.ruling import grave, rule
from tfbench.session.options import ALL, PREFIX, RunOptions
from tfbench.session.request import CaseResult, RunProgress, RunRequest
from tfbench.session.results import not_collected
from tfbench.session.session import Session
from tfbench.sides.source_tree import ignored_modules, top_level
from tfbench.sides.yardstick import Yardstick
from tfbench.storage.baselines import PROFILES, Layout
from tfbench.suite.axes import add_scale
from tfbench.suite.claims import STATS
from tfbench.suite.functions import TF_TEST_FILES, is_listed
from tfbench.suite.tensorflow_stub import fix_of, is_lazy, stub_tensorflow, tf_test_classes
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


_SKIPPING = ("skip", "skipif", "xfail")
"""Marks that may keep pytest from running an item."""
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


def store_sample(fixture: Any, case: Case, result: CaseResult) -> None:
    """Hand the sample to the fixture of pytest-benchmark, so that its table, storage and options work on the sample.

    This uses private parts of pytest-benchmark 5.3, so requirements.txt bounds its version.
    """
    sample = result.sample
    if fixture is None or fixture.disabled or sample is None or not sample.runs:
        return
    noted = sample.runs[-1].facts.get(PLAIN, {})
    fixture.extra_info |= noted.get("extra_info", {})
    if "group" in noted:
        fixture.group = noted["group"]
    else:
        fixture.group = fixture.group or case.group.rpartition("::")[2]
        fixture.params = {**(fixture.params or {}), **case.levels}
        fixture.params.pop("variant", None)
    fixture.extra_info["tfbench"] = {"verdict": plain(result.verdict), "facts": sample.runs[0].facts}
    iterations = sample.runs[0].iterations
    stats = fixture._make_stats(iterations)
    for seconds in sample.seconds:
        stats.update(seconds * iterations)


# Show a progress bar with the current race, its result so far and the remaining time


_BAR = 12


class Display:
    """Draws the latest `RunProgress` on a terminal. A log has a line a minute.

    ``reporter`` is pytest's terminal reporter, ``None`` under ``-p no:terminal``.
    """

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter
        self._file = _duplicate(reporter._tw._file) if reporter else None
        self._is_terminal = bool(reporter and reporter.isatty)
        self._told = time.monotonic()
        self._live: Live | None = None
        self._began: tuple[float, int] | None = None
        """Time of the first progress report, and the number of cases done before it, such as those of a resumed run."""

    def __call__(self, progress: RunProgress) -> None:
        if self._file is None:
            return
        now = time.monotonic()
        began, before = self._began = self._began or (now, progress.done)
        if not self._is_terminal:
            if now - self._told >= QUIET:
                self._told = now
                self._file.write(f"\n{harmless(_progress_words(progress, now - began, progress.done - before))}\n")
                self._file.flush()
                self._reporter.currentfspath = None
            return
        if self._live is None:
            # pytest would capture a newline of the reporter. Without a current file it prints the file name again.
            self._file.write("\n")
            self._reporter.currentfspath = None
            console = Screen(file=self._file, force_terminal=True)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        filled = round(_BAR * progress.done / progress.total) if progress.total else 0
        bar = ("━" * filled, "green"), ("━" * (_BAR - filled), "dim")
        words = _progress_words(progress, now - began, progress.done - before)
        self._live.update(Text.assemble(*bar, f" {words}", no_wrap=True, overflow="ellipsis"), refresh=True)

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


def _progress_words(progress: RunProgress, seconds: float, done: int) -> str:
    """Say how many cases are done, how long the others take if ``done`` ones took these seconds, and what the run does."""
    left = f", {span(seconds / done * (progress.total - progress.done))} left" if done else ""
    race = f"  {race_summary(progress.race)}" if progress.race else ""
    return f"{progress.done}/{progress.total}{left}  {short_name(progress.text)}{race}"


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
    if known := [(index, race.decisions[index]) for index in race.undecided if index in race.decisions]:
        index, decision = known[0]
        label = f" {race.entrants[index].case.label}" if len(race.entrants) > 2 else ""
        words += f",{label} {times(decision.comparison.ratio)}"
    return words


# Record a run for later runs, and tell how its changes become the baseline


def remember(session: Session) -> list[str]:
    """Record the run in its history and as a candidate for its baseline; return notes for the user.

    Raises `TfbenchError` or `OSError` if the run cannot be recorded.
    """
    with suppress(OSError):  # a history may be elsewhere
        Layout(session.request.folder).write_gitignore()
    candidate = session.remember()
    changed = (Outcome.REGRESSED, Outcome.IMPROVED)
    if candidate is None or not any(verdict.outcome in changed for verdict in session.report().verdicts):
        return []
    left_out = session.recorder.store.left_out(candidate.stem)
    gone = {verdict.case.name for verdict in session.strategy.missing()}
    how = f"update the baseline: tfbench baseline accept {candidate.stem} --reason '…'{' --drop-missing' if left_out else ''}"
    if unmeasured := [name for name in left_out if name not in gone]:
        why = f"this run did not measure {len(unmeasured)} of its cases"
        how = f"run without -k to be able to update the baseline {candidate.stem!r}: {why}"
    return [f"if the change is intended, {how}"]


# Write the report files that the options of pytest name: JSON, HTML and Markdown


REPORTS = ("report_json", "report_html", "report_markdown")
"""Options with the file of a report, by their names in Python."""


def report_files(config: pytest.Config) -> dict[str, str]:
    """Return the file of each report by its option, checked before the run; empty if pytest runs no test.

    Raises `UsageError` if a path is given twice or has another file, or HTML's chart library is not installed.
    """
    paths = {option: path for option in REPORTS if (path := config.getoption(f"tfbench_{option}"))}
    check_outputs({opts.written(option): path for option, path in paths.items()})
    if "report_html" in paths:
        check_library()
    return {} if only_lists(config) else paths


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
        self._report: Report | None = None  # of a run that has come to its end
        self._display: Display | None = None
        self._suite: list[Case] = []  # of all shards
        self.collected: dict[str, pytest.Function] = {}
        self._places: Mapping[str, tuple[int, int]] = {}
        self._uncollected: dict[str, CaseResult] = {}
        self._unlisted: list[str] = []  # files with classes of tf.test.Benchmark, and these
        self._imported: list[str] = []  # TensorFlow and packages on top of it
        self._files = report_files(config)
        self._strict = bool(config.getoption("tfbench_strict_gate"))
        self._write_report()  # the report of an earlier run must not stay where this one fails
        self._options = options = RunOptions.of(config.option)
        self._listing = only_lists(config)
        opts.check_options(config, options)
        self._device, _ = parse_device(options.device)
        self._job = opts.job_of(options)
        self._adopting = self._listing or bool(options.against or options.baseline or options.save_baseline)
        self.policy = options.policy
        self._processors = opts.worker_processors(options.cpus, listing=self._listing)
        self._lanes = parse_lanes("1" if self._listing else options.lanes, self._processors, options.cpus)
        if lost := opts.own_options(config)[1]:
            self._notes.append(f"measuring processes do not see {some(lost, 3)}: no text, number or list")
        self._before: Any = None
        if threading.current_thread() is threading.main_thread():
            hear_of_children()
            # A cancelled job gets SIGTERM: like Ctrl-C it ends the run, with a report of the cases measured so far.
            self._before = signal.signal(signal.SIGTERM, signal.default_int_handler) or signal.SIG_DFL

    def pytest_report_header(self) -> list[str]:
        taken = self._config.stash.get(TAKEN, [])
        notes = [f"{name} belongs to another plugin here; use {PREFIX}{name[2:]}" for name in taken]
        if unused := [opts.written(name) for name in opts.WITHOUT_EFFECT if opts.is_given(self._config, name)]:
            notes.append(f"without effect in a race, which --policy plans: {', '.join(unused)}")
        return [f"tfbench: {note}" for note in (*notes, foreign_distribution()) if note]

    # Collection

    @pytest.hookimpl(trylast=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        add_scale(metafunc)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        with stub_tensorflow() as self._imported:
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> Any:
        if (refused := cases.misnamed(module_path, parent)) is not None:
            return refused
        return cases.ListedFile.from_parent(parent, path=module_path) if is_listed(self._config, module_path) else None

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> Any:
        """Collect a file that the ini option names and whose name is no name of a test."""
        usual = any(file_path.match(pattern) for pattern in self._config.getini("python_files"))
        if usual or parent.session.isinitpath(file_path) or not is_listed(self._config, file_path):
            return None  # pytest does it
        return self.pytest_pycollect_makemodule(file_path, parent)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, obj: object) -> list[pytest.Item] | None:
        """Leave out parts of the stub, such as the module ``test_util``, which pytest would take for a function."""
        return [] if is_lazy(obj) else None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, object, object]:
        """Take the cases from the items that all plugins leave, those of ``--lf`` included.

        pytest registers the plugin of ``--lf`` in its `pytest_configure`. This one comes later, and so has the last word.
        """
        self._seen(items)
        result = yield
        with refused(self._config):
            self._selected(items)
        return result

    def _seen(self, items: Sequence[pytest.Item]) -> None:
        """Note the names of all benchmarks, before pytest deselects any."""
        self._places = cases.places(items)
        self.collected = {item.nodeid: item for item in items if cases.is_benchmark(item, adopting=True)}
        if self._unlisted:
            files = some(self._unlisted, 3)
            self._notes.append(f"left out, because {TF_TEST_FILES} in the ini file does not name them: {files}")
        if not items and not self._uncollected:
            config = self._config
            given = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else present_folders(config)
            where = str(config.invocation_params.dir)
            fix = "start pytest in the project's folder; `tfbench init` there writes a pytest.ini and a first benchmark"
            if given:
                where, names = " ".join(given), " or ".join(config.getini("python_files"))
                fix = f"pytest collects functions named test_* from files named {names}"
            self._notes.append(f"no benchmark was collected in {where}; {fix}")

    def _selected(self, items: list[pytest.Item]) -> None:
        """Drop every item that is not a benchmark of this run, and prepare to run the rest.

        Raises `TfbenchError` if a benchmark is declared wrongly, or an option names something that does not exist.
        """
        if self.collected and not items:
            self._notes.append("no benchmark is selected; `pytest --benchmark --collect-only -q` lists all")
        options = self._options
        kept: list[pytest.Item] = []
        unused: list[str] = []
        for item in items:
            if cases.is_benchmark(item, self._adopting):
                case = self.case(item)
                if case.name in self.cases:
                    raise DeclarationError(f"{case.name} was collected twice; give each benchmark a unique name")
                if self._device not in ("all", case.levels.get("device", self._device)):
                    continue
                self._suite.append(case)
                if options.shard is None or options.shard.has(case):
                    if not self._listing:
                        cases.take_over(item, self.run)
                    self.cases[case.name] = case
                    kept.append(item)
            elif cases.is_plain(item):
                if options.shard is None or options.shard.has(Case.named(item.nodeid)):
                    kept.append(item)
            elif unknown := cases.unknown_fixture(item):
                self._uncollected[item.nodeid] = not_collected(item.nodeid, f"fixture {unknown!r} not found")
                kept.append(item)  # pytest reports it, with the fixtures that there are
            else:
                unused.append(item.name)
        if options.against or (options.baseline and options.replay == ALL):
            kept = cases.by_environment(kept, self.cases)
            self.cases = {item.nodeid: self.cases[item.nodeid] for item in kept if item.nodeid in self.cases}
        staying = set(kept)
        if gone := [item for item in items if item not in staying]:
            self._config.hook.pytest_deselected(items=gone)
        items[:] = kept
        if options.history and any(cases.is_plain(item) and item.nodeid not in self.cases for item in kept):
            self._notes.append("pytest-benchmark's numbers are not kept in the history; add --against or --baseline")
        if unused:
            self._notes.append(f"left out, because they take neither bench of tfbench nor benchmark: {some(unused, 3)}")
        have = len(self._processors.every)
        if wanting := [case.short_name for case in self.cases.values() if case.cpus > have]:
            self._notes.append(f"more processors are asked for than the {have} of this run: {some(wanting, 3)}")
        if unnamed := [case.name for case in self.cases.values() if not is_case(case.name)]:
            self._notes.append(f"no comment can show {some([brief(name) for name in unnamed], 3)}, {NO_CASE}")
        if not self._listing:
            self._display = Display(self._config.pluginmanager.get_plugin("terminalreporter"))
            self._session = Session(self._request(), list(self.cases.values()), self._display)
            self._write_report()  # a run that is killed leaves every case as an error

    def case(self, item: pytest.Function) -> Case:
        """Return the case of an item. Raises `DeclarationError` if it is declared wrongly."""
        if cases.CASE in item.stash:
            return item.stash[cases.CASE]
        return cases.case_of(item, self._places[item.nodeid], self.policy)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Note what pytest could not collect, what skips itself, and classes whose benchmarks pytest leaves out."""
        report = yield
        if not report.passed:
            report = self._again(collector, report)
            if not report.passed:
                error = report.longreprtext
                if fix := fix_of(error, self._config.rootpath):
                    report.sections.append(("tfbench", fix))
                self._uncollected[report.nodeid] = not_collected(report.nodeid, error, skip_reason(report), fix)
            return report
        if isinstance(collector, pytest.Module) and (names := tf_test_classes(collector.obj)):
            self._unlisted.append(f"{collector.nodeid} ({some(names, 3)})")
        if why := cases.constructor_of(collector):
            self._uncollected[collector.nodeid] = not_collected(collector.nodeid, why)
            self._errors.append(why)
        return report

    def _again(self, collector: pytest.Collector, report: pytest.CollectReport) -> pytest.CollectReport:
        """Collect a module with the real TensorFlow if the stub may have broken it; return the report that counts."""
        call = getattr(report, "call", None)
        error = call.excinfo.value if call is not None and call.excinfo is not None else None
        if not (self._imported and isinstance(collector, pytest.Module) and isinstance(error, cases.STUBBED)):
            return report
        try:
            collected = cases.with_real_tensorflow(collector, self.policy)
        except SideError as failed:
            report.sections.append(("tfbench", f"with the real TensorFlow: {failed}"))
            return report
        why = f"its import uses a value of TensorFlow ({brief(error)})"
        self._notes.append(f"{collector.nodeid} was collected with the real TensorFlow, because {why}")
        return pytest.CollectReport(collector.nodeid, "passed", None, list(collected))

    @property
    def suite(self) -> Suite:
        """The files of the selected cases, and how pytest imports them."""
        config, root = self._config, self._config.rootpath
        # Commands, which list, may race commits.
        other_tree = self._listing or bool(self._options.baseline) or "git:" in self._options.against
        every = [case.name for case in self._suite] or self.cases
        files, all_files = (dict.fromkeys(name.partition("::")[0] for name in names) for names in (self.cases, every))
        configured = Path(os.path.relpath(config.inipath, root)).as_posix() if config.inipath else ""
        top = top_level(root)
        return Suite(
            files=tuple(files), inifile=configured, yardstick=Yardstick((*present_folders(config), *all_files), configured),
            import_mode=config.getoption("importmode"), made=str(Layout.of(root).shared_set_ups), cpus=opts.available_cpus(),
            variables=opts.worker_variables(STARTED_WITH, os.environ, other_tree), tree=str(top or ""),
            imports_tensorflow=bool(self._imported), options=opts.own_options(config)[0],
            ignored=ignored_modules(top) if top and other_tree else (),
        )  # fmt: skip

    def _request(self) -> RunRequest:
        config, options, asked = self._config, self._options, opts.given(self._config)
        files = (*(f"tfbench_{name}" for name in REPORTS), "xmlpath", "log_file")
        written = [config.getoption(name, None) for name in files]
        own = {"statistic": asked.tfbench_statistic or "", "history": opts.history_of(config, options.history)}
        return RunRequest(
            **{**vars(options), **own, **self._job}, root=config.rootpath, suite=self.suite,
            processors=self._processors, lane_processors=self._lanes,
            lanes_ahead=2 * len(self._lanes) if config.getoption("maxfail") else None,
            uncertain=frozenset(name for name, item in self.collected.items() if any(map(item.get_closest_marker, _SKIPPING))),
            executable=sys.executable, folder=Layout.of(config.rootpath).folder, collect_command=opts.COMMAND,
            gate=opts.gate_options(config.option), selection=opts.selection_of(config, asked, self.policy.name),
            suite_cases=tuple(self._suite), collected=frozenset(self.collected),
            uncollected=tuple(self._uncollected.values()),
            profiles=opts.given_folder(config, options.profile, PROFILES),
            written=frozenset(Path(file).resolve() for file in written if file), variables=STARTED_WITH,
        )  # fmt: skip

    # Running

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        if pyfuncitem.nodeid not in self.cases:
            return None
        self.run(pyfuncitem)
        return True

    def run(self, item: pytest.Function) -> None:
        """End the item's test according to the result of its case, which is measured now if necessary."""
        assert self._session is not None
        assert self._display is not None
        case = self.cases[item.nodeid]
        fixture: Any = item.funcargs.get("benchmark")
        if fixture is not None:
            fixture._mode = "tfbench"  # otherwise pytest-benchmark warns that no test used it
        try:
            with self._session.avoid_worker_cpus():
                result = self._session.result(case)
        finally:
            self._display.clear()
        if result.sample is not None:
            store_sample(fixture, case, result)
            if any(run.facts.get(PLAIN, {}).get("reads_stats") for run in result.sample.runs):
                self._notes.append(f"{case.short_name}: {STATS}")
        elif fixture is not None:
            fixture.skipped = True
        if result.verdict is None:
            pytest.skip(result.skip)
        end_test(result, self._strict, partial(in_use, self._config))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note that pytest, a mark or another plugin ended a case; a result that the case has stays."""
        report = yield
        case = self.cases.get(item.nodeid)
        if self._session is None or case is None:
            return report
        if report.skipped:
            self._session.runs.skip(case, skip_reason(report))
        elif report.failed:
            text = f"pytest ended it in its {report.when} phase: {failure(report)}"
            if "from pytest-timeout" in text:
                text += "; a race takes longer than a test: add --timeout=0 (tfbench ci --arguments=--timeout=0)"
            self._session.runs.fail(case, text)
        return report

    @pytest.hookimpl(wrapper=True, optionalhook=True)
    def pytest_benchmark_group_stats(self) -> Generator[None, Any, Any]:
        groups = yield
        return table_groups(self._config, groups)

    # Ending

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note that the run was interrupted, wherever pytest was, and by `pytest.exit` as well."""
        if self._session is not None and not isinstance(excinfo.value, pytest.Session.Interrupted):  # as by --stepwise
            self._session.interrupted = True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int | pytest.ExitCode
    ) -> Generator[None, None, None]:
        session.exitstatus = ours = self.finish(exitstatus)
        yield
        if self._options.against or self._options.baseline:
            # A plugin that has left out all cases, such as pytest-testmon, calls that a success.
            session.exitstatus = session.exitstatus or ours

    def finish(self, status: int | pytest.ExitCode) -> int | pytest.ExitCode:
        """Write the baseline and the report, and return the exit status of the run."""
        if self._session is None:
            return status
        with suppress(KeyboardInterrupt):  # the report says so
            self._session.judge_suite()
        if self._before is not None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one that comes now must not cut the report short
        complete = True
        try:
            self._session.conclude()
        except TfbenchError as error:
            self._errors.append(f"the cases that are missing here are unknown: {error}")
            complete = False
        if edited := self._session.edited:
            why = "code was edited during the run, so its measurements are of unknown code"
            self._errors.append(f"{why}: {some(edited, 3)}; run it again")
        self._report = report = self._session.report(complete=complete and not edited)
        failed = status not in (OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        ruling = rule(report, strict=self._strict, part=True)
        if (report.due or report.verdicts) and ruling.pytest_code and not failed:
            self._errors.append(f"exit code 1, {ruling.result}: {ruling.because}")
            failed = True
        if name := self._options.save_baseline:
            if failed or edited:
                self._errors.append(f"the baseline {name!r} was not saved: the run failed")
            else:
                try:
                    self._notes.append(f"baseline saved: {self._session.recorder.save(self._session.measurements())}")
                except TfbenchError as error:  # such as one of git, which cannot keep the source tree
                    self._errors.append(f"the baseline {name!r} was not saved: {error}")
        try:
            self._notes += remember(self._session)
        except (TfbenchError, OSError) as error:
            lost = self._errors if self._options.history else self._notes
            lost.append(f"the measurements of this run could not be recorded: {error}")
        try:
            self._notes += self._write_report()
        except UsageError as error:
            self._errors.append(str(error))
        if status == pytest.ExitCode.NO_TESTS_COLLECTED and self._options.shard is not None and self._suite:
            status = OK  # the cases are all in other shards
        return pytest.ExitCode.TESTS_FAILED if self._errors and status == OK else status

    def _write_report(self) -> list[str]:
        """Write the report files that the user asked for, as far as the run has come, and return a note on each.

        Raises `UsageError` if a file cannot be written.
        """
        report = self._report or (self._session.report() if self._session is not None else None)
        report = report or Report({"name": self._config.getoption("tfbench_policy")}, {}, complete=False)
        strict = self._strict
        writers: Mapping[str, Callable[[Report], str]] = {
            "report_json": json_format.render, "report_html": partial(render_html, strict=strict),
            "report_markdown": lambda report: in_use(self._config, markdown.render(report, strict=strict)),
        }  # fmt: skip
        for option, path in self._files.items():
            try:
                write_whole(Path(path), writers[option](report))
            except OSError as error:
                raise UsageError(f"{opts.written(option)} {path}: {error.strerror or error}") from None
        return [f"report written: {path}" for path in self._files.values()]

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the report's tables, the notes and the errors."""
        reporter = terminalreporter
        report = self._report
        if self._session is None or report is None or not (self.cases or self._notes or self._errors):
            return
        reporter.section("tfbench")
        if self.cases:
            width, colour = reporter._tw.fullwidth, reporter._tw.hasmarkup
            root = os.path.relpath(self._config.rootpath, self._config.invocation_params.dir)
            here = "" if root == "." else f"{root}/"
            text = terminal.render(report, width=width, colour=colour, strict=self._strict, root=here)
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

    def pytest_unconfigure(self) -> None:
        """End every process, and remove the progress bar."""
        try:
            for part in (self._session, self._display):
                if part is not None:
                    part.close()
        finally:
            if self._before is not None:
                signal.signal(signal.SIGTERM, self._before)
