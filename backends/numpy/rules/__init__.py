"""NumPy rules, one file an operator family. Importing this package fills the table."""
