"""What happened, and why: explain, compare and the counters."""
