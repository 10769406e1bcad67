"""What runs measured, in SQLite."""
