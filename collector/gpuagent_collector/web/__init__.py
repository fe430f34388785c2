"""The collector's HTTP: metrics for Prometheus, and pages for people."""
