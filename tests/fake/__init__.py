"""Fake runs: shapes only."""
