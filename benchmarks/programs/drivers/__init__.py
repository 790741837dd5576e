"""A few lines for each program that call it. They run in its environment and import nothing of opweld."""
