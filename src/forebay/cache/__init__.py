"""Cache tiers in front of the stages: keys, single flight, invalidation."""
