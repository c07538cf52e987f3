// An agent made with the openai package: it runs the model's calls until there are none.
// Given {url, how, prompt}, it prints {texts, calls, answers}: what the model said, what it called, and how many Responses that took.
import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";

const { url, how, prompt } = JSON.parse(process.argv[2]);
const client = new OpenAI({ baseURL: url, apiKey: "local", maxRetries: 0 });

const tools = [
  {
    type: "function",
    name: "add",
    description: "Adds two numbers",
    parameters: {
      type: "object",
      properties: { a: { type: "number" }, b: { type: "number" } },
      required: ["a", "b"],
      additionalProperties: false,
    },
    strict: true,
  },
  { type: "function", name: "fail", description: "Fails", parameters: null, strict: null },
];
const run = {
  add: ({ a, b }) => `sum ${a + b}`,
  fail: () => "error: it failed",
};
const basis = { model: "scripted", tools, instructions: "Use the tools." };

const texts = [];
const calls = [];
let answers = 0;

// Notes what an answer says; the outputs of its calls.
function outputsOf(output) {
  answers += 1;
  const outputs = [];
  for (const item of output) {
    if (item.type === "message") texts.push(item.content.map((part) => part.text).join(""));
    if (item.type !== "function_call") continue;
    const args = JSON.parse(item.arguments);
    calls.push([item.name, args]);
    outputs.push({ type: "function_call_output", call_id: item.call_id, output: run[item.name](args) });
  }
  return outputs;
}

// The whole history each time.
async function withHistory(turn) {
  const input = [{ role: "user", content: prompt }];
  for (;;) {
    const output = await turn({ ...basis, input, store: false });
    const outputs = outputsOf(output);
    if (!outputs.length) return;
    input.push(...output, ...outputs);
  }
}

// What is new, after the Response before.
async function withPrevious(turn, more) {
  let input = [{ role: "user", content: prompt }];
  let previous_response_id;
  while (input.length) {
    const { id, output } = await turn({ ...basis, ...more, input, previous_response_id });
    previous_response_id = id;
    input = outputsOf(output);
  }
}

const seen = new Set();

async function streamed(body) {
  const output = [];
  for await (const event of await client.responses.create({ ...body, stream: true })) {
    seen.add(event.type);
    if (event.type === "response.output_item.done") output.push(event.item);
  }
  return output;
}

async function helped(body) {
  const stream = client.responses.stream(body);
  let text = "";
  stream.on("response.output_text.delta", (event) => (text += event.delta));
  const response = await stream.finalResponse();
  if (text !== response.output_text) throw new Error(`deltas: ${text}, final: ${response.output_text}`);
  return response;
}

async function overSocket() {
  const socket = new ResponsesWS(client);
  const events = socket.stream();
  await withPrevious(
    async (body) => {
      socket.send({ type: "response.create", ...body });
      for (;;) {
        const { value, done } = await events.next();
        if (done) throw new Error("the socket closed");
        if (value.type === "error") throw value.error;
        if (value.type !== "message") continue;
        seen.add(value.message.type);
        if (value.message.type === "response.completed") return value.message.response;
      }
    },
    { store: false },
  );
  socket.close();
}

const ways = {
  json: () => withHistory(async (body) => (await client.responses.create(body)).output),
  chain: () => withPrevious((body) => client.responses.create(body), { store: true }),
  stream: () => withHistory(streamed),
  helper: () => withHistory(async (body) => (await helped(body)).output),
  "helper chain": () => withPrevious(helped, { store: true }),
  socket: overSocket,
};
await ways[how]();
console.log(JSON.stringify({ texts, calls, answers, seen: [...seen] }));
