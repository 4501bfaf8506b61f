"""A continuous-batching engine fleet that lives on a virtual clock or in real time."""
