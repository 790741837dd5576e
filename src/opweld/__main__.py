"""`python -m opweld` is the command `opweld`."""

from __future__ import annotations

from opweld.cli.main import main

if __name__ == "__main__":
    main()
