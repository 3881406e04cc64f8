"""Releases of a small real package, asked of the index through uv."""

import pytest

from tfbench.errors import SideError
from tfbench.sides import environments
from tfbench.sides.environments import ResolveError, between, last_patches, locked_requirements


def test_releases_between_two_are_listed_in_the_order_asked_for():
    assert between("iniconfig", "1.1.1", "2.0.0") == ["1.1.1", "2.0.0"]
    assert between("iniconfig", "2.0.0", "1.1.1") == ["2.0.0", "1.1.1"]


def test_releases_are_listed_whatever_way_the_name_is_written():
    assert between("Typing_Extensions", "4.12.0", "4.12.2") == ["4.12.0", "4.12.1", "4.12.2"]


def test_a_release_with_wheels_for_a_python_in_the_middle_alone_is_listed(monkeypatch):
    def resolve(requirements, *options):
        fits = "3.12" in options and ">1.0,<3.0" in requirements[0]
        return ["thing==2.0"] if fits else _refuse("No solution found when resolving dependencies")

    monkeypatch.setattr(environments, "locked_requirements", resolve)
    assert between("thing", "1.0", "3.0") == ["1.0", "2.0", "3.0"]


def test_an_index_that_does_not_answer_is_no_index_without_releases(monkeypatch):
    monkeypatch.setattr(environments, "locked_requirements", lambda *_: _refuse("error: 401 Unauthorized"))
    with pytest.raises(SideError, match="thing: its releases cannot be listed: error: 401 Unauthorized"):
        between("thing", "1.0", "3.0")


def _refuse(text):
    raise ResolveError(text)


@pytest.mark.parametrize(("first", "last", "wanted"), [("1.0rc1", "1.0rc2", "allow"), ("1.0rc1", "1.0", "disallow")])
def test_prereleases_are_listed_between_two_of_them(monkeypatch, first, last, wanted):
    asked = set()
    monkeypatch.setattr(environments, "_release", lambda *_, early: asked.add(early))
    between("thing", first, last)
    assert asked == {wanted}


def test_the_last_patch_of_each_minor_version_and_both_ends_stay():
    versions = ["2.15.0", "2.15.1", "2.16.1", "2.16.2", "2.17.0", "2.17.1"]
    assert last_patches(versions) == ["2.15.0", "2.15.1", "2.16.2", "2.17.1"]
    assert last_patches(versions[::-1]) == ["2.17.1", "2.16.2", "2.15.1", "2.15.0"]


def test_behind_a_certificate_that_only_the_system_trusts_uv_tries_again(tmp_path, monkeypatch):
    uv = tmp_path / "uv"
    uv.write_text(
        '#!/bin/sh\n[ "$UV_SYSTEM_CERTS" ] && exec echo thing==1\necho "invalid peer certificate: UnknownIssuer" >&2\nexit 2\n'
    )
    uv.chmod(0o755)
    monkeypatch.setattr(environments, "_program", lambda: str(uv))
    monkeypatch.delenv("UV_SYSTEM_CERTS", raising=False)
    assert locked_requirements(["thing"]) == ["thing==1"]
    monkeypatch.setenv("UV_SYSTEM_CERTS", "")  # the user's choice stays
    with pytest.raises(ResolveError, match="invalid peer certificate"):
        locked_requirements(["thing"])
