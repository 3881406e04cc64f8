"""Export a report to TensorBoard: a run per case, with its numbers as scalars and its variant as hyperparameters.

TensorBoard's own writers import TensorFlow where it is installed, which takes seconds. So records are written with its
`RecordWriter` and protocol buffers alone.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_FLOAT
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.scalar.metadata import create_summary_metadata
from tensorboard.summary.writer.record_writer import RecordWriter

from tfbench.fs import atomic_dir
from tfbench.model import TIME, Report, short_name
from tfbench.untrusted import plural


def export(report: Report, target: str) -> str:
    """Write a folder per case below the target. Raises `OSError` if it cannot be written."""
    cases = {row.case.name: row.case for row in report.variant_results}
    cases |= {row.case.name: row.case for row in report.verdicts}
    scalars: dict[str, dict[str, float]] = defaultdict(dict)
    for name, what, value in _numbers(report):
        scalars[name][what] = value
    now = time.time()
    for name, values in scalars.items():
        case = cases[name]
        levels = {"workload": case.workload, **case.levels}
        summaries = [hparams_pb(levels, trial_id=_folder(name), start_time_secs=now)]
        summaries += [_scalar(what, value) for what, value in values.items()]
        with (
            atomic_dir(Path(target, _folder(name)), replace=True) as folder,
            open(folder / f"events.out.tfevents.{int(now)}.tfbench", "wb") as file,
        ):
            writer = RecordWriter(file)
            writer.write(Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
            for summary in summaries:
                writer.write(Event(wall_time=now, step=0, summary=summary).SerializeToString())
            writer.flush()
    return f"{target}: {plural(len(scalars), 'run')}; tensorboard --logdir {target}"


def _scalar(tag: str, value: float) -> Summary:
    tensor = TensorProto(dtype=DT_FLOAT, float_val=[value], tensor_shape=TensorShapeProto())
    metadata = create_summary_metadata(display_name="", description="")
    return Summary(value=[Summary.Value(tag=tag, tensor=tensor, metadata=metadata)])


def _folder(case: str) -> str:
    """Return a name of a folder for a case: readable, and unique by a digest."""
    readable = re.sub(r"[^\w.,=-]+", "_", short_name(case)).strip("._")[:100]
    return f"{readable or 'case'}-{hashlib.sha256(case.encode()).hexdigest()[:8]}"


def _numbers(report: Report) -> Iterator[tuple[str, str, float]]:
    """Yield case, name and value of every finite number that a report states about a case."""
    for row in report.verdicts:
        if (ratio := row.ratio) is not None:
            for end, value in (("", ratio.center), ("_low", ratio.low), ("_high", ratio.high)):
                if 0 < value < float("inf"):
                    yield row.name, f"{row.metric}_ratio{end}", value
        for side, known in zip(("baseline", "contender"), row.values or (), strict=False):
            if known is not None:
                yield row.name, f"{row.metric}_{side}", known
        if row.metric == TIME:
            yield row.name, "launches", float(row.launches)
    for result in report.variant_results:
        if report.sides.get("baseline") is None and result.ratio is not None:
            yield result.case.name, "ratio_to_reference", result.ratio.center
        yield result.case.name, "median_seconds", result.median_seconds
