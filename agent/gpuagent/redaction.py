"""Text and command lines of programs without their secrets."""

import re
from collections.abc import Sequence

_HIDDEN = "[hidden]"

_TELLING = r"(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credential)"
_ASSIGNMENT = re.compile(
    # Names are matched once, from their start, and bounded: hostile text must not cost more.
    rf"(?i)(?<![\w.-])([\w.-]{{0,64}}?{_TELLING}[\w.-]{{0,64}})(\s{{0,8}}[=:]\s{{0,8}})"
    r"(\"[^\"]*\"|'[^']*'|[^\s'\",;]+)"
)
_SECRET_OPTION = re.compile(rf"(?i)--?[\w.-]{{0,64}}?{_TELLING}[\w.-]{{0,64}}")
_KNOWN_SHAPES = re.compile(
    r"(?i:\b(bearer|basic)\s+)[\w.~+/=-]{8,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\b(?:ghp|gho|ghs|github_pat|glpat|hf|sk|xox[abp])[-_][\w-]{16,}"
    r"|(?<![\w-])eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)


def redact_text(text: str) -> str:
    """Return `text` with values of suspicious names (NAME=value) and tokens of known shapes hidden."""
    return _KNOWN_SHAPES.sub(_HIDDEN, _ASSIGNMENT.sub(rf"\1\2{_HIDDEN}", text))


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """Return a program's arguments with secrets hidden, also the argument after an option such as --password."""
    redacted: list[str] = []
    hide_next = False
    for argument in arguments:
        redacted.append(_HIDDEN if hide_next else redact_text(argument))
        hide_next = not hide_next and _SECRET_OPTION.fullmatch(argument) is not None
    return redacted
