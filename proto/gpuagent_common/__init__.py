"""Code that agent and collector share beside the wire format."""
