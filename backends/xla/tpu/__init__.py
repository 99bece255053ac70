"""The TPU as a target: its own compiler, asked on a machine that has none."""
