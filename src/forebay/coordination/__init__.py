"""What processes agree on: quotas, leases and change events."""
