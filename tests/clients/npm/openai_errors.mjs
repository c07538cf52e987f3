// What the openai package makes of errors, and of the endpoints beside create.
import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";

const { url } = JSON.parse(process.argv[2]);
const client = new OpenAI({ baseURL: url, apiKey: "local", maxRetries: 0 });

async function refusal(promise) {
  try {
    await promise;
    return null;
  } catch (error) {
    return { name: error.constructor.name, status: error.status, code: error.code, param: error.param, type: error.type };
  }
}

async function socketError(body) {
  const socket = new ResponsesWS(client);
  socket.send({ type: "response.create", model: "scripted", ...body });
  for await (const { type, error } of socket.stream()) {
    if (type !== "error") continue;
    socket.close();
    return { code: error.error?.code, message: error.message };
  }
}

const stored = await client.responses.create({ model: "scripted", input: "hello", store: true });
const again = await client.responses.retrieve(stored.id);
const items = [];
for await (const item of client.responses.inputItems.list(stored.id)) items.push(item);
const replayed = [];
for await (const event of await client.responses.retrieve(stored.id, { stream: true })) replayed.push(event.type);
const counted = await client.responses.inputTokens.count({ model: "scripted", input: "hello" });
const compacted = await client.responses.compact({ model: "scripted", input: [{ role: "user", content: "hello" }] });
const background = await client.responses.create({ model: "scripted", input: "hello", background: true, store: true });
const models = [];
for await (const model of client.models.list()) models.push(model.id);
await client.responses.delete(stored.id);

console.log(
  JSON.stringify({
    text: stored.output_text,
    same: JSON.stringify(again.output) === JSON.stringify(stored.output),
    items,
    replayed,
    counted: counted.input_tokens,
    compacted: compacted.output.map((item) => item.type),
    background: background.status,
    models,
    deleted: await refusal(client.responses.retrieve(stored.id)),
    model: await refusal(client.responses.create({ model: "nobody", input: "hello" })),
    previous: await refusal(client.responses.create({ model: "scripted", input: "x", previous_response_id: "resp_none" })),
    temperature: await refusal(client.responses.create({ model: "scripted", input: "x", temperature: "hot" })),
    socket: await socketError({ input: "x", previous_response_id: "resp_none" }),
  }),
);
