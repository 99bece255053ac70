"""The commands of the `fuse` program."""
