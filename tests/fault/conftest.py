from tests.integration.conftest import forks, meeting, node

__all__ = ["forks", "meeting", "node"]
