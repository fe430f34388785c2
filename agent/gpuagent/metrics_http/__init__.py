"""The agent's own metrics and health over HTTP."""
