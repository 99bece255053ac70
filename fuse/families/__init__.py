"""Traces that differ in sizes only, run at the sizes of buckets: one executable a bucket."""
