"""Ends of a bisection that have no releases in between."""

import pytest

from tfbench.errors import UsageError
from tfbench.versions.bisect import points_between


@pytest.mark.parametrize(
    ("good", "bad", "labels"),
    [
        ("tensorflow==2.15.1+python==3.10", "tensorflow==2.15.1+python==3.11", ["python==3.10", "python==3.11"]),
        ("tensorflow==2.10.1+env:A=1", "tensorflow==2.10.1", ["env:A=1", "tensorflow==2.10.1"]),
        ("env:A=1", "env:A=2", ["env:A=1", "env:A=2"]),
        ("tensorflow==2.21.0", "tf-nightly", ["tensorflow==2.21.0", "tf-nightly"]),
        (
            "tensorflow==2.21.0+keras==3.15.1",
            "tf-nightly==2.23.0.dev2+keras==3.15.1",
            ["tensorflow==2.21.0", "tf-nightly==2.23.0.dev2"],
        ),
    ],
)
def test_ends_with_nothing_in_between_are_the_only_points(tmp_path, good, bad, labels):
    points = points_between(good, bad, tmp_path)
    assert [point.label for point in points] == labels
    assert [point.spec for point in points] == [good, bad]


def test_ends_that_differ_in_a_version_and_a_setting_are_refused(tmp_path):
    with pytest.raises(UsageError, match="must differ in the version of one package"):
        points_between("tensorflow==2.15.1+env:A=1", "tensorflow==2.16.1", tmp_path)
