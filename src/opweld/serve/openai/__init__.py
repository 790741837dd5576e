"""OpenAI's HTTP API: https://platform.openai.com/docs/api-reference."""
