"""One of the ranks that `training.launch` starts: `python -m gpuagent_workloads.rank …`.

The command line is that of `gpuagent_workloads`. Errors are written to the file that TORCHELASTIC_ERROR_FILE names, and
the launcher reports them once for all ranks. SIGTERM ends a rank at once: another rank has failed, and this one may be
waiting for it in a collective.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gpuagent_common.own_module import end_with_parent
from gpuagent_workloads.cli import attempt


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    end_with_parent()
    code, message = attempt(arguments)
    if message:
        # The exact time shows which rank failed first.
        text = json.dumps({"message": message, "timestamp": int(time.time()), "unix_nano": time.time_ns()})
        # In one step: the launcher may stop this rank, and reads what there is.
        file = Path(os.environ["TORCHELASTIC_ERROR_FILE"])
        unfinished = file.with_suffix(".part")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(file)
    return code


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    if exit_code:
        # Not sys.exit, in which a process group would wait for ranks that cannot answer.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)
