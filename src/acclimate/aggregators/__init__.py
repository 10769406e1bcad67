"""Test-time methods on the server: one file each."""
