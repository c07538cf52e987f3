// aimock with a function for an answer, which does the kit's programs: what fixtures can't, quote a result, it can.
// Start it where @copilotkit/aimock is installed: node …/aimock_programs.mjs PORT
// Steps are those of protocol/conformance/script.py. Reasoning comes first in a turn, and never alone: aimock has no other way.
import { createRequire } from "node:module";
import { join } from "node:path";

const { LLMock } = createRequire(join(process.cwd(), "package.json"))("@copilotkit/aimock");

const textOf = (content) =>
  typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("");
const callsOf = (step) => step.calls ?? (step.call ? [step.call] : []);
const stops = (step) => "stop" in step || "fail" in step;

function last(outputs, name) {
  const found = outputs.filter(([of]) => name === undefined || of === name);
  return found.length ? found.at(-1)[1] : undefined;
}

function inner(step, outputs) {
  if ("repeat" in step) return Array(step.repeat).fill(step.steps).flat();
  const seen = last(outputs, step.if.output_of);
  return seen !== undefined && seen.includes(step.if.contains) ? step.then : (step.else ?? []);
}

function speech(said, outputs) {
  if (typeof said === "object") return "word ".repeat(said.tokens);
  return said.replace(/\{\{output(?:_of:([^{}]+))?\}\}/g, (_, name) => (last(outputs, name) ?? "").slice(0, 2000));
}

// What comes next, why it stops, and what is left then.
function turn({ rest, outputs }) {
  const blocks = [];
  let reasoning, calls = false;
  rest = [...rest];
  while (rest.length) {
    const step = rest.shift();
    if (callsOf(step).length) calls = true;
    if ("if" in step || "repeat" in step) rest.unshift(...inner(step, outputs));
    if ("reason" in step) reasoning = (reasoning ?? "") + speech(step.reason, outputs);
    if ("say" in step && speech(step.say, outputs)) blocks.push({ type: "text", text: speech(step.say, outputs) });
    for (const { name, arguments: given = {} } of callsOf(step)) {
      blocks.push({ type: "toolCall", name, arguments: typeof given === "string" ? given : JSON.stringify(given) });
    }
    if ("fail" in step) return { blocks, reasoning, reason: "fail", rest };
    if ("stop" in step) return { blocks, reasoning, reason: step.stop, rest: [step, ...rest] };
    if (calls && (step.wait ?? callsOf(step).length > 0)) break;
  }
  return { blocks, reasoning, reason: "end", rest };
}

function hear(state, message) {
  if (message.startsWith("{")) return { rest: JSON.parse(message).program, outputs: [], told: true };
  let rest = [...state.rest];
  while (rest.length && !callsOf(rest[0]).length && !stops(rest[0])) {
    const step = rest[0];
    if ("say" in step && speech(step.say, state.outputs)) break;
    rest = "if" in step || "repeat" in step ? [...inner(step, state.outputs), ...rest.slice(1)] : rest.slice(1);
  }
  if (state.told && rest.length) return stops(rest[0]) ? { ...state, rest: rest.slice(1) } : state;
  const asked = message.trim();
  const said = asked ? `You said: ${asked.length > 200 ? `${asked.slice(0, 200)}…` : asked}` : "You said nothing that I can read.";
  return { rest: [{ say: said }], outputs: state.outputs, told: false };
}

// Where the program stands after all messages.
function stateAfter(messages) {
  let state = { rest: [], outputs: [], told: false };
  const names = {};
  let made = false;
  for (const message of messages) {
    if (message.role === "assistant") {
      for (const call of message.tool_calls ?? []) names[call.id] = call.function.name;
      if (!made) state = { ...state, rest: turn(state).rest };
      made = true;
      continue;
    }
    made = false;
    const output = message.role === "tool" && [names[message.tool_call_id] ?? "", textOf(message.content)];
    if (output) state = { ...state, outputs: [...state.outputs, output] };
    if (message.role === "user") state = hear(state, textOf(message.content));
  }
  return state;
}

// As much of the answer as ``most`` tokens are; a call that doesn't fit is left out.
function cut(blocks, most) {
  let left = most * 5;
  const kept = [];
  for (const block of blocks) {
    const size = (block.text ?? block.arguments).length;
    if (size > left) return [true, block.type === "text" ? [...kept, { ...block, text: block.text.slice(0, left) }] : kept];
    left -= size;
    kept.push(block);
  }
  return [false, kept];
}

const FINISH = { max_output_tokens: "length", content_filter: "content_filter" };

const mock = new LLMock({ host: "127.0.0.1", port: Number(process.argv[2] ?? 4010) });
mock.on({}, async ({ messages, max_tokens: most, tool_choice: choice }) => {
  const { blocks: all, reasoning, reason } = turn(stateAfter(messages));
  const blocks = choice === "none" ? all.filter(({ type }) => type === "text") : all;
  if (reason === "fail") return { error: { message: "as asked", type: "server_error" }, status: 500 };
  const [short, kept] = cut(blocks, most ?? Infinity);
  const finishReason = short ? "length" : FINISH[reason];
  return { blocks: kept.length ? kept : [{ type: "text", text: "" }], reasoning, finishReason };
});
await mock.start();
console.log(`listening on ${mock.url}/v1`);
