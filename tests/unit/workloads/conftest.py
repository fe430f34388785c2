from tests.support.forked import forked_ranks

__all__ = ["forked_ranks"]
