"""HTTP and MCP: who asks, what they may, which status an error has, how answers stream."""
