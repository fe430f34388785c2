"""The cost of a fleet, computed from measurements and compared with simulated nodes."""
