"""What other servers run; nothing here needs opweld, as their interpreters have none."""
