"""Test-time methods on the client: one file each."""
