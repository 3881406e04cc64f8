"""A worker that speaks the protocol and measures no time: without TensorFlow, without a pytest run.

It replaces `tfbench.worker` in tests of the controller. `install` writes an interpreter that starts it, and a
``script.json`` in the side's root that it follows::

    {"cases": {"t.py::test_a": {"seconds": 1e-5, "at": "rounds", "does": "die"}}}

``seconds`` is the time of an iteration, ``dispatch`` the share of a block until its work is dispatched, ``kernel`` (or the variable
``KERNEL``) the µs of a kernel in a profiled step, and ``meets`` how often the process waits for the other side before it is
prepared. The process answers once it has had ``waits`` turns, 0 by default. At ``at`` the process does what ``does`` names, see `ACTIONS`.
``at`` is ``set-up``, ``meeting``, ``rounds``, ``result`` or ``stop`` of a launch, or, at the top of the file, ``start`` or ``launch``
of the zygote, which becomes its only launch if the file has ``spawns``. ``env`` names an environment variable without which nothing happens, and
``once`` a file that the action makes and that prevents it from then on.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tfbench import protocol
from tfbench.profiles.folders import RUNS
from tfbench.protocol import Channel, ChannelClosed, Done, Launched, LaunchRequest, Reached, Reap, Reaped, Stop
from tfbench.worker import isolation

ROOT = Path(__file__).resolve().parents[2]


def install(folder: Path, **script: Any) -> str:
    """Write the script and an interpreter that always starts this worker; return the interpreter's path."""
    (folder / "script.json").write_text(json.dumps(script))
    interpreter = folder / "python"
    interpreter.write_text(
        f"#!{sys.executable}\nimport sys\n\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.fakes.worker import main\n\nmain(sys.argv[-1])\n"
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


def _print(channel: Channel) -> NoReturn:
    while True:
        os.write(1, b"once more\n" * 1000)


def _flood(channel: Channel) -> NoReturn:
    for _ in range(200):
        os.write(1, b"x" * 65536 + b"\n")
    os._exit(3)


ACTIONS: dict[str, Callable[[Channel], Any]] = {
    "die": _die,
    "crash": _signal(signal.SIGSEGV),
    "hang": lambda channel: time.sleep(1000),
    "cut": lambda channel: (os.write(channel.fileno(), b'{"kind":"Roun'), os._exit(0)),
    "garble": _raw(b"no JSON\n"),
    "mistake": _raw(b'{"kind":"Launched","pid":1}\n'),
    "repeat": lambda channel: None,
    "wait": lambda channel: time.sleep(1),
    "malform": _raw(b'{"kind":"Rounds","began":[1]}\n'),
    "flood": _flood,
    "print": _print,
    "fail": lambda channel: (channel.send(protocol.Failed("it broke", trace="where")), os._exit(0)),
    "skip": lambda channel: (channel.send(protocol.Skipped("not here")), os._exit(0)),
    "done": lambda channel: (print("last words", flush=True), channel.send(Done()), os._exit(0)),
}
"""Name -> action. If it returns, the process goes on normally."""


def main(argument: str) -> None:
    """Be an ancestor; ``argument`` is the one that the controller passes."""
    start = protocol.decode(argument)
    assert isinstance(start, protocol.StartAncestor)
    isolation.die_with_parent(start.controller)
    channel = Channel(socket.socket(fileno=start.channel))
    try:
        while True:
            request = channel.receive(protocol.StartZygote, Reap)
            descriptors = channel.descriptors
            if isinstance(request, Reap):
                channel.send(Reaped(isolation.reap(request.pid, request.patience)))
                continue
            parent = os.getpid()
            if (pid := os.fork()) == 0:
                channel.close()
                isolation.die_with_parent(parent)
                talk, log = descriptors
                os.dup2(log, 1)
                os.dup2(log, 2)
                os.setsid()
                _zygote(Channel(socket.socket(fileno=talk)), request)
                os._exit(0)
            for descriptor in descriptors:
                os.close(descriptor)
            channel.send(Launched(pid))
    except ChannelClosed:
        os._exit(0)


def _zygote(channel: Channel, start: protocol.StartZygote) -> None:
    script = json.loads(Path(start.root, "script.json").read_text())
    _act(script, "start", channel)
    environment = {"python": "3", "executable": "python", "packages": {}, "settings": {}, "machine": {}, "defaults": {}}
    cases, hidden = tuple(script["cases"]), script.get("hidden", {})
    spawns = script.get("spawns", False)
    channel.send(protocol.Ready(cases, {}, (), environment, None, spawns=spawns, leaked_packages=(), hidden=hidden))
    try:
        if spawns:
            request = channel.receive(LaunchRequest)
            channel.send(Launched(os.getpid()))
            _become(script, request, channel.descriptors)
        while True:
            _serve(channel, script, channel.receive(LaunchRequest, Reap), channel.descriptors)
    except ChannelClosed:
        os._exit(0)


def _act(script: dict[str, Any], now: str, channel: Channel) -> None:
    if "once" in script and Path(script["once"]).exists():
        return
    if script.get("at") == now and script.get("env", "PATH") in os.environ:
        if "once" in script:
            Path(script["once"]).touch()
        ACTIONS[script["does"]](channel)


def _serve(channel: Channel, script: dict[str, Any], request: LaunchRequest | Reap, descriptors: list[int]) -> None:
    if isinstance(request, Reap):
        channel.send(Reaped(isolation.reap(request.pid, request.patience)))
        return
    _act(script, "launch", channel)
    if (pid := os.fork()) == 0:
        channel.close()
        _become(script, request, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    for _ in range(2 if script.get("at") == "launch" and script["does"] == "repeat" else 1):
        channel.send(Launched(pid))


def _become(script: dict[str, Any], request: LaunchRequest, descriptors: list[int]) -> NoReturn:
    talk, log, *pipes = descriptors
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        case = script["cases"][request.case] if isinstance(request, protocol.CaseRequest) else script
        _launch(Channel(socket.socket(fileno=talk)), request, case, pipes)
    finally:
        sys.stdout.flush()
        os._exit(0)


def _profile(folder: Path, length: float) -> None:
    """Write a profile of steps with one kernel each, of this many µs."""
    from tests.fakes.profiles import Built  # most tests need none

    built = Built()
    built.steps()
    device = built.plane("/device:GPU:0", device_vendor="Nvidia")
    stream = built.line(device, "Stream #20(Compute)")
    for number in range(5):
        built.event(device, stream, "kernel", number * 1000 + 50, length)
    built.write(folder / RUNS / "run")


def _launch(channel: Channel, request: LaunchRequest, case: dict[str, Any], pipes: list[int]) -> None:
    seconds = case.get("seconds", 1e-5)
    facts = {"first_call": 0.1, "first_call_parts": {}, "peak_host_memory": 1 << 24}
    _act(case, "set-up", channel)
    if isinstance(request, protocol.ProbeCase):
        channel.send(protocol.Probed({}, {}, facts))
    elif isinstance(request, protocol.ProfileCase):
        if request.energy:
            channel.send(Reached())
            channel.receive(protocol.Begin)
            _act(case, "result", channel)
            channel.send(protocol.Sampled(100, request.energy, 0, {}, {}))
        if "kernel" in case:
            _profile(Path(request.folder), float(os.environ.get("KERNEL", case["kernel"])))
        channel.send(protocol.Profiled())
    elif isinstance(request, protocol.CaseRequest):
        for _ in range(case.get("meets", 0)):
            channel.send(Reached())
            channel.receive(protocol.Begin)
            _act(case, "meeting", channel)
        channel.send(protocol.Prepared(seconds, facts, first_call=case.get("first_call")))
        while not isinstance(serve := channel.receive(protocol.Serve, protocol.Settle, Stop), Stop):
            if isinstance(serve, protocol.Settle):
                channel.send(protocol.Settled())
                continue
            _act(case, "rounds", channel)
            for _ in range(case.get("waits", 0)):
                os.read(pipes[0], 1)
            block = round(seconds * 1e9 * (serve.iterations * (1 + serve.extra)))
            began = tuple(2 * block * turn for turn in range(len(serve.follow) * serve.blocks))
            dispatched = [start + round(case["dispatch"] * block) for start in began] if "dispatch" in case else ()
            channel.send(protocol.Rounds(began, tuple(start + block for start in began), tuple(dispatched)))
    else:
        channel.send(protocol.DevicesListed({"CPU": ("cpu:0",)}))
    _act(case, "stop", channel)
    channel.send(Done())
