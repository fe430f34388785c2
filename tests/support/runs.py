"""The runs of a node, as sources see them."""

from collections.abc import Sequence


class Runs:
    """Active runs: their ids, and the numbers of their supervisors."""

    def __init__(self, *supervisors: tuple[str, int]) -> None:
        self.supervisors: Sequence[tuple[str, int]] = supervisors

    def processes(self) -> Sequence[tuple[str, int]]:
        return self.supervisors
