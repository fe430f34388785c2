import pytest

from tests.integration.conftest import meeting, node

__all__ = ["forks", "meeting", "node"]


@pytest.fixture
def forks() -> bool:
    """Start every command as a user does: here processes are killed."""
    return False
