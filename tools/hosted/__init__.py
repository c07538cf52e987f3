"""Tools that the server runs itself."""

from .file_search import FileSearch, results_text

__all__ = ["FileSearch", "results_text"]
