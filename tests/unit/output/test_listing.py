import io

import pytest
from rich.console import Console

from gpuagent_collector.output.listing import ListColumn, print_list

COLUMNS = [
    ListColumn(title="name", show=lambda row: row["name"], rank=0),
    ListColumn(title="least", show=lambda _: "x" * 30, rank=3),
    ListColumn(title="why", show=lambda row: row["why"], rank=2, max_width=20),
    ListColumn(title="second", show=lambda _: "y" * 10, rank=1, right=True),
]
ROWS: list[dict[str, str | None]] = [
    {"name": "n" * 20, "why": None},
    {"name": "[red]\x1b", "why": "because of many words that fold"},
]


def listed(width: int) -> list[str]:
    out = io.StringIO()
    print_list(COLUMNS, ROWS, Console(file=out, width=width, markup=False))
    return out.getvalue().splitlines()


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (10, ["name"]),
        (31, ["name"]),
        (32, ["name", "second"]),
        (53, ["name", "second"]),
        (54, ["name", "why", "second"]),
        (85, ["name", "why", "second"]),
        (86, ["name", "least", "why", "second"]),
    ],
)
def test_columns_are_shown_by_importance_as_far_as_they_fit(width: int, titles: list[str]) -> None:
    lines = listed(width)
    assert lines[0].split() == titles
    assert max(map(len, lines)) <= width


def test_cells_are_harmless_and_a_missing_one_is_a_dash() -> None:
    text = "\n".join(listed(100))
    assert r"[red]\x1b" in text
    assert "–" in text
    assert "\x1b" not in text
