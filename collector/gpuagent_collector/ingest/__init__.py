"""The path from a message off the wire to committed rows: decoded, checked, written exactly once."""
