"""Compilers in processes of their own: requests and answers by pipes, bounded waits, ends."""
