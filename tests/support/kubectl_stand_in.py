"""Stands in for kubectl, for there is no cluster in tests: it writes down what it is asked and gives set answers.

The folder STAND_IN_FOLDER has answers.json: for each command (`create`, `get pods`, `get events`, `logs`, `delete`,
`auth`) a list of [exit code, stdout, stderr], of which each call takes the next and the last one stays. Calls are
appended to calls.jsonl, with what came on stdin. A `logs` with the answer "wait" never ends: its pod runs on.
"""

import json
import os
import sys
import time
from pathlib import Path


def main(words: list[str]) -> int:
    folder = Path(os.environ["STAND_IN_FOLDER"])
    command = " ".join(words[:2]) if words[0] == "get" else words[0]
    text = sys.stdin.read() if command == "create" else ""
    calls = folder / "calls.jsonl"
    before = calls.read_text().splitlines() if calls.exists() else []
    with calls.open("a") as file:
        file.write(json.dumps({"command": command, "words": words, "stdin": text}) + "\n")
    answers = json.loads((folder / "answers.json").read_text())[command]
    number = sum(1 for line in before if json.loads(line)["command"] == command)
    code, stdout, stderr = answers[min(number, len(answers) - 1)]
    while stdout == "wait":
        time.sleep(60)
    sys.stdout.write(stdout)
    sys.stderr.write(stderr)
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
