"""Harmless text for terminals, files and pages."""

from gpuagent_common.text import harmless, is_dangerous

__all__ = ["harmless", "is_dangerous"]
