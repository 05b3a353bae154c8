"""One self-contained HTML file: text and drawings are there without scripts, which add what moves."""
