"""Value types, the error tree, time, and the protocols of the stages: no I/O, no vendor."""
