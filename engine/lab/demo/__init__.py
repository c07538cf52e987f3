"""The main job in one command: a coding agent mends a repository over one Response, and everybody can watch."""
