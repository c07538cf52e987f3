"""``sostenuto chat``: a conversation with a model in a terminal, over the append shape.

``conversation`` is what goes on, and knows no terminal; ``view`` shows it, ``keyboard`` reads what is typed and hears
Ctrl-C, ``permission`` has the tools and asks before one changes something, and ``command`` puts them together.
"""
