"""The NumPy backend: the readable definition of what each operation means."""
