"""Delivery of rows to the collector: pipeline, spool and stream, exactly once."""
