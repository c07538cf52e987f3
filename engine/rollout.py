"""One Response, from create to its terminal event: the loop.

    sample ──calls──> answer (the park is in here) ──results──> extend ──> sample …
      └──no calls──> end

The loop does not know which tools are the client's: it asks each call's tool for the answer, and a client's tool waits for
the client's append. The coroutine stands still there, with the model's state in its hands, and goes on in the same place.

Under the loop are its ``audience`` (the log, and who listens) and its ``lifespan`` (phases, deadlines, how it ends). The
terminal event is sent from one place (``_seal``), whatever happened before (law L2).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import trio
from attrs import evolve

from protocol import events as ev
from protocol.errors import ProtocolError
from protocol.ids import new_id
from protocol.items import FileSearchCall, Item
from protocol.lifecycle import LIVE, Phase
from protocol.requests import AppendRequest, CreateRequest
from protocol.response import Response, ResponseError, Usage, usage_of
from tools.client import ClientTool
from tools.spec import HostedTool

from . import account
from . import ending as endings
from .conversations import Conversations, Visit
from .ending import COMPLETED, OUR_FAULT, SHUTDOWN, Ending, wrong_format
from .history import History
from .inbox import Inbox
from .lifespan import Lifespan
from .logs import note
from .models.base import CallBegin, CallEnd, Chunk, Model, ModelError, Rendered, Sampler, Stop, StopReason
from .output import HostedCall, Output, SampledCall
from .parking import Slots, stub_of
from .policy import Verdict
from .references import NOTHING, References, names_items
from .services import Services
from .stages.answer_format import deviation
from .stages.pipeline import Prepared, Previous, Stages, at_once
from .stages.validate import callable_tools
from .store import Stored

Load = Callable[[str], Awaitable[Previous]]
"""Gives the Response of that id, to be continued; raises ``ProtocolError``."""


class Rollout(Lifespan):
    """One Response. Its public methods but ``run`` are plain functions: they decide at once, and nothing can cut them."""

    __slots__ = (
        "_began_at",
        "_cached_tokens",
        "_callable",
        "_client_tool",
        "_conversations",
        "_ended_at",
        "_held_bytes",
        "_history",
        "_holds",
        "_hosted",
        "_inbox",
        "_input_tokens",
        "_load",
        "_model",
        "_model_report",
        "_muted",
        "_on_created",
        "_on_ended",
        "_on_refused",
        "_on_sealed",
        "_outside",
        "_packed",
        "_prepared",
        "_previous",
        "_references",
        "_remembered",
        "_services",
        "_settled",
        "_slots",
        "_steered",
        "_turn_ids",
        "_turn_open",
        "_verdict",
        "_visit",
        "output",
        "severed",
        "stages",
        "tenant",
    )

    def __init__(
        self,
        services: Services,
        request: CreateRequest,
        tenant: str,
        *,
        shape: account.Shape,
        load: Load,
        conversations: Conversations,
        references: References,
        remembered: Mapping[str, Item],
        on_refused: Callable[[ProtocolError], None],
        on_created: Callable[["Rollout"], None],
        on_sealed: Callable[["Rollout"], None],
        on_ended: Callable[["Rollout"], None],
    ) -> None:
        """``load`` gives the previous Response's context, ``references`` the items that the request names, but for those that
        are ``remembered``, by id. Told in this order: ``on_refused``, and nothing else; or ``on_created`` before the first
        event, ``on_sealed`` after the last, ``on_ended`` when it is billed and stored."""
        super().__init__(request, shape, services.config)
        self.tenant = tenant
        self.severed = False
        """What it continues was deleted: it can't be continued any more."""
        self.stages = Stages(services)
        self._services = services
        self._load = load
        self._conversations = conversations
        self._references = references
        self._remembered = remembered
        self._previous: Previous | None = None
        self._visit: Visit | None = None
        """It is in a conversation."""
        self._prepared: Prepared | None = None
        self._turn_ids: Callable[[], Sequence[int]] | None = None
        self._model_report: Callable[[], Mapping[str, Any]] = _nothing
        self._on_refused = on_refused
        self._on_created = on_created
        self._on_sealed = on_sealed
        self._on_ended = on_ended
        self._slots = Slots()
        self._hosted = _hosted_for(request, services.hosted)
        seals = "reasoning.encrypted_content" in (request.include or ())
        self.output = Output(self, services.entropy, self._hosted, self._slots, seals_reasoning=seals)
        self._inbox = Inbox(
            self._slots,
            self.output.items,
            lambda: new_id("append", services.entropy),
            remember=services.config.idempotency_keys,
        )
        self._client_tool = ClientTool(self._slots)
        self._holds = shape == "append" and (request.hold or services.config.hold) == "conversation"
        self._model: Model | None = None
        self._history = History()
        self._settled = 0
        self._began_at = 0
        self._outside: list[Item] = []
        self._input_tokens = 0
        self._cached_tokens = 0
        self._held_bytes = 0
        self._turn_open = False
        self._steered = False
        self._callable: frozenset[str] | None = None
        self._muted = False
        self._verdict: Verdict | None = None
        """What the policy said of the output, until it is billed and stored."""
        self._packed = b""
        """Its log, as it is stored."""
        self._ended_at = 0.0

    # ---- what is asked from outside

    @property
    def calls(self) -> int:
        """How many calls were sampled, of client and hosted tools."""
        return self.output.calls

    @property
    def outside(self) -> Sequence[Item]:
        """What came from outside so far: the request's input, and what was appended and read."""
        return self._outside

    @property
    def unanswered(self) -> tuple[ev.Stub, ...]:
        """The calls that the client has yet to answer, in a continuation."""
        return tuple(stub_of(call) for call in self._history.open.values())

    def append(self, request: AppendRequest, *, epoch: int | None = None, size: int = 0) -> ev.AppendAccepted:
        """Apply an append and acknowledge it in the log; returns the acknowledgement.

        Raises ``ProtocolError``, and then nothing has changed.
        ``epoch`` is the one at which the sender attached, or None if it never did; ``size`` is the frame's, in bytes.
        """
        self._check_live(epoch)
        if self.shape != "append":
            message = f"{self.id} goes on with response.create and previous_response_id, not with response.append"
            raise ProtocolError("response_not_active", message, "response_id")
        if self._held_bytes + size > self._config.context_bytes:
            limit = self._config.context_bytes
            raise ProtocolError("message_too_large", f"input: the Response would hold more than {limit} bytes", "input")
        accepted = self._inbox.apply(request, self.stages.screen)
        self._held_bytes += size  # of duplicates too: each leaves an acknowledgement in the log
        self.emit(accepted)
        self._flush()  # the sender waits for nothing else
        self._slots.wake()
        if self.phase is Phase.PARKED and self._parked_for == "tools" and not self._slots.pending:
            self._resume()
        elif self._parked_for == "user" and self._inbox.has_messages:
            self._resume()
            self._moved.unpark_all()
        return accepted

    def finish(self, *, epoch: int | None = None) -> None:
        """End a held conversation: now, if it waits for the user, else when the model has answered.

        Acknowledged by the terminal event, or by ``response.in_progress`` if that is still to come.
        """
        self._check_live(epoch)
        self._holds = False  # of no account in the shapes that never hold
        if self._parked_for == "user":
            self._resume()
            self._moved.unpark_all()
        else:
            self._heartbeat()

    def steer(self, info: ev.SteerInfo) -> None:
        """A steer is queued: acknowledge it, and end at the next item, unless calls wait for the client."""
        self._steered = True
        self.emit(ev.SteerAccepted(info))
        self._flush()

    @property
    def own_tokens(self) -> int:
        """How many tokens came with it, in and out, when it has ended."""
        usage = self._response.usage if self._response is not None else None
        return usage.total_tokens - usage.input_tokens_details.cached_tokens if usage is not None else 0

    def forget_tokens(self) -> None:
        """Let go of its token ids. Whoever continues it renders its history again, but for those who have it already."""
        self._history = self._history.without_ids()

    def sever(self, response_id: str) -> None:
        """That Response is deleted: if this one continues it, its context is no more."""
        self.severed |= response_id in self._history.of

    def as_previous(self) -> Previous | None:
        """What a Response that continues this one needs; None if it has not ended, or ended so that nothing follows."""
        if self._response is None or self._response.status not in ("completed", "incomplete"):
            return None
        return Previous(
            self._history,
            instructions=self.request.instructions,
            model=self._model,
            stored=self.request.store is not False,
            began=self._began_at,
        )

    def snapshot(self) -> Response | None:
        """The Response as it is now: what is whole of its output, if it has not ended."""
        if self._response is None or self.phase is Phase.ENDED:
            return self._response
        return evolve(self._response, output=tuple(self.output.whole()), usage=None)

    # ---- the loop

    def start(self, previous: Previous | None) -> bool:
        """Begin at once, if nothing has to be waited for; else ``run`` begins. Returns whether ``run`` is to be called.

        ``previous`` is the Response that this one continues, if it is at hand.
        """
        self._times.started = trio.current_time()
        self._previous = previous
        before = self.request.previous_response_id or self.request.conversation
        if (before is not None and previous is None) or names_items(self.request):
            return True
        if self.stages.takes_long(self.request, previous):
            return True
        return at_once(self._prepare())

    async def _prepare(self) -> bool:
        """The stages before inference, and the beginning; false if the request was refused."""
        try:
            if self._previous is None:
                self._previous = await self._look_back()
            self.request = await self._references.in_request(self.tenant, self.request, self._remembered)
            prepared = await self.stages.before(self.request, self._previous, self.shape)
        except ProtocolError as error:
            self._leave_conversation()
            self._on_refused(error)
            return False
        except Exception as error:
            self._leave_conversation()
            self._on_refused(ProtocolError("server_error", "the server failed; this is its fault"))
            self._services.on_bug(error)
            return False
        self._begin(prepared)
        return True

    async def run(self) -> None:
        """Live. Whatever happens, the Response ends with one terminal event, one row, and nothing left behind."""
        try:
            await self.answer()
        finally:
            await self.settle()  # noqa: ASYNC102 - what it waits for is shielded, with a deadline

    async def answer(self) -> None:
        """The first part of ``run``, up to the terminal event. Cancelled, it ends like any; ``settle`` is to follow."""
        if self._prepared is None and not await self._prepare():
            return
        assert self._prepared is not None
        prepared, self._prepared = self._prepared, None
        try:
            with self._scope:
                await self._generate(prepared)
            if self._scope.cancelled_caught:
                self._end(self._timeout())
        except ModelError as error:
            self._end(Ending("failed", error=ResponseError(error.code, error.message)))
        except Exception as error:
            self._end(OUR_FAULT)
            self._services.on_bug(error)
        except BaseException:  # cancelled, which from under a nursery comes as a group
            if self.in_place:
                self.abandon()
            raise
        finally:
            await self._seal()  # noqa: ASYNC102 - as above

    async def _look_back(self) -> Previous | None:
        """What the request says that comes before it."""
        request = self.request
        if request.previous_response_id:
            return await self._load(request.previous_response_id)
        if request.conversation is None or self.shape == "append":
            return None
        self._visit = await self._conversations.enter(self.tenant, request)
        return self._visit.previous

    async def _generate(self, prepared: Prepared) -> None:
        if self.request.generate is False:
            self._end(COMPLETED)  # a warm-up: all is prepared for the Response that continues it
            return
        async with prepared.model.open(prepared.plan) as sampler:
            self._turn_ids = getattr(sampler, "turn_ids", None)
            self._model_report = getattr(sampler, "report", _nothing)
            await self._converse(sampler)

    async def _converse(self, sampler: Sampler) -> None:
        while True:
            reason = await self._sample(sampler)
            if not self.live:
                return  # cancelled between two checkpoints
            if reason not in ("tool_calls", "end"):
                self._end(Ending("incomplete", reason))
                return
            results = await self._answer(self.output.turn)
            if results is None:
                self._end(COMPLETED)  # the client answers with another Response
                return
            if not results:
                if not self._inbox.has_messages and await self._user_is_silent():
                    self._end(COMPLETED)
                    return
                self._flush()
            await sampler.extend(await self._admit(results))

    async def _sample(self, sampler: Sampler) -> StopReason | str:
        """Let events go out until the model stops; returns why it did."""
        self.output.begin_turn()
        self._turn_open = True
        times, first = self._times, True
        while True:
            started = trio.current_time()
            chunks = await sampler.receive()
            took = trio.current_time() - started
            times.sampling += took
            if first:
                times.first_tokens += took
                times.samplings += 1
                first = False
            reason = self._take(chunks)
            if reason is not None:
                return reason
            self._flush()
            if self._controller is not None:
                await self._controller.outbox.room()

    def _may_call(self, name: str) -> bool:
        """Whether a call is let through. Those that ``tool_choice`` or ``max_tool_calls`` forbid are as if never sampled."""
        most = self.request.max_tool_calls
        return (self._callable is None or name in self._callable) and (most is None or self.output.calls < most)

    def _take(self, chunks: Sequence[Chunk]) -> str | None:
        """Let ``chunks`` be output; returns why sampling is over, if it is."""
        for chunk in chunks:
            kind = type(chunk)
            if kind is Stop:
                self.output.close(cut=chunk.reason in ("max_output_tokens", "content_filter"))  # type: ignore[union-attr]
                return chunk.reason  # type: ignore[union-attr]
            if kind is CallBegin:
                self._muted = not self._may_call(chunk.name)  # type: ignore[union-attr]
            if not self._muted:
                self.output.feed(chunk)
            elif kind is CallEnd:
                self._muted = False
            if self._steered and not self.output.busy and not self._slots.pending:
                return "steered"
        return "max_output_tokens" if self.output.tokens > self._config.output_tokens else None

    async def _answer(self, calls: Sequence[SampledCall]) -> tuple[Item, ...] | None:
        """Ask every call's tool, side by side. Returns finished hosted calls, then the outputs in call order.

        Where a client's results come with another Response, its calls are not asked, and the answer is None.
        """
        if self.shape != "append" and self._slots.pending:
            await self._ask_all([call for call in calls if isinstance(call, HostedCall)])
            return None
        if not calls:
            return ()
        if self._slots.pending:
            self._park("tools", self._slots.stubs)
        else:
            self._flush()
        if len(calls) == 1:
            return (await self._ask(calls[0]),)  # the common case, without the tasks of the other
        results = await self._ask_all(calls)
        return tuple(sorted(results, key=lambda item: not isinstance(item, FileSearchCall)))

    async def _ask_all(self, calls: Sequence[SampledCall]) -> list[Item]:
        """Ask every call's tool, side by side; the results come in call order."""
        results: dict[int, Item] = {}

        async def ask(place: int, call: SampledCall) -> None:
            results[place] = await self._ask(call)

        async with trio.open_nursery() as nursery:
            for place, call in enumerate(calls):
                nursery.start_soon(ask, place, call)
        return [results[place] for place in range(len(calls))]

    async def _ask(self, call: SampledCall) -> Item:
        if not isinstance(call, HostedCall):
            return (await self._client_tool.call(call)).item
        self._flush()
        item = call.item
        with trio.move_on_after(self._config.hosted_seconds):
            item = await call.tool.run(call.item, lambda stage: self._progress(call, stage))
        if item.status not in ("completed", "failed"):
            item = evolve(item, status="failed")
        item = self.stages.screen_hosted(item)
        self.output.finish_hosted(call, item)
        self._flush()
        return item

    def _progress(self, call: HostedCall, stage: str) -> None:
        self.output.progress(call, stage)
        self._flush()

    async def _user_is_silent(self) -> bool:
        """Whether the Response may end: a held conversation first waits for what the user says next."""
        if self._holds:
            self._park("user", (ev.Stub("message", role="user"),))
            while self._holds and not self._inbox.has_messages:
                await self._moved.park()
        return not self._inbox.has_messages

    async def _admit(self, results: tuple[Item, ...]) -> Rendered:
        messages = self._inbox.take_messages()
        rendered = await self.stages.admit((*results, *messages))
        self._input_tokens += len(rendered.ids)
        self._settle((*(item for item in results if not isinstance(item, FileSearchCall)), *messages), rendered.ids)
        return rendered

    def _settle(self, outside: Sequence[Item], ids: Sequence[int] | None = None) -> None:
        """The turn is over: what was put out, and what came in, is now history. ``ids``: what the model was given then."""
        sampled = self.output.items[self._settled :]
        self._settled = len(self.output.items)
        self._history.add_sampled(sampled)
        self._history.add(outside)
        self._outside += outside
        if self._history.rendered:
            with self.stages.counters["render"]:
                turn = self._ids_of_turn(sampled)
            self._history.ids.extend((*turn, *(ids or ())))
            if ids is None:  # what hosted tools have found is read by whoever goes on
                self._history.unread = tuple(item for item in sampled if isinstance(item, FileSearchCall))
        self._turn_open = False

    def _ids_of_turn(self, sampled: Sequence[Item]) -> Sequence[int]:
        """The tokens of the turn that is over: those that were sampled, where they are known. A steer may cut it anywhere."""
        if self._turn_ids is not None and self._turn_open and not self._steered:
            return self._turn_ids()
        return self.stages.format.render_calls(sampled)

    def _begin(self, prepared: Prepared) -> None:
        self._move("start")
        self.id = new_id("response", self._services.entropy)
        self._times.since = trio.current_time()
        self._prepared = prepared
        self._model, self._history = prepared.model, prepared.history
        self._history.of.extend((self.id,))
        self._began_at = len(self._history.items) - len(prepared.new)
        self._outside += prepared.new
        self._input_tokens = len(prepared.plan.prompt.ids)
        self._cached_tokens = prepared.cached_tokens
        self._callable = callable_tools(prepared.plan.tool_choice)
        self._response = account.snapshot(self.id, self.request, prepared.plan, int(self._services.wall()))
        self._on_created(self)
        self._remembered = NOTHING
        self._on_refused = self._on_created = _nobody  # they hold on to what the socket knew
        self.emit(ev.Created(self._response))
        self.emit(ev.InProgress(self._response))
        self._flush()
        if self._controller is None:
            self._detached_at = trio.current_time()
        self._arm()

    # ---- the end

    async def _seal(self) -> None:
        """The terminal event. Post-inference work comes later (``settle``), unless what was said is to be in a
        conversation before the client can go on with it."""
        ending, verdict = self._concluded()
        await self.stages.take_time(shielded=True)
        final = self._finished(ending)
        last = self.log.append(endings.terminal(final), read=True)
        self._verdict = verdict
        overlap = "overlap" in self._config.reuse and self._visit is None
        if not overlap:
            self._settle_late()
            await self._after(final)
        if self.timed:
            self._tell_timing(account.timing_metrics(self._times, self.output.tokens))
        self._deliver(last)
        self._flush()
        self._response = final
        self._move("seal")
        if overlap:
            self._settle_late()
            if self.request.store is not False:
                self._references.expect(self.tenant, self.id)
        self._moved.unpark_all()
        self._on_sealed(self)
        self._on_sealed = _nobody
        note("response.ended", response=self.id, status=final.status, reason=ending.reason, parks=self.parks)

    async def settle(self) -> None:
        """The second part of ``run``: post-inference work, if it was not done before the end was told."""
        if self._prepared is not None:  # its client was gone before it could answer
            self.abandon()
            self._prepared = None
            await self._seal()
        if self.phase is not Phase.ENDED:
            return  # refused, or a bug of ours has kept it from ending
        assert self._response is not None
        if self._verdict is not None:
            await self._after(self._response)
        self._let_go()
        self._on_ended(self)

    def _let_go(self) -> None:
        """It may be kept for a while, for its events and its history: the rest goes now, and with it what refers back to it."""
        del self._turn_ids, self._model_report
        del self.output, self.stages, self._inbox, self._slots, self._client_tool, self._hosted, self._load
        self._previous = None
        if self._packed:
            self._pack(self._packed)

    def _concluded(self) -> tuple[Ending, Verdict]:
        """Close what is open, and look at all that was put out. A bug in here costs this Response, and no other."""
        try:
            self._close_items()
            return self._screened(self._ending or SHUTDOWN)
        except Exception as error:
            self._services.on_bug(error)
            return OUR_FAULT, Verdict(items=tuple(self.output.items))
        finally:
            self._slots.close()

    def _finished(self, ending: Ending) -> Response:
        assert self._response is not None
        report = account.engine_report(self.stages.counters, self._times, self.parks, self.shape, self._model_report())
        self._ended_at = self._services.wall()
        return endings.final(self._response, ending, self.output.items, self._usage(), int(self._ended_at), report)

    async def _after(self, final: Response) -> None:
        """Bill and store, whatever else is cancelled. What fails here is a bug, and the client's Response ends all the same."""
        row = account.row(self, final, self._ended_at)
        verdict, self._verdict = self._verdict, None
        assert verdict is not None
        try:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + self._config.seal_seconds) as scope:
                stored = self._to_store(final, verdict) if self.request.store is not False else None
                await self.stages.after(row, stored)
                if self._visit is not None and stored is not None and final.status in ("completed", "incomplete"):
                    own = self._began_at
                    await self._visit.add(stored.items[own:], [stop - own for stop in stored.stops if stop > own])
            if scope.cancelled_caught:
                raise trio.TooSlowError
        except Exception as error:
            self._services.on_bug(error)
        finally:
            self._references.arrived(self.id)
            self._leave_conversation()

    def _leave_conversation(self) -> None:
        if self._visit is not None:
            self._visit.leave()

    def _to_store(self, final: Response, verdict: Verdict) -> Stored:
        previous_id = self.request.previous_response_id if self._previous and self._previous.stored else None
        stored = endings.to_store(
            self.tenant, final, self._history, self._began_at, self._outside, verdict, self.log, previous_id=previous_id
        )
        self._packed = stored.events
        return stored

    def _close_items(self) -> None:
        if self.phase in LIVE:
            self._end(SHUTDOWN)  # cancelled from above: the server is going down without grace
        self.output.close(cut=True)
        for call in self.output.turn:
            if isinstance(call, HostedCall) and call.item.status in ("in_progress", "searching"):
                self.output.finish_hosted(call, evolve(call.item, status="failed"))

    def _settle_late(self) -> None:
        """What was acknowledged and not read by the model yet is kept all the same."""
        late: list[Item] = []
        if self._turn_open:
            calls = [call for call in self.output.turn if not isinstance(call, HostedCall)]
            late += [result for call in calls if (result := self._slots.result(call.call_id)) is not None]
        self._settle((*late, *self._inbox.take_messages()))

    def _screened(self, ending: Ending) -> tuple[Ending, Verdict]:
        verdict = self.stages.classify_output(self.output.items)
        if ending.status != "completed":
            return ending, verdict
        if verdict.blocked:
            return Ending("incomplete", "content_filter"), verdict
        wrong = None if self._slots.pending else deviation(self.request.text, self.output.items)
        return (ending if wrong is None else wrong_format(wrong)), verdict

    def _usage(self) -> Usage:
        return usage_of(
            self._input_tokens,
            self.output.tokens,
            cached=self._cached_tokens,
            reasoning=self.output.reasoning_tokens,
        )


def _hosted_for(request: CreateRequest, hosted: Mapping[str, HostedTool]) -> Mapping[str, HostedTool]:
    """The hosted tools that the request asks for, by type."""
    if not hosted or not request.tools:
        return {}
    asked = {tool.type for tool in request.tools}
    return {name: tool for name, tool in hosted.items() if name in asked}


def _nobody(_: object) -> None:
    """Who is told what cannot happen any more."""


def _nothing() -> Mapping[str, Any]:
    """What a model reports that has nothing to report."""
    return {}
