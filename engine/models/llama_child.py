"""The process that the model is in: ``python -m engine.models.llama_child`` runs the llama.cpp server of ``xllamacpp``.

It is told its settings in one line of JSON on standard input, and says ``{"url"}`` in one line on standard output when the
model is loaded and answers, or ``{"error"}``. It ends when standard input does: with its parent, however that ends. What
llama.cpp says goes to standard error.
"""

import json
import os
import sys
import threading
from typing import Any, Final, NoReturn

NICENESS: Final = 5
"""A model takes all the time of a processor that it is given; the event loop that serves its tokens must come first."""
QUIET: Final = 1
"""llama.cpp's verbosity: errors only."""


def main() -> NoReturn:
    """Serve until standard input ends."""
    told = json.loads(sys.stdin.readline())
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # so that nothing but our answer gets between the two
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.nice(NICENESS)
    try:
        server = _serve(**told)
    except Exception as error:
        _say(answers, {"error": str(error) or type(error).__name__})
        os._exit(1)
    _say(answers, {"url": server.listening_address})
    while True:
        threading.Event().wait()


def _say(answers: Any, what: dict[str, str]) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)  # at once: threads of llama.cpp that compute are not waited for


def _serve(
    *,
    file: str,
    name: str,
    slots: int,
    context: int,
    port: int,
    key: str,
    folder: str,
    threads: int,
    batch_threads: int,
    together: int,
    chat_template: str | None,
) -> Any:
    """The server, with its model loaded. ``context`` is that of each slot, in tokens; ``port`` 0 picks one."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = file, {name}
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], port, [key]
    params.n_parallel, params.n_ctx, params.kv_unified = slots, context * slots, False
    params.n_ubatch = together
    params.cont_batching, params.cache_prompt, params.ctx_shift = True, True, False
    params.cpuparams.n_threads, params.cpuparams_batch.n_threads = threads, batch_threads
    # With it a batch and a single token round differently, and a state that was held would not say what a read one says.
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.fit_params = False  # it would take a smaller context without a word
    params.cache_ram_mib, params.cache_idle_slots = 0, False  # a state that is let go is gone, and 8 GiB stay free
    params.slot_save_path = folder + os.sep  # lets slots be erased
    params.ui, params.use_jinja, params.warmup, params.verbosity = False, True, False, QUIET
    if chat_template is not None:
        params.chat_template = chat_template
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
