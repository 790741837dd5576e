"""GGUF files, the format of llama.cpp: their header, blocks of integers, configurations and weights."""
