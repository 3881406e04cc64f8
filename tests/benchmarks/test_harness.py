"""The steps that are compared with bare ones."""

import ast

from benchmarks.harness.__main__ import CASES, ROOT


def test_the_forty_steps_are_benchmarks_of_the_suite():
    assert len(set(CASES)) == 40
    for case in CASES:
        file, _, test = case.partition("::")
        functions = {
            node.name: node for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)
        }
        arguments = [one.arg for one in functions[test.partition("[")[0]].args.args]
        assert arguments == (["bench", "variant"] if "[" in test else ["bench"]), case
