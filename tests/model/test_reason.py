"""Reason codes are enum members in the code and plain strings in reports."""

import json

from tfbench.model import Reason, ReasonCode


def test_a_code_from_a_file_equals_its_member():
    assert Reason("slower", "5% slower") == Reason(ReasonCode.SLOWER, "5% slower")
    assert {ReasonCode.SLOWER: "found"}["slower"] == "found"
    assert str(ReasonCode.SLOWER) == "slower"


def test_a_code_is_a_plain_string_in_json():
    assert json.dumps(Reason(ReasonCode.WITHIN_ABS_TOLERANCE, "").as_json()["code"]) == '"within-slack"'


def test_an_unknown_code_of_another_version_is_kept():
    assert Reason("from-the-future", "").as_json()["code"] == "from-the-future"
