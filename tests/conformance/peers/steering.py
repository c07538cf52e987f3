"""Adapters of the kit for peers that do programs, but not all: ``--adapter tests.conformance.peers.steering:Fastresponses``."""

from protocol.conformance.adapters import Programs

READ = {"name": "read", "arguments": '{"path":"é/🎹.txt"}'}
BOTH = [{"name": "t0", "arguments": "{}"}, {"name": "t1", "arguments": '{"n": 1.0}'}]


class Fastresponses(Programs):
    """fastresponses with ``fastresponses_adapter.py``: texts that follow each other would be one message."""

    programs = (
        ({"say": "Hello."},),
        ({"reason": "I see. 🎹"}, {"say": "naïve café ☕ 👩‍👩‍👧‍👦\n"}),
        ({"say": {"tokens": 30}},),
        ({"call": READ}, {"say": "Done: {{output}}."}),
        ({"say": "Let me see."}, {"calls": BOTH}, {"say": "It says {{output_of:t0}}."}),
        ({"call": READ, "wait": False}, {"say": "Meanwhile."}, {"wait": True}, {"reason": "Well."}, {"say": "Done."}),
        ({"repeat": 2, "steps": [{"call": READ}, {"reason": "Again."}]}, {"calls": BOTH}, {"say": "Done."}),
        ({"call": READ}, {"if": {"contains": "ok"}, "then": [{"reason": "Good."}], "else": [{"call": READ}]}, {"say": "Done."}),
        ({"say": "As far as I get."}, {"stop": "max_output_tokens"}),
        ({"reason": "I see."}, {"fail": {"message": "as asked"}}),
    )


class Aimock(Programs):
    """aimock with ``aimock_programs.mjs``: reasoning comes first in a turn, and never alone."""

    programs = tuple(steps for steps in Fastresponses.programs if not any("fail" in step or "if" in step for step in steps))

    def __init__(self, model: str = "gpt-5") -> None:
        super().__init__(model)
