"""Change events between processes: one file a carrier, all of them ``ChangeBus``."""
