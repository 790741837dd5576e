"""How long a test waits for what ends in seconds where nothing else runs: nothing fails because a machine is slow."""

from __future__ import annotations

PATIENCE_S = 1800
"""Seconds after which a process or an answer that a test waits for hangs."""
