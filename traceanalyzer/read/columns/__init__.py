"""Raw events -> columns -> frames."""
