"""vLLM on the device beside its CPU platform; run by `make vllm` alone."""
