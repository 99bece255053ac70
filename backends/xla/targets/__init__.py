"""Targets: machines that are not here, whose compilers are; the parts that all of them share."""
