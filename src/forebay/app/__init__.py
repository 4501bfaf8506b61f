"""Settings, wiring and the command line: the only place that names concrete parts."""
