"""Lexical and vector search over one knowledge base, fused per query."""
