"""Fuzzing: whatever a file holds, its reader returns a value, or raises an error of one line that names the file.

A normal run tries a few hundred mutations of each kind of file. ``TFBENCH_FUZZ=100000`` tries that many in all, as
``make fuzz`` does.
"""

import os
import random
import sys
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.readers import READERS
from tfbench.errors import TfbenchError
from tfbench.untrusted import printable

TOTAL = int(os.environ.get("TFBENCH_FUZZ", "0"))
PARTS = 4 if TOTAL else 1
"""Parts of each kind of file, so that processors share the work."""
EACH = -(-TOTAL // (PARTS * len(READERS))) if TOTAL else 200
LONGEST = 1000
"""Characters of an error."""
MEASURED = 50
"""Of this many inputs, the memory of one is measured."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Writes:
    """Notes the files that are opened for writing, and other changes of the file system."""

    def __init__(self) -> None:
        self.active = False
        self.seen: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple) -> None:
        if self.active and (
            (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING)
            or event in ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.truncate",
                         "subprocess.Popen", "os.system", "socket.connect", "shutil.rmtree")
        ):  # fmt: skip
            self.seen.append(f"{event} {arguments}")


WRITES = Writes()


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_reader_returns_a_value_or_names_the_file(reader, part, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    scratch, place = tmp_path / "scratch", tmp_path / "given"
    scratch.mkdir()
    place.mkdir()
    file = place / reader.file
    seeds = reader.seeds(scratch)
    for seed in seeds:
        if isinstance(seed, str) and seed:
            file.write_text(seed)
            with suppress(*reader.refuses):
                reader.read(file)  # a file without a fault is read
    tried = 0

    @settings(
        max_examples=EACH, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )  # fmt: skip
    @given(st.integers(0, 2**48))
    def run(number):
        nonlocal tried
        tried += 1
        rng = random.Random(f"{reader.name} {part} {number}")
        content = reader.mutate(rng.choice(seeds), rng)
        file.write_bytes(content)
        measured = rng.randrange(MEASURED) == 0
        if measured:
            tracemalloc.start()
        WRITES.seen.clear()
        WRITES.active = "gate" not in reader.name  # that one is asked for outputs
        try:
            reader.read(file)
        except TfbenchError as error:
            text = str(error)
            assert text
            assert len(text) <= LONGEST, text
            assert len(text.splitlines()) == 1, text
            assert printable(text) == text, text
            assert file.name in text or not reader.named, text
        finally:
            WRITES.active = False
            peak = tracemalloc.get_traced_memory()[1] if measured else 0
            if measured:
                tracemalloc.stop()
        assert not WRITES.seen
        assert peak < (64 << 20) + 100 * len(content)
        assert file.read_bytes() == content
        assert os.listdir(place) == [reader.file]

    run()
    assert tried >= EACH
