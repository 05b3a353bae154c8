"""How near ops came to what the device can do."""
