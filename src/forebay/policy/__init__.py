"""Overload policies: synchronous decisions of numbers and time, wrapped around stages."""
