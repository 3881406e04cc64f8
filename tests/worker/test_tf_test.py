"""Methods of ``tf.test.Benchmark`` classes, with classes in the place of TensorFlow's."""

from types import SimpleNamespace

import pytest

from tests.worker.test_plain_benchmark import Launch
from tfbench.errors import BenchmarkError
from tfbench.model import PLAIN
from tfbench.suite.functions import digest, function_of
from tfbench.worker import tf_runtime
from tfbench.worker.adopted import parse_flags, run_method


class Reporting(Launch):
    reported = None

    def serve_reported(self, seconds):
        self.reported = seconds


@pytest.fixture
def base(monkeypatch):
    """The class ``tf.test.Benchmark``, and a session that counts its runs."""

    class Benchmark:
        def run_op_benchmark(
            self, sess, op_or_tensor, feed_dict=None, burn_iters=2, min_iters=10, store_trace=False,
            store_memory_usage=True, name=None, extras=None, mbs=0,
        ):  # fmt: skip
            assert not store_trace
            assert not store_memory_usage
            for _ in range(burn_iters + min_iters):
                sess.run(op_or_tensor, feed_dict=feed_dict)
            self.report_benchmark(iters=min_iters, wall_time=0.5, name=name, throughput=mbs / 0.5, extras=extras)
            return {"wall_time": 0.5, "throughput": mbs / 0.5}

        def report_benchmark(self, *given):
            raise AssertionError

    class Session:
        closed = False

        def __init__(self):
            self.ran = []

        def run(self, op, feed_dict=None):
            assert not self.closed
            self.ran.append((op, feed_dict))

        def close(self):
            self.closed = True

    compat = SimpleNamespace(v1=SimpleNamespace(Session=Session))
    config = SimpleNamespace(experimental=SimpleNamespace(get_synchronous_execution=lambda: True))
    tf = SimpleNamespace(test=SimpleNamespace(Benchmark=Benchmark), compat=compat, config=config)
    monkeypatch.setattr(tf_runtime, "tensorflow", lambda: tf)
    Benchmark.session = Session
    return Benchmark


def run(kind, name="benchmark_x"):
    launch = Reporting()
    run_method(launch, kind, name)
    return launch


def test_ops_become_one_step_that_runs_each_once_also_when_their_session_was_closed(base):
    sessions = [base.session(), base.session()]

    class Mine(base):
        def benchmark_x(self):
            for session in sessions:
                found = self.run_op_benchmark(session, "op", {"p": 1}, burn_iters=3, min_iters=4, name="n", mbs=2)
                session.close()
                assert found == {"wall_time": 0.5, "throughput": 4.0}  # of TensorFlow's own method
                assert len(session.ran) == 7

    launch = run(Mine)
    assert [session.ran for session in sessions] == [[("op", {"p": 1})] * 10] * 2  # and three calls of the step
    assert launch.called
    assert launch.reported is None


def test_another_instance_than_that_of_the_method_takes_part(base):
    class Mine(base):
        def benchmark_x(self):
            base().run_op_benchmark(base.session(), "op")

    assert run(Mine).called


def test_reported_times_count_by_their_geometric_mean(base):
    class Mine(base):
        def benchmark_x(self):
            self.report_benchmark(iters=3, wall_time=1.0, name="a")
            self.report_benchmark(iters=3, wall_time=4.0)
            self.report_benchmark(iters=3)

    launch = run(Mine)
    assert launch.reported == pytest.approx(2)


def test_extras_and_metrics_are_kept_by_the_name_of_their_entry(base):
    class Mine(base):
        def benchmark_x(self):
            self.run_op_benchmark(base.session(), "op", name="an op", extras={"shape": (2, 3)})
            self.report_benchmark(metrics=[{"name": "loss", "value": 0.5}], extras={"epochs": 2})

    kept = run(Mine).late_facts[PLAIN]["extra_info"]
    assert kept == {
        "an op": {"extras": {"shape": [2, 3]}},
        "1": {"extras": {"epochs": 2}, "metrics": [{"name": "loss", "value": 0.5}]},
    }


def test_a_method_that_measures_nothing_here_is_skipped(base):
    class Mine(base):
        def benchmark_x(self):
            """Returns, as there is no GPU."""

    with pytest.raises(pytest.skip.Exception, match=r"ran no op .* and reported no wall_time"):
        run(Mine)


def test_a_constructor_that_fails_is_the_reason(base):
    class Mine(base):
        def __init__(self):
            raise OSError("no data")

        def benchmark_x(self): ...

    with pytest.raises(BenchmarkError, match="the constructor of Mine failed: OSError: no data"):
        run(Mine)


def test_flags_of_absl_have_their_defaults(monkeypatch):
    flags = pytest.importorskip("absl.flags")
    own = flags.FlagValues()
    flags.DEFINE_integer("steps", 3, "number of steps", flag_values=own)
    monkeypatch.setattr(flags, "FLAGS", own)
    parse_flags()
    assert own.steps == 3


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_reported_time_must_be_a_time(base, seconds):
    class Mine(base):
        def benchmark_x(self):
            self.report_benchmark(wall_time=seconds, name="entry")

    with pytest.raises(BenchmarkError, match=r"wall_time=.* of entry is no time"):
        run(Mine)


def test_a_launch_that_needs_a_step_refuses_a_method_that_only_reports():
    with pytest.raises(BenchmarkError, match="only reports a time"):
        Launch().serve_reported(1.0)


def test_a_function_that_stands_for_a_method_has_its_digest():
    given = []
    function = function_of(given.append, "abc")
    function(bench=3)
    assert given == [3]
    assert digest(function) == "abc"
