"""What pytest-benchmark prints beside the summary."""

from types import SimpleNamespace

import pytest

from tfbench.plugin.runner import table_groups

OURS, PLAIN = {"extra_info": {"tfbench": {}}}, {"extra_info": {}}
GROUPS = [("a", [OURS, PLAIN]), ("b", [OURS])]


def config(*words):
    return SimpleNamespace(invocation_params=SimpleNamespace(args=words))


def test_tables_have_plain_tests_alone():
    assert table_groups(config("--benchmark", "--benchmark-json=x"), GROUPS) == [("a", [PLAIN])]


@pytest.mark.parametrize("option", ["--benchmark-columns=min", "--benchmark-verbose", "--benchmark-histogram"])
def test_tables_are_whole_on_request(option):
    assert table_groups(config("--benchmark", option), GROUPS) == GROUPS
