"""A measuring process that speaks the protocol and measures nothing: no TensorFlow, no pytest run, no time passes.

It stands in for `tfbench.worker` in tests of the controller: `install` writes an interpreter that starts it, and a
``script.json`` in the side's root says what it does::

    {"cases": {"t.py::test_a": {"seconds": 1e-5, "at": "rounds", "does": "die"}}}

``seconds`` is the time of an iteration. At ``at`` (``set-up``, ``rounds``, ``stop``, of a launch; ``start``, ``launch``,
of the zygote itself, at the top of the file) it does what ``does`` names, see `ACTIONS`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tfbench.protocol import Channel, ChannelClosed

ROOT = Path(__file__).resolve().parents[2]


def install(folder: Path, **script: Any) -> str:
    """Write the script and an interpreter whose every measuring process is this one; returns the interpreter's path."""
    (folder / "script.json").write_text(json.dumps(script))
    interpreter = folder / "python"
    interpreter.write_text(
        f"#!{sys.executable}\nimport sys\n\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.fakes.worker import main\n\nmain(sys.argv[3])\n"
    )
    interpreter.chmod(0o755)
    return str(interpreter)


def _die(channel: Channel) -> NoReturn:
    print("last words", flush=True)
    os._exit(3)


def _signal(number: signal.Signals) -> Callable[[Channel], None]:
    return lambda channel: os.kill(os.getpid(), number)


def _raw(data: bytes) -> Callable[[Channel], None]:
    def send(channel: Channel) -> None:
        os.write(channel.fileno(), data)
        time.sleep(1000)

    return send


def _flood(channel: Channel) -> NoReturn:
    for _ in range(200):
        os.write(1, b"x" * 65536 + b"\n")
    os._exit(3)


ACTIONS: dict[str, Callable[[Channel], Any]] = {
    "die": _die,
    "kill": _signal(signal.SIGKILL),
    "crash": _signal(signal.SIGSEGV),
    "stop": _signal(signal.SIGSTOP),
    "hang": lambda channel: time.sleep(1000),
    "end": lambda channel: os._exit(0),
    "cut": lambda channel: (os.write(channel.fileno(), b'{"kind":"roun'), os._exit(0)),
    "garble": _raw(b"no JSON\n"),
    "mistake": _raw(b'{"kind":"launched","pid":1}\n'),
    "flood": _flood,
    "fail": lambda channel: (channel.send("failed", message="it broke", trace="where"), os._exit(0)),
    "skip": lambda channel: (channel.send("skipped", message="not here"), os._exit(0)),
}
"""Name -> what is done; those that return go on as if nothing had been."""


def main(order: str) -> None:
    """Be a zygote; ``order`` is what the controller gives one."""
    given = json.loads(order)
    channel = Channel.from_descriptor(given["channel"])
    script = json.loads(Path(given["root"], "script.json").read_text())
    _act(script, "start", channel)
    environment = {"python": "3", "executable": "python", "packages": {}, "settings": {}, "machine": {}, "defaults": {}}
    channel.send(
        "ready", cases=list(script["cases"]), broken={}, offenders=[], environment=environment, import_seconds=None, spawns=False, leaked_packages=[],
    )  # fmt: skip
    try:
        while True:
            _serve(channel, script, *channel.receive_with_descriptors("launch", "reap"))
    except ChannelClosed:
        os._exit(0)


def _act(script: dict[str, Any], now: str, channel: Channel) -> None:
    if script.get("at") == now:
        ACTIONS[script["does"]](channel)


def _serve(channel: Channel, script: dict[str, Any], request: dict[str, Any], descriptors: list[int]) -> None:
    if request["kind"] == "reap":
        if request["kill"]:
            os.kill(request["pid"], signal.SIGKILL)
        status = os.waitpid(request["pid"], 0)[1]
        channel.send("reaped", status=os.waitstatus_to_exitcode(status))
        return
    _act(script, "launch", channel)
    if (pid := os.fork()) == 0:
        channel.close()
        socket, log, *_ = descriptors
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            _launch(Channel.from_descriptor(socket), script["cases"][request["case"]])
        finally:
            os._exit(0)
    for descriptor in descriptors:
        os.close(descriptor)
    channel.send("launched", pid=pid)


def _launch(channel: Channel, case: dict[str, Any]) -> None:
    seconds = case.get("seconds", 1e-5)
    _act(case, "set-up", channel)
    channel.send("prepared", iteration=seconds, facts={"first_call": 0.1, "peak_host_memory": 1 << 24}, on_device=False)
    while (request := channel.receive("serve", "stop"))["kind"] == "serve":
        _act(case, "rounds", channel)
        block = round(seconds * 1e9 * (request["iterations"] * (1 + request["extra"])))
        began = [2 * block * turn for turn in range(len(request["follow"]))]
        channel.send("rounds", began=began, ended=[start + block for start in began], dispatched=[])
    _act(case, "stop", channel)
    channel.send("done")
