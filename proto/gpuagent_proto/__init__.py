"""The wire format that the agent and the collector share."""
