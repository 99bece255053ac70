"""The backend that holds no data: see ``backend``."""
