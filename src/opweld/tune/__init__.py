"""Tuning: what is chosen by predicted seconds is tried, and what measures faster on this machine is kept."""
