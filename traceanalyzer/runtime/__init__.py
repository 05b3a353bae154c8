"""Processes and clusters that keep a state for each file and answer questions about it. Imports no stage."""
