"""Releases of a small real package, asked of the index through uv."""

from tfbench.sides.environments import between, last_patches


def test_releases_between_two_are_listed_in_the_order_asked_for():
    assert between("iniconfig", "1.1.1", "2.0.0") == ["1.1.1", "2.0.0"]
    assert between("iniconfig", "2.0.0", "1.1.1") == ["2.0.0", "1.1.1"]


def test_the_last_patch_of_each_minor_version_and_both_ends_stay():
    versions = ["2.15.0", "2.15.1", "2.16.1", "2.16.2", "2.17.0", "2.17.1"]
    assert last_patches(versions) == ["2.15.0", "2.15.1", "2.16.2", "2.17.1"]
    assert last_patches(versions[::-1]) == ["2.17.1", "2.16.2", "2.15.1", "2.15.0"]
