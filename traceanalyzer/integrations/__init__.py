"""Other programs that ask: a server of the Model Context Protocol, and a skill for agents."""
