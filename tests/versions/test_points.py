"""Ends of a bisection that have no releases in between."""

import pytest

from tfbench.errors import UsageError
from tfbench.versions import bisect
from tfbench.versions.bisect import points_between


@pytest.mark.parametrize(
    ("good", "bad", "labels"),
    [
        ("tensorflow==2.15.1+python==3.10", "tensorflow==2.15.1+python==3.11", ["python==3.10", "python==3.11"]),
        ("tensorflow==2.10.1+env:A=1", "tensorflow==2.10.1", ["env:A=1", "tensorflow==2.10.1"]),
        ("self", "env:A=1", ["self", "env:A=1"]),
        ("tensorflow==2.21.0", "tf-nightly", ["tensorflow==2.21.0", "tf-nightly"]),
    ],
)
def test_ends_with_nothing_in_between_are_the_only_points(tmp_path, good, bad, labels):
    points = points_between(good, bad, tmp_path)
    assert [point.label for point in points] == labels
    assert [point.spec for point in points] == [good, bad]


@pytest.mark.parametrize(
    ("good", "bad", "reported"),
    [
        ("tensorflow-cpu==2.19.0", "tensorflow==2.21.0", "must differ in the version of one package"),
        ("2.19.0", "2.19.0+keras==3.9.0", "must differ in the version of one package"),
        ("env:A=1+env:B=2", "env:B=2+env:A=1", "are the same; give two"),
        ("keras==3.9", "Keras==3.9.0", "are the same version; give two"),
        ("2.19.0", "latest", "the newest tensorflow is no end; name its version, such as tensorflow==VERSION"),
        ("2.19.0", "HEAD", "one is a version and the other a revision"),
    ],
)
def test_ends_without_one_difference_are_refused(tmp_path, good, bad, reported):
    with pytest.raises(UsageError, match=reported):
        points_between(good, bad, tmp_path)


@pytest.mark.parametrize("setting", ["", "+env:A=1", "+python==3.11"])
def test_releases_lie_between_ends_with_the_same_setting(tmp_path, monkeypatch, setting):
    monkeypatch.setattr(bisect, "between", lambda *asked: list(asked[1:]))
    points = points_between(f"My_Package==1.0{setting}", f"my-package==2.0{setting}", tmp_path)
    assert [point.spec for point in points] == [f"my-package==1.0{setting}", f"my-package==2.0{setting}"]
    turned = points_between(f"{setting[1:]}+keras==1.0".lstrip("+"), f"{setting[1:]}+keras==2.0".lstrip("+"), tmp_path)
    assert [point.label for point in turned] == ["1.0", "2.0"]


def test_commits_lie_between_revisions_with_the_same_setting(tmp_path, monkeypatch):
    monkeypatch.setattr(bisect, "commits", lambda root, *ends: [(end, "about") for end in ends])
    points = points_between("git:v1+env:A=1", "git:v2+env:A=1", tmp_path)
    assert [point.spec for point in points] == ["git:v1+env:A=1", "git:v2+env:A=1"]
    points = points_between("one+two", "one+three", tmp_path)  # names of branches
    assert [point.label for point in points] == ["one+two", "one+three"]
