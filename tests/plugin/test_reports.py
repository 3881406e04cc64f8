"""The report files that options of pytest name."""

from types import SimpleNamespace

import pytest

from tfbench.errors import UsageError
from tfbench.plugin import runner


def test_one_file_for_two_reports_is_refused(monkeypatch):
    monkeypatch.setattr(runner, "check_not_taken_for_test", lambda *_: None)
    with pytest.raises(UsageError, match="--report-json and --report-markdown both write r; name two files"):
        runner.ReportFiles(
            SimpleNamespace(getoption={"tfbench_report_markdown": "r", "tfbench_report_json": "./r"}.get)
        )
