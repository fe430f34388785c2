"""What the collector shows over HTTP: metrics for Prometheus, and a page for people."""
