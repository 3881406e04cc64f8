"""Write the report files that the options of pytest name: JSON, HTML and Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from tfbench.doctor.calibration.false_alarms import measured_false_alarms
from tfbench.errors import UsageError
from tfbench.fs import write_whole
from tfbench.model import Report
from tfbench.plugin import REPORTS
from tfbench.plugin.options import check_not_taken_for_test
from tfbench.report import json_writer, markdown
from tfbench.report.html.page import check_library
from tfbench.report.html.report_page import PageContext
from tfbench.report.html.report_page import render as render_html
from tfbench.storage.layout import Layout


class ReportFiles:
    """The report files of a run, checked before it starts.

    Raises:
        UsageError: A path would be taken for a test, or the chart library of HTML reports is not installed.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._root = config.rootpath
        given = {option: config.getoption(option.strip("-").replace("-", "_")) for option in REPORTS}
        self._paths: Mapping[str, str] = {option: path for option, path in given.items() if path}
        for option, path in self._paths.items():
            check_not_taken_for_test(config, option, path)
        if "--report-html" in self._paths:
            check_library()
        if config.getoption("collectonly"):
            self._paths = {}

    def write(self, report: Report, strict: bool = False) -> list[str]:
        """Write every file, each as a whole, and return a note on each.

        Args:
            strict: Whether the run was gated strictly, see `tfbench.ruling.rule`.

        Raises:
            UsageError: A file cannot be written.
        """
        writers: Mapping[str, Callable[[Report], str]] = {
            "--report-json": json_writer.render, "--report-html": partial(self._html, strict=strict),
            "--report-markdown": partial(markdown.render, strict=strict),
        }  # fmt: skip
        for option, path in self._paths.items():
            try:
                write_whole(Path(path), writers[option](report))
            except OSError as error:
                raise UsageError(f"{option} {path}: {error.strerror or error}") from None
        return [f"report written: {path}" for path in self._paths.values()]

    def _html(self, report: Report, strict: bool) -> str:
        way = "sides" if any(one.side == "baseline" for one in report.rounds) else "variants"
        rate = measured_false_alarms(Layout.of(self._root).calibration, str(report.policy.get("name", "")), way)
        return render_html(report, PageContext(false_alarms=rate, strict=strict))
