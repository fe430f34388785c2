"""What a fleet costs: computed from what was measured, and compared with simulated nodes."""
