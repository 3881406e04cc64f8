"""The steps that are compared with bare ones."""

import ast

from benchmarks.harness.__main__ import CASES, ROOT, print_table


def test_the_forty_steps_are_benchmarks_of_the_suite():
    assert len(set(CASES)) == 40
    for case in CASES:
        file, _, test = case.partition("::")
        functions = {
            node.name: node for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)
        }
        arguments = [one.arg for one in functions[test.partition("[")[0]].args.args]
        assert arguments == (["bench", "variant"] if "[" in test else ["bench"]), case


def test_the_table_has_the_medians_of_both_and_counts_the_times_within_three_percent(capsys):
    runs = [{"seconds": seconds, "peak": 2 << 20, "leaked": 0.0} for seconds in (1e-4, 1.1e-4, 0.9e-4)]
    both = {"bare": runs, "pytest": runs[:1]}
    print_table([
        {"case": "benchmarks/test_x.py::test_one[a=b]", **both, "tfbench": {**runs[0], "seconds": 1.02e-4}},
        {"case": "benchmarks/test_x.py::test_two", **both, "tfbench": {"seconds": 1.2e-4}},
    ])  # fmt: skip
    _, one, two, total, beside = capsys.readouterr().out.splitlines()
    assert " ".join(one.split()) == "one 100 µs 22.2% 1.000 1.020 2.0 MiB 2.0 MiB 0 B 0 B"
    assert two.split()[-4:] == ["0", "B", "nan", "B"]
    assert total == "1 of 2 times within 3%; median ratio 1.110"
    assert beside == "beside plain pytest: 1 of 2 within 3%; median ratio 1.110"
