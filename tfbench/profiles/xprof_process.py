"""Have xprof read a profile: run as ``python -m tfbench.profiles.xprof_process ORDER``, in a process of its own.

``ORDER`` is a JSON object: ``file`` to read, ``tools`` to ask, ``answer``, the file to write. xprof is native code that
prints, writes cache files next to its input, and returns ``None`` on failure. The separate process isolates all this.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(order: dict[str, object]) -> int:
    """Ask xprof and write ``{"tools": {tool: {"data": …} or {"error": "…"}}}`` or ``{"error": "…"}``."""
    answer: dict[str, object]
    try:
        from xprof.convert import raw_to_tool_data
    except Exception as error:  # whatever prevents the import, the other sections do not need xprof
        kind = "is not installed" if isinstance(error, ImportError) else "cannot be loaded"
        answer = {"error": f"xprof {kind} ({type(error).__name__}: {error})"}
    else:
        tools: dict[str, object] = {}
        for tool in order["tools"]:  # type: ignore[attr-defined]
            try:
                data, _ = raw_to_tool_data.xspace_to_tool_data([order["file"]], tool, {"use_saved_result": False})
                tools[tool] = {"data": json.loads(data)} if data else {"error": "xprof gave nothing"}
            except Exception as error:
                tools[tool] = {"error": f"{type(error).__name__}: {error}"}
        answer = {"tools": tools}
    Path(str(order["answer"])).write_text(json.dumps(answer), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
