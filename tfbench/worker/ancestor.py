"""The ancestor: imports TensorFlow once, then forks a zygote for each side.

Both sides of a comparison then share the addresses of all that is installed, which would otherwise differ from process
to process and bias every launch of a zygote. Only what the benchmarks import themselves is each side's own.
"""

from __future__ import annotations

import gc
import importlib
import os
import socket
from dataclasses import replace
from functools import partial

from tfbench.protocol import Channel, ChannelClosed, Launched, Reap, Reaped, StartAncestor, StartZygote, encode
from tfbench.worker import isolation, tf_runtime, zygote
from tfbench.worker.zygote import Inheritance


def main(start: StartAncestor) -> None:
    """Import what is installed, then fork zygotes until the controller is gone."""
    isolation.die_with_parent(start.controller)
    isolation.adopt_orphans()
    isolation.limit_files(start.file_bytes)
    channel = Channel(socket.socket(fileno=start.channel))
    tf_runtime.pin(start.cpus)
    timer = tf_runtime.ImportTimer.installed()
    if start.imports_tensorflow:
        gc.disable()  # collections take a fifth of the import, which leaves little garbage
        _import_tensorflow(start)
        gc.enable()
    gc.collect()
    gc.freeze()
    ancestor = Ancestor(channel, timer, Inheritance.of_this_process() if start.imports_tensorflow else None)
    try:
        ancestor.serve()
    except ChannelClosed:
        os._exit(0)


def _import_tensorflow(start: StartAncestor) -> None:
    try:
        importlib.import_module("tensorflow")
        tf_runtime.import_all()
    except Exception:
        # A broken import may leave modules behind. Zygotes of a new process report the error with the benchmark's name.
        tf_runtime.replace_process(encode(replace(start, imports_tensorflow=False)).decode(), start.channel)


class Ancestor:
    """Forks zygotes on request.

    Args:
        timer: Knows how long the import of TensorFlow took.
        inheritance: What zygotes inherit; ``None`` if each imports TensorFlow itself.
    """

    def __init__(self, channel: Channel, timer: tf_runtime.ImportTimer, inheritance: Inheritance | None) -> None:
        self._channel = channel
        self._timer = timer
        self._inheritance = inheritance
        self._home = os.getcwd()
        self._zygotes: set[int] = set()

    def serve(self) -> None:
        """Answer requests. Raises `ChannelClosed` when the controller is gone."""
        while True:
            request = self._channel.receive(StartZygote, Reap)
            if isinstance(request, StartZygote):
                self._fork(request, self._channel.descriptors)
            elif isinstance(request, Reap):
                self._reap(request)

    def _fork(self, request: StartZygote, descriptors: list[int]) -> None:
        parent = os.getpid()
        if (pid := os.fork()) == 0:
            self._channel.close()
            tf_runtime.run_and_exit(parent, partial(self._become_zygote, request, descriptors))
        for descriptor in descriptors:
            os.close(descriptor)
        self._zygotes.add(pid)
        self._channel.send(Launched(request.number, pid))

    def _reap(self, request: Reap) -> None:
        status = isolation.reap(request.pid, request.patience) if request.pid in self._zygotes else 0
        self._zygotes.discard(request.pid)
        isolation.end_orphans(self._zygotes)
        self._channel.send(Reaped(request.number, status))

    def _become_zygote(self, request: StartZygote, descriptors: list[int]) -> None:
        talk, log = descriptors
        for output in (1, 2):
            os.dup2(log, output)
        os.close(log)
        isolation.lead_group()
        zygote.run(replace(request, channel=talk), self._timer, self._home, self._inheritance)
