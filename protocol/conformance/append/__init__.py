"""The append shape: what may be said to a Response that is live, and what may come back."""
