"""The one exception whose text is meant for the user."""


class CaptureError(Exception):
    """What is wrong and what to do about it, in one or two lines; the command exits with 2."""
