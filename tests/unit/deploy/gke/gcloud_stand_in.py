"""A stand-in for gcloud, kubectl, make and collector: records how it was called, and answers from a script.

It is copied onto PATH under those names. In its folder, `script.json` holds a list of [words, answers]: a call that has
these words in this order, others between them, gets the next answer, the last one again and again; what no entry fits
succeeds in silence. `calls.jsonl` has every call. An answer that hangs says so on the pipe `hangs`, and waits.
"""

import json
import os
import signal
import sys


def main() -> int:
    """Record, answer; return the exit code."""
    home = os.path.dirname(os.path.abspath(sys.argv[0]))  # noqa: PTH100, PTH120 (pathlib would take half the time)
    call = [os.path.basename(sys.argv[0]), *sys.argv[1:]]  # noqa: PTH119
    with open(f"{home}/calls.jsonl", "a") as calls:  # noqa: PTH123
        calls.write(json.dumps(call) + "\n")
    with open(f"{home}/script.json") as file:  # noqa: PTH123
        script = json.load(file)
    for number, (words, answers) in enumerate(script):
        rest = iter(call)
        if all(word in rest for word in words):
            return _answer(home, answers, number)
    return 0


def _answer(home: str, answers: list[dict[str, object]], number: int) -> int:
    given = f"{home}/given-{number}"
    with open(given, "a+") as file:  # noqa: PTH123
        file.seek(0)
        before = len(file.read())
        file.write("x")
    answer = answers[min(before, len(answers) - 1)]
    if answer["hangs"]:
        with open(f"{home}/hangs", "w") as pipe:  # noqa: PTH123
            pipe.write("hanging\n")
        signal.pause()
    sys.stdout.write(str(answer["out"]))
    sys.stderr.write(str(answer["err"]))
    return int(str(answer["code"]))


if __name__ == "__main__":
    sys.exit(main())
