"""`python -m opweld`, and the command `opweld`."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line, or says what it needs where that is not installed."""
    try:
        from opweld.cli.main import main as run
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "opweld"):
            raise
        print(
            f"opweld: the command line needs {missing}, which is not installed: pip install {missing}. "
            "What runs an artifact needs NumPy alone: python -m opweld.run ARTIFACT",
            file=sys.stderr,
        )
        sys.exit(1)
    run()


if __name__ == "__main__":
    main()
