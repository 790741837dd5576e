"""What Acme adds to opweld; its entry points, in pyproject.toml, name the modules."""
