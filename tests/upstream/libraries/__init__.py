"""Other libraries' own tests on the device: ``make test-libraries``."""
