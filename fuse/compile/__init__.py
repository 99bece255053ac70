"""``torch.compile`` with backend "tpu": graphs that are recorded in one step."""
