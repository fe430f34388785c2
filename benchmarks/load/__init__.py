"""`make bench-load`: a thousand simulated agents on one collector, for half an hour, some of them slow or stalled."""
