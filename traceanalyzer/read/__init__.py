"""From a file's bytes to a Trace: `text` makes raw events of bytes, `columns` frames of raw events."""
