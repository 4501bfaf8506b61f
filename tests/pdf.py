"""PDF files out of their objects, for tests of parsing and of hostile files."""

from __future__ import annotations

from collections.abc import Sequence


def pdf_of(objects: Sequence[str], *, root: int = 1) -> bytes:
    """A PDF file of these numbered objects, cross-reference table and trailer included."""
    out = b"%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1")
    table = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{offset:010d} 00000 n \n".encode() for offset in offsets)
    out += f"trailer\n<< /Size {len(objects) + 1} /Root {root} 0 R >>\n".encode()
    return out + f"startxref\n{table}\n%%EOF\n".encode()
