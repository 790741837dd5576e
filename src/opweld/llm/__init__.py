"""Language models: from files to a compiled model, an engine that serves many requests with it, and its interfaces."""
