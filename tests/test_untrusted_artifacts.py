"""Malicious artifacts are refused with a reason: nothing is written and nothing crashes."""

import io
import json
import stat
import struct
import zipfile

import pytest

from tests.report.test_json_reader import REPORT
from tfbench.cli import main
from tfbench.errors import ReportError
from tfbench.report import artifact, json_format, markdown
from tfbench.report.artifact import load_artifact
from tfbench.ruling import acceptances, decided

GOOD = json_format.render(REPORT)


def archive(*files, compression=zipfile.ZIP_DEFLATED):
    """Build a zip of names, or of entries, with their contents."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression, compresslevel=1) as writing:
        for name, content in files:
            writing.writestr(name, content)
    return made.getvalue()


def entry(name, mode):
    made = zipfile.ZipInfo(name)
    made.external_attr = mode << 16
    return made


def changed(*path, to):
    """Replace a value of the report by JSON text."""
    content = json.loads(GOOD)
    at = content
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = "@@"
    return json.dumps(content).replace('"@@"', to, 1)


def bad_artifacts():
    """Yield the name, bytes and file suffix of each bad artifact."""
    names = ["../report.json", "/etc/report.json", "a/report.json", "a\\report.json", "C:report.json", ".report.json",
             "report.txt", "report", "report.json/", "rep ort.json", "répört.json", "-r.json", "x" * 200 + ".json",
             "$(id).json", "`id`.json", "report.json;id", "..", "a/../../b.json", "%2e%2e.json"]  # fmt: skip
    for name in names:
        yield f"name {name[:30]!r}", archive((name, GOOD)), ".zip"
    for kind in (stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK):
        yield f"mode {kind:o}", archive((entry("report.json", kind | 0o777), "/etc/passwd")), ".zip"
    yield "no file", archive(), ".zip"
    yield "too many files", archive(*((f"r{n}.json", "{}") for n in range(257))), ".zip"
    yield "two reports", archive(("a.json", GOOD), ("b.json", GOOD)), ".zip"
    yield "bomb", archive(("report.json", b" " * (artifact.FILE_BYTES + 1))), ".zip"
    yield "many bombs", archive(*((f"r{n}.json", b" " * artifact.FILE_BYTES) for n in range(5))), ".zip"
    whole = archive(("report.json", GOOD))
    for cut in range(40):
        yield f"cut {cut}", whole[: len(whole) * cut // 40], ".zip"
    yield (
        "encrypted",
        whole.replace(b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01\x00"),
        ".zip",
    )
    at = whole.index(b"PK\x01\x02")
    for method in (1, 6, 9, 14, 97, 255):
        yield f"method {method}", whole[: at + 10] + struct.pack("<H", method) + whole[at + 12 :], ".zip"
    yield "not a zip", GOOD.encode(), ".zip"
    yield "checksum", whole[: at + 16] + b"\0\0\0\0" + whole[at + 20 :], ".zip"

    texts = {
        "empty": "", "not JSON": "{", "a list": "[]", "a number": "1", "null": "null", "nothing": "{}",
        "deep": "[" * 100_000, "deep objects": '{"a":' * 100_000, "NaN": changed("wall_seconds", to="NaN"),
        "Infinity": changed("wall_seconds", to="Infinity"), "-Infinity": changed("wall_seconds", to="-Infinity"),
        "huge float": changed("wall_seconds", to="1e999"), "huge whole number": changed("seed", to="9" * 5000),
        "long whole number": changed("seed", to="9" * 19), "negative": changed("wall_seconds", to="-1"),
        "key twice": GOOD.replace('"seed"', '"seed": 1, "seed"'), "nested key twice": GOOD.replace('"code"', '"code": "", "code"'),
        "verdict twice": changed("verdicts", to=json.dumps([json.loads(GOOD)["verdicts"][0]] * 2)),
        "due twice": changed("due", to=json.dumps([REPORT.verdicts[0].case.name] * 2)),
        "long name": changed("verdicts", 0, "case", to=json.dumps("x" * 2001)),
        "long reason": changed("verdicts", 0, "reason", "message", to=json.dumps("x" * 20_001)),
        "other schema": changed("schema", to='"tfbench-report/2"'),
        "unknown outcome": changed("verdicts", 0, "outcome", to='"fine"'),
        "confidence": changed("verdicts", 0, "ratio", "confidence", to="2"), "lone surrogate": '{"schema": "\\ud800"',
    }  # fmt: skip
    for case in ("<script>alert(1)</script>::x", "a::<img src=x onerror=y>", "a`b::c", "../../etc/passwd::x", "/etc/passwd::x",
                 "a/../../b::x", "no separator", "~/x::y", "a\\b::c", "::", ""):  # fmt: skip
        for row in ("verdicts", "variant_results", "skips"):
            texts[f"name {case!r} in {row}"] = changed(row, 0, "case", to=json.dumps(case))
        texts[f"name {case!r} of a cost"] = changed("seconds_by_case", to=json.dumps({case: 1}))
    values = {"text": '"x"', "number": "1.5", "true": "true", "null": "null", "list": "[1]", "object": '{"x": 1}'}
    fields = {
        ("policy",): "object", ("sides",): "object", ("verdicts",): "list", ("variant_results",): "list", ("skips",): "list",
        ("wall_seconds",): "number", ("interrupted",): "true", ("verdicts", 0): "object", ("verdicts", 0, "case"): "text",
        ("verdicts", 0, "workload"): "text", ("verdicts", 0, "variant"): "object", ("verdicts", 0, "metric"): "text",
        ("verdicts", 0, "reason"): "object", ("verdicts", 0, "ratio"): "object null", ("verdicts", 0, "launches"): "",
        ("verdicts", 0, "rounds"): "", ("verdicts", 0, "wall_seconds"): "number", ("variant_results", 0): "object",
        ("variant_results", 0, "median_seconds"): "number", ("variant_results", 0, "facts"): "object", ("skips", 0): "object",
        ("skips", 0, "reason"): "text", ("complete",): "true", ("due",): "",
    }  # fmt: skip
    for path, right in fields.items():
        for kind, value in values.items():
            if kind not in right.split():
                texts[f"{kind} as {'/'.join(map(str, path))}"] = changed(*path, to=value)
    # Objects and lists of the right type are refused for their content.
    for name, text in texts.items():
        yield name, text.encode("utf-8", "surrogatepass"), ".json"
    for name, text in {
        "accepted: not JSON": "{", "accepted: a list": "[]", "accepted: no date": '{"accept": [{"until": 3}]}',
        "accepted: not a date": '{"accept": [{"until": "soon"}]}', "accepted: unknown": '{"accept": [{"until": "2027-01-31", "x": 1}]}',
        "accepted: no entries": '{"accept": 1}', "accepted: rows": '{"accept": [1]}',
    }.items():  # fmt: skip
        yield name, archive(("report.json", GOOD), (artifact.ACCEPTED, text)), ".zip"
    yield "not UTF-8", b"\xff\xfe" + GOOD.encode("utf-16-le"), ".json"


BAD_ARTIFACTS = list(bad_artifacts())


def test_there_are_at_least_200_bad_artifacts():
    assert len({name for name, _, _ in BAD_ARTIFACTS}) == len(BAD_ARTIFACTS) >= 200


@pytest.mark.parametrize(
    ("content", "suffix"), [bad[1:] for bad in BAD_ARTIFACTS], ids=[bad[0] for bad in BAD_ARTIFACTS]
)
def test_a_bad_artifact_is_refused_with_a_reason_and_nothing_is_written(tmp_path, content, suffix, capsys):
    place = tmp_path / "inner" / f"report{suffix}"
    place.parent.mkdir()
    place.write_bytes(content)
    with pytest.raises(ReportError, match=r".{10,}"):
        load_artifact(place)
    comment = tmp_path / "comment.md"
    assert main(["gate", str(place), "--conclusion", "success", "--comment", str(comment)]) == 5
    reported = capsys.readouterr()
    assert reported.err.startswith("tfbench: ")
    assert "Traceback" not in reported.err
    assert len(reported.err) < 2000
    assert "There is no usable report" in comment.read_text()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [comment.name, place.name]


def test_links_and_folders_are_not_followed(tmp_path):
    (tmp_path / "good.json").write_text(GOOD)
    (tmp_path / "link.json").symlink_to(tmp_path / "good.json")
    with pytest.raises(ReportError, match="is a link"):
        load_artifact(tmp_path / "link.json")
    with pytest.raises(ReportError, match="not a plain file"):
        load_artifact(tmp_path)
    (tmp_path / "link.json").unlink()
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(ReportError, match="not a plain file"):
        load_artifact(tmp_path)


def test_a_good_report_is_read_from_a_folder_a_file_and_a_zip(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "report.json").write_text(GOOD)
    (tmp_path / "report.zip").write_bytes(archive(("report.json", GOOD)))
    for place in ("folder", "folder/report.json", "report.zip"):
        assert json_format.render(load_artifact(tmp_path / place)[0]) == GOOD


def test_accepted_regressions_reach_the_comment(tmp_path):
    row = {"case": "b/test_x.py::test_x[a=1]", "reason": "agreed", "until": "2999-01-31", "up_to": 1.1}
    agreed = list(acceptances({"accept": [row]}, "accepted.toml").accept)
    (tmp_path / "report.zip").write_bytes(archive(("report.json", GOOD), (artifact.ACCEPTED, artifact.as_json(agreed))))
    report, found = load_artifact(tmp_path / "report.zip")
    assert found == agreed
    assert "1 accepted" in markdown.render_comment(report, decided(report, found))
