"""Draw a command's terminal output as a picture for the docs: `terminal_svg.py OUT.svg COLUMNS COMMAND…`."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

# rich's own format loads a font from the network.
FORMAT = """\
<svg viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs>{lines}</defs>
<rect fill="#292929" width="{terminal_width}" height="{terminal_height}" rx="8"/>
<g transform="translate(9, 9)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main(out: Path, columns: int, command: list[str]) -> None:
    """Run the command on a terminal of that width, and draw its output."""
    environment = {**os.environ, "COLUMNS": str(columns), "FORCE_COLOR": "1", "COLORTERM": "truecolor"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    with Path(os.devnull).open("w") as nowhere:
        # Two columns and lines more than the terminal, for the margin.
        console = Console(record=True, width=columns + 2, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(f"$ {shlex.join(command)}"))
        console.print(Text.from_ansi(f"{done.stdout.rstrip()}\n\n"), soft_wrap=True)
    out.write_text(console.export_svg(title="", theme=SVG_EXPORT_THEME, code_format=FORMAT, unique_id="t"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
