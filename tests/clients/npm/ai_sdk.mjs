// An agent made with the AI SDK, which runs the model's calls in steps until there are none.
// Given {url, provider, how, prompt, options}, it prints what each step said, called and got back, what it was refused, and the input
// of each request; `how` is generate or stream.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenResponses } from "@ai-sdk/open-responses";
import { generateText, isStepCount, jsonSchema, streamText, tool } from "ai";

const { url, provider, how, prompt, options } = JSON.parse(process.argv[2]);
const requests = [];
const recording = (input, init) => {
  requests.push(JSON.parse(init.body));
  return fetch(input, init);
};
const providers = {
  openai: () => createOpenAI({ baseURL: url, apiKey: "local", fetch: recording }).responses("scripted"),
  "open-responses": () =>
    createOpenResponses({ name: "sostenuto", url: `${url}/responses`, apiKey: "local", fetch: recording })("scripted"),
};

const numbers = {
  type: "object",
  properties: { a: { type: "number" }, b: { type: "number" } },
  required: ["a", "b"],
  additionalProperties: false,
};
const job = {
  model: providers[provider](),
  prompt,
  maxRetries: 0,
  providerOptions: { openai: options ?? {} },
  stopWhen: isStepCount(10),
  tools: {
    add: tool({
      description: "Adds two numbers",
      inputSchema: jsonSchema(numbers),
      execute: async ({ a, b }) => `sum ${a + b}`,
    }),
    fail: tool({
      description: "Fails",
      inputSchema: jsonSchema({ type: "object", properties: {} }),
      execute: async () => {
        throw new Error("it failed");
      },
    }),
  },
};

let deltas = null;
let steps = [];
let refused = null;
const refusal = (error) => ({ status: error.statusCode, ...error.data?.error });
if (how === "generate") {
  try {
    ({ steps } = await generateText(job));
  } catch (error) {
    refused = refusal(error);
  }
} else {
  const result = streamText({ ...job, onError: ({ error }) => (refused = refusal(error)) });
  deltas = "";
  for await (const delta of result.textStream) deltas += delta;
  steps = await result.steps;
}
console.log(
  JSON.stringify({
    texts: steps.map((step) => step.text).filter(Boolean),
    deltas,
    calls: steps.map((step) => step.toolCalls.map((call) => [call.toolName, call.input])),
    results: steps.map((step) => step.toolResults.map((result) => result.output)),
    finish: steps.at(-1)?.finishReason,
    refused,
    inputs: requests.map((request) => request.input),
  }),
);
