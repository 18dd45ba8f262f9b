// The AI SDK over each provider that speaks one of our protocols: one table of checks. Run by `ai_sdk.py`.
//
// The embedded model answers what it can; a script (`scripted.py`) thinks, calls twice and breaks off.

import assert from 'node:assert/strict';

import { createAnthropic } from '@ai-sdk/anthropic';
import { createDeepSeek } from '@ai-sdk/deepseek';
import { createGroq } from '@ai-sdk/groq';
import { createMistral } from '@ai-sdk/mistral';
import { createOpenResponses } from '@ai-sdk/open-responses';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { createOpenRouter } from '@openrouter/ai-sdk-provider';
import { createOllama } from 'ai-sdk-ollama';
import { createOllama as createOllamaV2 } from 'ollama-ai-provider-v2';
import {
  APICallError, embed, embedMany, generateObject, generateText, isStepCount, jsonSchema, Output, streamObject, streamText,
  tool,
} from 'ai';
import { z } from 'zod';

import { notApplicable, run } from './checks.mjs';

const { SHEPHERD_SUITE_URL: REAL, SHEPHERD_SUITE_SCRIPT: SCRIPT, SHEPHERD_SUITE_KEY: KEY } = process.env;

globalThis.AI_SDK_LOG_WARNINGS = false;

// ---- providers: a model by address, name and key; `embeds`, where the package has embeddings of its own

const compatible = (url, apiKey) =>
  createOpenAICompatible({ name: 'shepherd', baseURL: `${url}/v1`, apiKey, includeUsage: true, supportsStructuredOutputs: true });
const headers = (key) => ({ Authorization: `Bearer ${key}` });
const ollamaV2 = (url, key) => createOllamaV2({ baseURL: `${url}/api`, headers: headers(key) });
const aiSdkOllama = (url, key) => createOllama({ baseURL: url, headers: headers(key) });
const ofV1 = (create) => (url, apiKey) => create({ baseURL: `${url}/v1`, apiKey });
const [openai, anthropic, mistral, deepseek, groq] = [createOpenAI, createAnthropic, createMistral, createDeepSeek, createGroq].map(ofV1);
const openrouter = (url, apiKey) => createOpenRouter({ baseURL: `${url}/v1`, apiKey, compatibility: 'strict' });
const openResponses = (url, apiKey) => createOpenResponses({ name: 'shepherd', url: `${url}/v1/responses`, apiKey });

const NO_STOP = 'Responses has no stop sequences';
const NO_EMBEDDINGS = 'the package has no embeddings';
const NO_THOUGHTS = 'OpenAI\'s protocol of chats has no thoughts, and the package reads none';
const OLLAMA = {
  'finishReason content-filter': 'Ollama\'s protocol has no such reason',
  'a forced call': 'Ollama\'s protocol has no tool_choice',
  'toolChoice none': 'Ollama\'s protocol has no tool_choice',
  'a call that is no JSON': 'Ollama\'s arguments are an object: such a call is a text there',
  'cached tokens': 'Ollama\'s protocol does not count them',
  'reasoning tokens': 'Ollama\'s protocol does not count them',
};
const NO_COUNTS = 'the package does not ask for the counts of a stream (stream_options), and OpenAI sends them only then';
const V2_ERRORS = 'the package reads OpenAI\'s errors only, not Ollama\'s `{"error": "…"}`';
const WORDS_ONLY = 'the package asks for any JSON object, and puts the schema into the prompt: the embedded model is too small to follow it';

// ---- what a vendor's own options add to the body: none of it may be an error

const openaiOptions = {
  user: 'u', metadata: { a: 'b' }, serviceTier: 'auto', promptCacheKey: 'p', safetyIdentifier: 's', parallelToolCalls: false,
};
const OPTIONS = {
  'openai chat': { openai: { ...openaiOptions, logprobs: 2, store: true, logitBias: {}, textVerbosity: 'low', strictJsonSchema: true } },
  'openai responses': {
    openai: { ...openaiOptions, logprobs: 2, truncation: 'auto', maxToolCalls: 2, textVerbosity: 'low', promptCacheRetention: '24h' },
  },
  'openai-compatible': { shepherd: { user: 'u', reasoningEffort: 'low', textVerbosity: 'low', repetition_penalty: 1.0 } },
  anthropic: {
    anthropic: {
      disableParallelToolUse: true, effort: 'low', toolStreaming: true, metadata: { userId: 'u' }, cacheControl: { type: 'ephemeral' },
      contextManagement: { edits: [{ type: 'clear_tool_uses_20250919' }] },
    },
  },
  'ollama-ai-provider-v2': { ollama: { think: false, options: { num_ctx: 2048, repeat_penalty: 1.0, top_k: 5, min_p: 0, seed: 7 } } },
  'ai-sdk-ollama': { ollama: { think: false, options: { num_ctx: 2048, repeat_penalty: 1.0, top_k: 5, seed: 7 } } },
  mistral: { mistral: { safePrompt: true, parallelToolCalls: false, documentImageLimit: 3, documentPageLimit: 3 } },
  deepseek: { deepseek: { thinking: { type: 'disabled' } } },
  groq: { groq: { reasoningFormat: 'parsed', user: 'u', parallelToolCalls: false, serviceTier: 'auto' } },
  openrouter: { openrouter: { user: 'u', usage: { include: true }, reasoning: { enabled: true, effort: 'low' }, provider: { order: ['a'] } } },
};

const own = { anthropic: createAnthropic({ apiKey: KEY }).tools, openai: createOpenAI({ apiKey: KEY }).tools };
const TOOLS = {
  anthropic: {
    bash: own.anthropic.bash_20250124({}),
    str_replace_based_edit_tool: own.anthropic.textEditor_20250728({}),
    memory: own.anthropic.memory_20250818({}),
  },
  'openai responses': { patch: own.openai.customTool({ name: 'patch', description: 'Edits a file.' }) },
};

const providers = {
  'openai chat': {
    of: (...at) => openai(...at).chat, embeds: openai,
    aside: { reasoning: NO_THOUGHTS, 'reasoning, streamed': NO_THOUGHTS, 'reasoning, text and a call, and back': NO_THOUGHTS },
  },
  'openai responses': {
    of: (...at) => openai(...at).responses,
    thinking: { openai: { forceReasoning: true, reasoningSummary: 'auto' } },
    aside: { stopSequences: NO_STOP, 'embed and embedMany': 'the same as with openai chat' },
  },
  'openai responses, not stored': {
    of: (...at) => openai(...at).responses,
    thinking: { openai: { forceReasoning: true, reasoningSummary: 'auto', store: false, include: ['reasoning.encrypted_content'] } },
    aside: { stopSequences: NO_STOP, 'embed and embedMany': 'the same as with openai chat' },
  },
  'openai-compatible': { of: compatible, embeds: compatible },
  anthropic: {
    of: anthropic,
    thinking: { anthropic: { thinking: { type: 'enabled', budgetTokens: 1024 } } },
    aside: { 'embed and embedMany': NO_EMBEDDINGS, 'reasoning tokens': 'the package does not read their number' },
  },
  'ai-sdk-ollama': {
    of: aiSdkOllama, embeds: aiSdkOllama, thinking: { ollama: { think: true } },
    aside: {
      ...OLLAMA,
      'response metadata': 'the package passes no headers on',
      'aborted before it begins': 'the package does not look at the signal before it asks',
      'too many requests, and again': 'the package throws errors of its own, which the SDK does not repeat',
    },
    noPieces: true,
    ownErrors: true, // the package throws errors of its own, which have a message and no status
  },
  'ollama-ai-provider-v2': {
    of: ollamaV2, embeds: ollamaV2, thinking: { ollama: { think: true } },
    aside: {
      ...OLLAMA,
      maxOutputTokens: 'the package sends it outside `options`, where Ollama does not read it',
      stopSequences: 'the package does not send them',
      reasoning: 'the package puts the text before the thoughts, in whichever order they come',
      'reasoning, streamed': 'the package begins a text before the thoughts, in whichever order they come',
      'unknown model': V2_ERRORS,
      'wrong key': V2_ERRORS,
      'a prompt that is too long': V2_ERRORS,
      'an engine that fails': V2_ERRORS,
      'an engine that fails in a stream': 'the package drops the line of a stream that reports an error',
      'an image': 'the package fails before it sends the image',
      'a model that completes a text': 'the package demands a list `context` in every line of a stream; Ollama sends it in the last only',
    },
    emptyText: true,
  },
  mistral: {
    of: mistral, embeds: mistral,
    aside: {
      reasoning: 'Mistral sends thoughts as parts of the content; this is not OpenAI\'s protocol',
      'reasoning, streamed': 'Mistral sends thoughts as parts of the content; this is not OpenAI\'s protocol',
      'reasoning, text and a call, and back': 'Mistral sends thoughts as parts of the content; this is not OpenAI\'s protocol',
      'reasoning tokens': 'the package does not read their number',
      'finishReason content-filter': 'the package does not know the reason',
      'usage of a stream': NO_COUNTS,
    },
    noMessage: true, // the package reads Mistral's errors, which have no object `error`
  },
  deepseek: {
    of: deepseek,
    aside: {
      'cached tokens': 'the package reads DeepSeek\'s own field, prompt_cache_hit_tokens',
      'Output.object, zod': WORDS_ONLY,
      'Output.object, JSON Schema, streamed': WORDS_ONLY,
      'Output.array and Output.choice': WORDS_ONLY,
      'generateObject and streamObject': WORDS_ONLY,
      'a strict tool with a hard schema': 'the package sends strict tools to one path of DeepSeek\'s only',
      'embed and embedMany': NO_EMBEDDINGS,
    },
  },
  groq: { of: groq, aside: { 'embed and embedMany': NO_EMBEDDINGS, 'usage of a stream': NO_COUNTS } },
  openrouter: {
    of: openrouter, embeds: openrouter,
    aside: {
      'a model that completes a text': 'the package refuses what the SDK passes to it, before it asks',
      'a call that is no JSON': 'the package makes an empty object of its arguments',
    },
  },
  'open-responses': {
    of: openResponses,
    aside: { stopSequences: NO_STOP, 'embed and embedMany': NO_EMBEDDINGS },
    noPieces: true, // the package reports a call when it is complete
    onlyWithParam: true, // the package reads the message of an error only if its `param` is a text; it may be null
  },
};

const subjects = Object.fromEntries(
  Object.entries(providers).map(([name, { of, embeds, ...facts }]) => {
    const at = (url) => (model = 'lamb', key = KEY) => of(url, key)(model);
    return [name, { model: at(REAL), script: at(SCRIPT), provider: () => of(REAL, KEY), embedder: () => embedding(embeds(REAL, KEY)), options: OPTIONS[name], tools: TOOLS[name], thinking: {}, ...facts }];
  }),
);

function embedding(provider) {
  return provider.embeddingModel?.('lamb') ?? provider.textEmbeddingModel('lamb');
}

// ---- what is asked

const ASK = { maxRetries: 0, maxOutputTokens: 100 };
const PRIME = 'Hello!';
const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const ODD = 'a\u2028b\r\n\ndata: x\n\n{}\\"🐑 é\t\x00</think><tool_call>';
const ANSWER = 'Hello! How can I help you?';
const place = z.object({ city: z.enum(['Paris', 'Rome']), warm: z.boolean() });
const placeJson = jsonSchema({
  type: 'object',
  properties: { city: { type: 'string', enum: ['Paris', 'Rome'] }, days: { type: 'integer', minimum: 1, maximum: 9 } },
  required: ['city', 'days'],
  additionalProperties: false,
});

function weather(asked = []) {
  return {
    get_weather: tool({
      description: 'Get the current weather for a city.',
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => {
        asked.push(city);
        return `${city}: sunny, 21 degrees`;
      },
    }),
  };
}
const declared = () => ({ get_weather: tool({ description: 'Get the current weather for a city.', inputSchema: z.object({ city: z.string() }) }) });

function noWarnings(...results) {
  for (const result of results) assert.deepEqual(result.warnings ?? [], []);
}

async function parts(stream) {
  const found = [];
  for await (const part of stream) found.push(part);
  return found;
}

/** The kinds of parts in their order, a run of the same kind once; without the vendors' own. */
function kinds(found) {
  return found.map((part) => part.type).filter((kind) => kind !== 'custom').filter((kind, i, all) => kind !== all[i - 1]);
}

function textOf(found, kind = 'text-delta') {
  return found.filter((part) => part.type === kind).map((part) => part.text).join('');
}

async function failing(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error('no error');
}

/** Checks an error of the SDK; its message, where the package reads it. */
function isError(subject, error, statusCode, message, hasParam) {
  const { ownErrors, noMessage, onlyWithParam } = subject;
  if (!noMessage && (hasParam || !onlyWithParam)) assert.match(error.message, message);
  if (ownErrors) return;
  assert.ok(APICallError.isInstance(error), `${error?.name}: ${error?.message}`);
  assert.match(error.responseBody, message);
  assert.equal(error.statusCode, statusCode);
  assert.equal(error.isRetryable, statusCode === 429 || statusCode >= 500);
  assert.ok(error.responseHeaders['x-request-id'], 'the header x-request-id');
}

const STREAM = ['start', 'start-step', 'text-start', 'text-delta', 'text-end', 'finish-step', 'finish'];

const checks = {
  async 'generateText'({ model }) {
    const result = await generateText({ ...ASK, model: model(), prompt: PRIME });
    assert.equal(result.text, ANSWER);
    assert.equal(result.finishReason, 'stop');
    assert.deepEqual(result.content.map((part) => part.type), ['text']);
    noWarnings(result);
  },

  async 'instructions and messages'({ model }) {
    const result = await generateText({
      ...ASK,
      model: model(),
      instructions: 'You are a helpful assistant.',
      messages: [
        { role: 'user', content: 'My name is Ada.' },
        { role: 'assistant', content: 'Hello, Ada.' },
        { role: 'user', content: [{ type: 'text', text: 'What is my name?' }] },
      ],
    });
    assert.match(result.text, /Ada/);
    noWarnings(result);
  },

  async 'settings'({ model }) {
    const result = await generateText({ ...ASK, model: model(), prompt: PRIME, temperature: 0, topP: 0.9, seed: 7 });
    assert.equal(result.text, ANSWER);
    assert.ok(result.warnings.every((warning) => warning.type === 'unsupported'), JSON.stringify(result.warnings)); // the package's
  },

  async 'stopSequences'({ model }) {
    const result = await generateText({ ...ASK, model: model(), prompt: PRIME, stopSequences: ['help'] });
    assert.match(result.text, /^Hello! How can I\s*$/);
    assert.equal(result.finishReason, 'stop');
    noWarnings(result);
  },

  async 'usage'({ model }) {
    const { usage } = await generateText({ ...ASK, model: model(), prompt: PRIME });
    assert.equal(usage.inputTokens, 11, JSON.stringify(usage));
    assert.equal(usage.outputTokens, 11);
    assert.equal(usage.totalTokens, 22);
  },

  async 'cached tokens'({ model }) {
    for (let i = 0; i < 2; i++) {
      const { usage } = await generateText({ ...ASK, model: model(), prompt: PRIME });
      if (i === 0) continue; // the first may find nothing
      const { cacheReadTokens, noCacheTokens } = usage.inputTokenDetails;
      assert.equal(cacheReadTokens, 10, JSON.stringify(usage));
      assert.equal(noCacheTokens, 1);
    }
  },

  async 'maxOutputTokens'({ model }) {
    const result = await generateText({ ...ASK, model: model(), prompt: PRIME, maxOutputTokens: 2 });
    assert.equal(result.finishReason, 'length');
    assert.equal(result.usage.outputTokens, 2);
    const found = await parts(streamText({ ...ASK, model: model(), prompt: PRIME, maxOutputTokens: 2 }).stream);
    assert.deepEqual(kinds(found), STREAM);
    assert.equal(found.at(-1).finishReason, 'length');
  },

  async 'finishReason content-filter'({ script }) {
    const result = await generateText({ ...ASK, model: script(), prompt: 'filter' });
    assert.equal(result.finishReason, 'content-filter');
  },

  async 'streamText'({ model }) {
    const result = streamText({ ...ASK, model: model(), prompt: PRIME });
    const found = await parts(result.stream);
    assert.deepEqual(kinds(found), STREAM);
    assert.equal(textOf(found), ANSWER);
    assert.ok(found.filter((part) => part.type === 'text-delta').length > 2, 'it streams');
    assert.equal(found.at(-1).finishReason, 'stop');
    assert.deepEqual(found[1].warnings, []);
  },

  async 'usage of a stream'({ model }) {
    const found = await parts(streamText({ ...ASK, model: model(), prompt: PRIME }).stream);
    const { inputTokens, outputTokens } = found.at(-1).totalUsage;
    assert.deepEqual([inputTokens, outputTokens], [11, 11]);
  },

  async 'response metadata'({ model }) {
    const { response } = await generateText({ ...ASK, model: model(), prompt: PRIME });
    assert.ok(response.headers['x-request-id'], 'the header x-request-id');
    assert.equal(response.modelId, 'lamb');
    assert.ok(response.id);
    assert.ok(Math.abs(response.timestamp - Date.now()) < 60_000, String(response.timestamp));
  },

  async 'the vendor\'s own options'({ model, options }) {
    if (!options) notApplicable('the table of checks has no options for this package');
    const asked = { ...ASK, model: model(), prompt: PRIME, providerOptions: options, tools: declared(), toolChoice: 'auto' };
    assert.ok((await generateText(asked)).text.length > 0);
    const found = await parts(streamText(asked).stream);
    assert.deepEqual(found.filter((part) => part.type === 'error').map((part) => part.error.message), []);
  },

  async 'the vendor\'s own tools, run by the client'({ model, tools }) {
    if (!tools) notApplicable('the table of checks has no tools for this package');
    for (const [name, offered] of Object.entries(tools)) {
      const asked = { ...ASK, model: model(), prompt: 'Run the command ls.', tools: { [name]: offered }, toolChoice: 'required' };
      const { toolCalls: [call] } = await generateText(asked);
      assert.equal(call.toolName, name);
      assert.equal(call.invalid, undefined, String(call.error));
    }
  },

  async 'a model that completes a text'({ provider }) {
    const completion = provider().completionModel ?? provider().completion;
    if (!completion || completion === provider().chat) notApplicable('the package has no model of its own that completes a text');
    const asked = { ...ASK, model: completion('lamb'), prompt: 'Once upon a time', maxOutputTokens: 8 };
    const whole = await generateText(asked);
    assert.ok(whole.text.length > 0);
    assert.equal(whole.finishReason, 'length');
    const found = await parts(streamText(asked).stream);
    assert.equal(textOf(found), whole.text);
    assert.equal(found.at(-1).finishReason, 'length');
  },

  async 'a strict tool with a hard schema'({ model }) {
    const inputSchema = z.object({
      when: z.enum(['now', 'later']), days: z.array(z.number().int().min(1).max(7)).max(2), note: z.string().max(10).nullable(),
      place: z.object({ city: z.enum(['Paris', 'Rome']) }), by: z.union([z.literal('train'), z.literal('car')]),
    });
    const tools = { plan: tool({ description: 'Plan a journey.', inputSchema, strict: true }) };
    const result = await generateText({ ...ASK, model: model(), prompt: 'Plan a journey to Rome.', tools, toolChoice: 'required', maxOutputTokens: 120 });
    const [call] = result.toolCalls;
    assert.equal(call.invalid, undefined, String(call.error));
    inputSchema.parse(call.input);
  },

  async 'a result that is an error, or holds an image'({ model }) {
    const call = { type: 'tool-call', toolCallId: 'call_1', toolName: 'get_weather', input: { city: 'Paris' } };
    const image = { type: 'file', mediaType: 'image/png', data: { type: 'data', data: PIXEL } };
    for (const output of [
      { type: 'error-text', value: 'no network' }, { type: 'json', value: { sky: 'clear' } }, { type: 'content', value: [{ type: 'text', text: 'sunny' }, image] },
    ]) {
      const messages = [
        { role: 'user', content: 'What is the weather in Paris?' }, { role: 'assistant', content: [{ type: 'text', text: 'I look.' }, call] },
        { role: 'tool', content: [{ type: 'tool-result', toolCallId: 'call_1', toolName: 'get_weather', output }] },
      ];
      const result = await generateText({ ...ASK, model: model(), messages, tools: declared() });
      assert.ok(result.text.length + result.toolCalls.length > 0, output.type);
    }
  },

  async 'a call that the model chooses'({ model }) {
    const result = await generateText({ ...ASK, model: model(), prompt: 'What is the weather in Paris?', tools: declared() });
    assert.equal(result.finishReason, 'tool-calls');
    assert.deepEqual(result.toolCalls.map((call) => [call.toolName, call.input]), [['get_weather', { city: 'Paris' }]]);
    noWarnings(result);
  },

  async 'a forced call'({ model }) {
    for (const toolChoice of ['required', { type: 'tool', toolName: 'get_weather' }]) {
      const result = await generateText({ ...ASK, model: model(), prompt: 'Hello!', tools: declared(), toolChoice });
      assert.equal(result.finishReason, 'tool-calls', JSON.stringify(toolChoice));
      assert.equal(result.toolCalls[0].toolName, 'get_weather');
      assert.equal(typeof result.toolCalls[0].input.city, 'string');
      assert.equal(result.text, '');
      noWarnings(result);
    }
  },

  async 'toolChoice none'({ model }) {
    const result = await generateText({ ...ASK, model: model(), prompt: 'What is the weather in Paris?', tools: declared(), toolChoice: 'none' });
    assert.deepEqual(result.toolCalls, []);
    noWarnings(result);
  },

  async 'the loop of tools'({ model }) {
    const asked = [];
    const result = await generateText({
      ...ASK, model: model(), prompt: 'What is the weather in Paris?', tools: weather(asked), stopWhen: isStepCount(3),
    });
    assert.deepEqual(asked, ['Paris']);
    assert.deepEqual(result.steps.map((step) => step.finishReason), ['tool-calls', 'stop']);
    assert.match(result.text, /sunny|21/);
    for (const step of result.steps) noWarnings(step);
  },

  async 'the loop of tools, streamed'({ model, noPieces, emptyText }) {
    const asked = [];
    const result = streamText({
      ...ASK, model: model(), prompt: 'What is the weather in Paris?', tools: weather(asked), stopWhen: isStepCount(3),
    });
    const found = await parts(result.stream);
    const pieces = noPieces ? [] : ['tool-input-start', 'tool-input-end'];
    if (!emptyText) {
      const seen = kinds(found.filter((part) => part.type !== 'tool-input-delta'));
      assert.deepEqual(seen, ['start', 'start-step', ...pieces, 'tool-call', 'tool-result', 'finish-step', ...STREAM.slice(1)]);
    }
    assert.deepEqual(asked, ['Paris']);
    assert.match(textOf(found), /sunny|21/);
    const typed = found.filter((part) => part.type === 'tool-input-delta').map((part) => part.delta).join('');
    if (!noPieces) assert.deepEqual(JSON.parse(typed), { city: 'Paris' });
  },

  async 'calls in parallel'({ script }) {
    const asked = [];
    const result = await generateText({
      ...ASK, model: script(), prompt: 'call twice', tools: weather(asked), stopWhen: isStepCount(2),
    });
    assert.deepEqual(asked, ['Paris', 'Rome']);
    assert.equal(result.text, 'Mild in both.');
    const ids = result.steps[0].toolCalls.map((call) => call.toolCallId);
    assert.equal(new Set(ids).size, 2);
  },

  async 'calls in parallel, streamed'({ script, noPieces }) {
    const asked = [];
    const result = streamText({
      ...ASK, model: script(), prompt: 'call twice', tools: weather(asked), stopWhen: isStepCount(2),
    });
    const found = await parts(result.stream);
    assert.deepEqual(asked, ['Paris', 'Rome']);
    assert.equal(textOf(found), 'Mild in both.');
    assert.deepEqual(found.filter((part) => part.type === 'tool-call').map((part) => part.input), [{ city: 'Paris' }, { city: 'Rome' }]);
    const starts = found.filter((part) => part.type === 'tool-input-start').map((part) => part.id);
    assert.equal(new Set(starts).size, noPieces ? 0 : 2);
  },

  async 'Output.object, zod'({ model }) {
    const result = await generateText({ ...ASK, model: model(), prompt: 'Where is it warm?', output: Output.object({ schema: place }) });
    place.parse(result.output);
    noWarnings(result);
  },

  async 'Output.object, JSON Schema, streamed'({ model }) {
    const result = streamText({ ...ASK, model: model(), prompt: 'Where is it warm?', output: Output.object({ schema: placeJson }) });
    const partial = [];
    for await (const part of result.partialOutputStream) partial.push(part);
    const whole = await result.output;
    assert.ok(['Paris', 'Rome'].includes(whole.city) && whole.days >= 1 && whole.days <= 9, JSON.stringify(whole));
    assert.deepEqual(partial.at(-1), whole);
    noWarnings({ warnings: await result.warnings });
  },

  async 'Output.array and Output.choice'({ model }) {
    const { output: choice } = await generateText({ ...ASK, model: model(), prompt: 'Is it warm?', output: Output.choice({ options: ['yes', 'no'] }) });
    assert.ok(['yes', 'no'].includes(choice));
    const element = z.object({ city: z.enum(['Paris', 'Rome']) });
    const { output: cities } = await generateText({
      ...ASK, model: model(), prompt: 'Name two cities.', output: Output.array({ element }),
    });
    z.array(element).parse(cities);
  },

  async 'generateObject and streamObject'({ model }) {
    const result = await generateObject({ ...ASK, model: model(), prompt: 'Where is it warm?', schema: place });
    place.parse(result.object);
    noWarnings(result);
    const stream = streamObject({ ...ASK, model: model(), prompt: 'Where is it warm?', schema: place });
    for await (const _ of stream.partialObjectStream);
    place.parse(await stream.object);
  },

  async 'odd text'({ script }) {
    const whole = await generateText({ ...ASK, model: script(), prompt: 'odd text' });
    assert.equal(whole.text, ODD);
    assert.equal(textOf(await parts(streamText({ ...ASK, model: script(), prompt: 'odd text' }).stream)), ODD);
  },

  async 'pings'({ script, thinking }) {
    const ask = { ...ASK, model: script(), prompt: 'think, speak, call, slowly', providerOptions: thinking, tools: declared() };
    const found = await parts(streamText(ask).stream);
    assert.deepEqual(found.filter((part) => part.type === 'error').map((part) => String(part.error)), []);
    assert.equal(textOf(found), 'I look.');
    assert.deepEqual(found.filter((part) => part.type === 'tool-call').map((part) => part.input), [{ city: 'Paris' }]);
    assert.equal((await generateText(ask)).toolCalls.length, 1);
  },

  async 'a call without arguments'({ script }) {
    const tools = { now: tool({ description: 'The time.', inputSchema: z.object({}), execute: async () => 'noon' }) };
    const ask = { ...ASK, model: script(), prompt: 'call without arguments', tools, stopWhen: isStepCount(2) };
    const whole = await generateText(ask);
    assert.deepEqual(whole.steps[0].toolCalls.map((call) => call.input), [{}]);
    assert.equal(whole.text, 'Mild in both.');
    const found = await parts(streamText(ask).stream);
    assert.deepEqual(found.filter((part) => part.type === 'tool-call').map((part) => part.input), [{}]);
    assert.equal(textOf(found), 'Mild in both.');
  },

  async 'a call that is no JSON'({ script }) {
    const tools = { now: tool({ description: 'The time.', inputSchema: z.object({}).strict() }) };
    const ask = { ...ASK, model: script(), prompt: 'call badly', tools };
    for (const calls of [(await generateText(ask)).toolCalls, (await parts(streamText(ask).stream)).filter((part) => part.type === 'tool-call')]) {
      assert.equal(calls.length, 1);
      assert.equal(calls[0].invalid, true);
    }
  },

  async 'an empty answer'({ script, thinking }) {
    for (const prompt of ['nothing', 'thoughts only']) {
      const ask = { ...ASK, model: script(), prompt, providerOptions: thinking };
      const whole = await generateText(ask);
      assert.deepEqual([whole.text, whole.finishReason], ['', 'stop'], prompt);
      const found = await parts(streamText(ask).stream);
      assert.deepEqual(found.filter((part) => part.type === 'error').map((part) => String(part.error)), []);
      assert.equal(found.at(-1).finishReason, 'stop');
    }
  },

  async 'how much to think'({ model }) {
    for (const reasoning of ['none', 'minimal', 'low', 'medium', 'high', 'xhigh']) {
      const result = await generateText({ ...ASK, model: model(), prompt: PRIME, maxOutputTokens: 3000, reasoning });
      assert.equal(result.text, ANSWER, reasoning);
    }
  },

  async 'reasoning'({ script, thinking }) {
    const result = await generateText({ ...ASK, model: script(), prompt: 'think', providerOptions: thinking });
    assert.equal(result.reasoningText, 'Two and two.');
    assert.equal(result.text, 'Four.');
    assert.deepEqual(result.content.map((part) => part.type), ['reasoning', 'text']);
    noWarnings(result);
  },

  async 'reasoning, streamed'({ script, thinking }) {
    const found = await parts(streamText({ ...ASK, model: script(), prompt: 'think', providerOptions: thinking }).stream);
    assert.equal(textOf(found, 'reasoning-delta'), 'Two and two.');
    assert.equal(textOf(found), 'Four.');
    const seen = kinds(found);
    assert.ok(seen.indexOf('reasoning-start') < seen.indexOf('reasoning-delta'));
    assert.ok(seen.indexOf('reasoning-end') > seen.lastIndexOf('reasoning-delta'));
    assert.ok(seen.indexOf('reasoning-delta') < seen.indexOf('text-start'));
  },

  async 'reasoning, text and a call, and back'({ script, thinking }) {
    const asked = [];
    const result = streamText({
      ...ASK, model: script(), prompt: 'think, speak, call', tools: weather(asked), stopWhen: isStepCount(2), providerOptions: thinking,
    });
    const found = await parts(result.stream);
    assert.deepEqual(asked, ['Paris']);
    assert.equal(textOf(found), 'I look.Mild in both.');
    assert.equal(textOf(found, 'reasoning-delta'), 'Two and two.');
    assert.equal(found.filter((part) => part.type === 'error').length, 0);
    assert.equal(found.at(-1).finishReason, 'stop');
  },

  async 'reasoning tokens'({ script, thinking }) {
    const { usage } = await generateText({ ...ASK, model: script(), prompt: 'think', providerOptions: thinking });
    assert.equal(usage.outputTokens, 9);
    assert.equal(usage.outputTokenDetails.reasoningTokens, 4);
  },

  async 'unknown model'(subject) {
    const ask = { ...ASK, model: subject.model('nothing'), prompt: PRIME };
    const found = await parts(streamText({ ...ask, onError() {} }).stream);
    for (const error of [await failing(generateText(ask)), found.find((part) => part.type === 'error').error]) {
      isError(subject, error, 404, /model 'nothing' (does not exist|not found)/, true);
    }
  },

  async 'wrong key'(subject) {
    const error = await failing(generateText({ ...ASK, model: subject.model('lamb', 'wrong'), prompt: PRIME }));
    isError(subject, error, 401, /this API key is not valid/, false);
  },

  async 'a prompt that is too long'(subject) {
    const error = await failing(generateText({ ...ASK, model: subject.model(), prompt: 'word '.repeat(6000) }));
    isError(subject, error, 400, /prompt is too long/, true);
  },

  async 'an engine that fails'(subject) {
    isError(subject, await failing(generateText({ ...ASK, model: subject.script(), prompt: 'fail at once' })), 500, /the engine failed/, false);
  },

  async 'too many requests'(subject) {
    const error = await failing(generateText({ ...ASK, model: subject.script(), prompt: 'wait' }));
    isError(subject, error, 429, /too many requests/i, false);
    if (!subject.ownErrors) assert.ok(error.responseHeaders['retry-after'], 'retry-after');
  },

  async 'too many requests, and again'({ script }) {
    const ask = { maxRetries: 2, model: script(), prompt: `wait once ${Math.random()}` };
    assert.equal((await generateText(ask)).text, 'Mild in both.');
  },

  async 'an engine that fails in a stream'({ script, ownErrors }) {
    const found = [];
    try {
      for await (const part of streamText({ ...ASK, model: script(), prompt: 'fail in the middle', onError() {} }).stream) found.push(part);
    } catch (error) {
      found.push({ type: 'error', error });
    }
    const errors = found.filter((part) => part.type === 'error');
    if (!ownErrors) assert.equal(textOf(found), 'Half');
    assert.ok(errors.length >= 1, JSON.stringify(kinds(found)));
    assert.match(errors[0].error?.message ?? JSON.stringify(errors[0].error), /the engine failed/);
  },

  async 'abort'({ model }) {
    const stop = new AbortController();
    const result = streamText({ ...ASK, model: model(), prompt: 'Tell me a long story.', abortSignal: stop.signal });
    const found = [];
    for await (const part of result.stream) {
      found.push(part);
      if (part.type === 'text-delta') stop.abort();
    }
    assert.equal(found.at(-1).type, 'abort');
    const { text } = await generateText({ ...ASK, model: model(), prompt: PRIME });
    assert.equal(text, ANSWER);
  },

  async 'aborted before it begins'({ model }) {
    const asked = generateText({ ...ASK, model: model(), prompt: PRIME, abortSignal: AbortSignal.abort() });
    await assert.rejects(asked, { name: 'AbortError' });
  },

  async 'an image'({ script }) {
    const data = Buffer.from(PIXEL, 'base64');
    const content = [{ type: 'text', text: 'What is it?' }, { type: 'file', data, mediaType: 'image/png' }];
    const { text } = await generateText({ ...ASK, model: script(), messages: [{ role: 'user', content }] });
    assert.equal(text, `image/png, ${data.length} bytes`);
  },

  async 'embed and embedMany'({ embedder }) {
    const one = await embed({ ...ASK, model: embedder(), value: 'A lamb.' });
    const { embeddings, usage, warnings } = await embedMany({ ...ASK, model: embedder(), values: ['A lamb.', 'A young sheep.'] });
    assert.equal(embeddings.length, 2);
    assert.equal(one.embedding.length, embeddings[0].length);
    assert.ok(embeddings[0].length > 64 && embeddings.flat().every(Number.isFinite));
    assert.ok(Math.abs(one.embedding[0] - embeddings[0][0]) < 1e-3);
    assert.ok(usage.tokens > 0, JSON.stringify(usage));
    assert.deepEqual(warnings ?? [], []);
  },
};

const withAsides = Object.fromEntries(
  Object.entries(checks).map(([name, check]) => [
    name,
    (subject) => (subject.aside?.[name] ? notApplicable(subject.aside[name]) : check(subject)),
  ]),
);
await run(subjects, withAsides);
