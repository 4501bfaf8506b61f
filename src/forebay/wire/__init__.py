"""Message types of the HTTP interfaces and the codec of event streams, for both ends."""
