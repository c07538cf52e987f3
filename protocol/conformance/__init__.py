"""The laws as properties, for any server that serves the append shape: conversations are generated, played and judged.

- ``strategies``: Hypothesis strategies for programs, damaged frames, moves, conversations (``moves`` says what there is).
- ``machine.play``: plays a conversation over a ``transport`` and raises ``ConformanceError`` when a law is broken.
- ``world``: what is known while it plays; ``model``: the reference model, small enough to read in one go; ``script``: what the
  ``scripted`` model must say; ``audit``: what must be true at the end; ``story``: how failures print.

Nothing is imported here, so that the parts without Hypothesis can be used without it.
"""
