"""The create and http shapes: chains of Responses, and what may continue what."""
