"""Folders of Hugging Face: config.json, safetensors, tokenizer.json."""
