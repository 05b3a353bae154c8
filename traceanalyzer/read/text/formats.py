"""Files that are no JSON and that people pass all the same: told by their first bytes, with what to do instead."""

from __future__ import annotations

import re
from typing import NamedTuple

LOOKED_AT_BYTES = 512  # beyond the longest of these marks

_UNPACK = "Unpack it and pass the .json in it."
_EXPORT = "Pass the .json or .json.gz that prof.export_chrome_trace(...) writes."


class Format(NamedTuple):
    """What begins like this, what that is, and what to do about it."""

    begins: bytes
    name: str
    remedy: str = _EXPORT


# Regular expressions, of the file's very first bytes; the first that fits. Each from the format's own specification.
_FORMATS = (
    Format(rb"PAR1", "a Parquet table"),
    Format(rb"ARROW1|FEA1", "an Arrow or Feather table"),
    Format(rb"PK\x03\x04[\s\S]{26}[^\0]*data\.pkl", "a file of torch.save"),
    Format(rb"PK(\x03\x04|\x05\x06|\x07\x08)", "a zip archive", _UNPACK),
    Format(rb"BZh[1-9]1AY&SY", "compressed with bzip2", _UNPACK),
    Format(rb"\xfd7zXZ\0", "compressed with xz", _UNPACK),
    Format(rb"\x04\x22\x4d\x18", "compressed with lz4", _UNPACK),
    Format(rb"7z\xbc\xaf\x27\x1c|Rar!\x1a\x07", "an archive of 7-Zip or RAR", _UNPACK),
    Format(
        rb"SQLite format 3\0",
        "an SQLite database, such as Nsight Systems exports",
        "Record with torch.profiler, and pass the .json or .json.gz that it exports.",
    ),
    Format(
        rb"\x80[\x02-\x05][\s\S]",
        "a Python pickle, such as a snapshot of the CUDA allocator",
        "Open a snapshot in https://pytorch.org/memory_viz; here, pass what torch.profiler exports.",
    ),
    Format(
        rb"version https://git-lfs\.github\.com/spec/",
        "a pointer of Git LFS, not the file",
        "Run `git lfs pull` first.",
    ),
    Format(
        rb"\xff\xfe|\xfe\xff",
        "text in UTF-16",
        "Save it as UTF-8: a shell that redirects may have converted it.",
    ),
    Format(
        rb"(\xef\xbb\xbf)?\s*<",
        "HTML or XML",
        "A download may have brought an error page or a viewer: pass the trace's .json or .json.gz.",
    ),
    Format(rb"\x89PNG|\xff\xd8\xff|GIF8", "a picture"),
    Format(rb"%PDF-", "a PDF document"),
    Format(rb"\x7fELF", "a program or a library"),
    Format(  # field 1, sized: a packet of Perfetto's Trace, a plane of an XSpace
        rb"\x0a(?!\s*[\[{])[\s\S]{0,62}[\x00-\x08\x0e-\x1f]",
        "binary, and looks like a protobuf: Perfetto's own format, or an .xplane.pb",
    ),
)


def format_of(content: bytes) -> Format | None:
    """What a file is that begins with these bytes; None where it may be JSON, or is not known."""
    first = content[:LOOKED_AT_BYTES]
    return next((one for one in _FORMATS if re.match(one.begins, first)), None)
