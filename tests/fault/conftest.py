from tests.integration.conftest import node

__all__ = ["node"]
