"""Errors in a line."""

import pytest

from tfbench.errors import error_line, headline_of

SYNTAX = """
  import_path(
E     File "/x/test_b.py", line 1
E       def f(:
E             ^
E   SyntaxError: invalid syntax
"""
CHAINED = """
E   ModuleNotFoundError: No module named 'x'

The above exception was the direct cause of the following exception:
test_d.py:4: in <module>
E   RuntimeError: outer
E   and more
"""


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        ("test_a.py:1: in <module>\nE   ValueError: first\nE   second\nE     third\n", "ValueError: first"),
        (SYNTAX, "SyntaxError: invalid syntax"),
        (CHAINED, "RuntimeError: outer"),
        ("import file mismatch:\nHINT: rename it\n\n", "HINT: rename it"),
        ("", ""),
    ],
)
def test_the_line_that_names_an_error_is_found_in_a_text_of_pytest(text, headline):
    assert headline_of(text) == headline


STAGED = """ValueError: in user code:

    File "/x/test_a.py", line 10, in None  *
        lambda x: layer(x)
    File "/x/keras/traceback_utils.py", line 122, in error_handler  **
        raise e.with_traceback(filtered_tb) from None

    {}
"""
LAYER = """TypeError: Exception encountered when calling Mine.call().

\x1b[1mExpected float32, but got None.\x1b[0m

Arguments received by Mine.call():
  • x=tf.Tensor(shape=(3,), dtype=float32)"""
IN_LAYER = "TypeError: Exception encountered when calling Mine.call(). Expected float32, but got None."
GRAPH = """a.InvalidArgumentError: Graph execution error:

Detected at node MatMul defined at (most recent call last):
  File "/x/test_a.py", line 20, in h

Matrix size-incompatible: In[0]: [2,3], In[1]: [2,3]
\t [[{{node MatMul}}]] [Op:__inference_h_19]"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (STAGED.format("AssertionError: "), "AssertionError:"),
        (STAGED.format("a.b.Mine: lost\n    second"), "a.b.Mine: lost"),
        (STAGED.format(STAGED.format("ValueError: deep").replace("\n", "\n    ")), "ValueError: deep"),
        (STAGED.format(LAYER.replace("\n", "\n    ")), IN_LAYER),
        (LAYER, IN_LAYER),
        (LAYER + " " + GRAPH, IN_LAYER),
        ("A: Exception encountered when calling layer 'a' (type Mine).\n\n" + STAGED[12:].format("B: b"), "B: b"),
        (GRAPH, "a.InvalidArgumentError: Matrix size-incompatible: In[0]: [2,3], In[1]: [2,3]"),
        ("ValueError: mine\nRuntimeError: in user code:\n    KeyError: 3", "ValueError: mine"),
        ("ValueError: in user code:", "ValueError: in user code:"),
        ("", ""),
    ],
)
def test_the_line_that_says_what_is_wrong_is_found_in_wraps_of_tensorflow(text, line):
    assert error_line(text) == line
