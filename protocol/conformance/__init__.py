"""The laws as properties, for any server of the Responses API: conversations are generated, played and judged.

- ``append``: the append shape. ``conversations`` generates, ``machine.play`` plays and raises ``ConformanceError`` when a law
  is broken; ``world`` is what is known meanwhile, ``model`` the reference model, ``audit`` what must be true at the end.
- ``chain``: the same for the create and http shapes; ``player`` is what the machines have in common.
- ``probes``: named, fixed conversations.
- ``transport``: how a server is reached; ``adapters``: how it is steered; ``capabilities``: what it offers.
- ``script``: what the ``scripted`` model must say; ``sayings``: what clients say; ``strategies``: what all shapes share.
- ``story``: how failures print; ``laws`` and ``report``: what was found.

Nothing is imported here, so that the parts without Hypothesis can be used without it.
"""
