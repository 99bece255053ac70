"""A GPU as a platform and as a target: its compiler, asked on a machine that has none."""
