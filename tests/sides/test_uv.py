"""Releases of a small real package, asked of the index through uv."""

import pytest

from tfbench.sides import environments
from tfbench.sides.environments import ResolveError, between, last_patches, resolved


def test_releases_between_two_are_listed_in_the_order_asked_for():
    assert between("iniconfig", "1.1.1", "2.0.0") == ["1.1.1", "2.0.0"]
    assert between("iniconfig", "2.0.0", "1.1.1") == ["2.0.0", "1.1.1"]


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
    assert resolved(["thing"]) == ["thing==1"]
    monkeypatch.setenv("UV_SYSTEM_CERTS", "")  # the user's choice stays
    with pytest.raises(ResolveError, match="invalid peer certificate"):
        resolved(["thing"])
