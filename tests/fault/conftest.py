from tests.integration.conftest import meeting, node

__all__ = ["meeting", "node"]
