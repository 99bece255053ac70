"""Ahead of time: a program compiled for a device that is not here, what it costs there, advice."""
