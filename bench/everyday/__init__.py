"""Thirty everyday training and inference loops, measured with the default settings."""
