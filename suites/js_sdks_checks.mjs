// OpenAI's and Anthropic's JavaScript SDKs: what their helpers make of our streams, and their classes of errors.
//
// The embedded model answers what it can; a script (`scripted.py`) thinks, calls twice and breaks off. Run by `js_sdks.py`.

import assert from 'node:assert/strict';

import Anthropic from '@anthropic-ai/sdk';
import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema';
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod';
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod';
import OpenAI from 'openai';
import { ResponsesToolRunner } from 'openai/helpers/responses-tool-runner';
import { zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';

import { run } from './checks.mjs';

const { SHEPHERD_SUITE_URL: REAL, SHEPHERD_SUITE_SCRIPT: SCRIPT, SHEPHERD_SUITE_KEY: KEY } = process.env;

const openai = (url = REAL, options = {}) => new OpenAI({ baseURL: `${url}/v1`, apiKey: KEY, maxRetries: 0, ...options });
const anthropic = (url = REAL, options = {}) => new Anthropic({ baseURL: url, apiKey: KEY, maxRetries: 0, ...options });

const HELLO = [{ role: 'user', content: 'Hello!' }];
const ANSWER = 'Hello! How can I help you?';
const ODD = 'a\u2028b\r\n\ndata: x\n\n{}\\"🐑 é\t\x00</think><tool_call>'; // what `servers.py` says
const WEATHER = [{ role: 'user', content: 'What is the weather in Paris?' }];
const place = z.object({ city: z.enum(['Paris', 'Rome']), warm: z.boolean() });
const about = 'Get the current weather for a city.';
const citySchema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const saying = (content) => [{ role: 'user', content }];

async function all(stream) {
  const found = [];
  for await (const each of stream) found.push(each);
  return found;
}

/** The error of the SDK that a promise is rejected with. */
async function failing(promise, type, status, message) {
  let error;
  await assert.rejects(async () => promise, (thrown) => ((error = thrown), true));
  assert.equal(error.constructor.name, type.name, `${error.name}: ${error.message}`);
  assert.ok(error instanceof type);
  assert.equal(error.status, status);
  assert.match(error.message, message);
  assert.match(error.requestID, /^req_/);
  return error;
}

const weather = (asked) => ({
  type: 'function',
  function: {
    name: 'get_weather', description: about, parameters: citySchema, parse: JSON.parse,
    function: ({ city }) => (asked.push(city), `${city}: sunny, 21 degrees`),
  },
});

// ---- OpenAI, chat completions

const CHAT = { model: 'lamb', messages: HELLO, max_tokens: 100 };

const chat = {
  async 'create'() {
    const { data, request_id, response } = await openai().chat.completions.create(CHAT).withResponse();
    assert.equal(data.choices[0].message.content, ANSWER);
    assert.equal(data._request_id, request_id);
    assert.match(request_id, /^req_/);
    assert.equal(response.status, 200);
    assert.deepEqual([data.usage.prompt_tokens, data.usage.completion_tokens], [11, 11]);
  },

  async 'create with stream'() {
    const chunks = await all(await openai().chat.completions.create({ ...CHAT, stream: true, stream_options: { include_usage: true } }));
    assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join(''), ANSWER);
    assert.deepEqual(chunks.at(-1).choices, []);
    assert.equal(chunks.at(-1).usage.total_tokens, 22);
  },

  async 'stream()'() {
    const stream = openai().chat.completions.stream(CHAT);
    const texts = [];
    stream.on('content.delta', ({ delta }) => texts.push(delta));
    let done = '';
    stream.on('content.done', ({ content }) => (done = content));
    const completion = await stream.finalChatCompletion();
    assert.equal(completion.choices[0].message.content, ANSWER);
    assert.equal(completion.choices[0].finish_reason, 'stop');
    assert.ok(texts.length > 2);
    assert.equal(texts.join(''), ANSWER);
    assert.equal(done, ANSWER);
    assert.equal(await stream.finalContent(), ANSWER);
    assert.equal((await stream.finalMessage()).role, 'assistant');
  },

  async 'stream() of calls'() {
    const tools = [zodFunction({ name: 'get_weather', description: about, parameters: z.object({ city: z.string() }) })];
    const stream = openai(SCRIPT).chat.completions.stream({ ...CHAT, messages: saying('call twice'), tools });
    const done = [];
    stream.on('tool_calls.function.arguments.done', (call) => done.push([call.index, call.name, call.parsed_arguments]));
    const { choices: [{ message, finish_reason }] } = await stream.finalChatCompletion();
    assert.equal(finish_reason, 'tool_calls');
    assert.deepEqual(message.tool_calls.map((call) => call.function.parsed_arguments), [{ city: 'Paris' }, { city: 'Rome' }]);
    assert.deepEqual(done, [[0, 'get_weather', { city: 'Paris' }], [1, 'get_weather', { city: 'Rome' }]]);
    assert.equal(message.content || null, null);
  },

  async 'pings, odd text and calls without arguments'() {
    const stream = (content) => openai(SCRIPT).chat.completions.stream({ ...CHAT, messages: saying(content) }).finalMessage();
    assert.equal((await stream('odd text')).content, ODD);
    assert.equal((await stream('odd text, slowly')).content, ODD);
    assert.equal((await stream('call without arguments')).tool_calls[0].function.arguments, '{}');
    assert.equal((await stream('nothing')).content || '', '');
  },

  async 'runTools'() {
    const asked = [];
    const runner = openai().chat.completions.runTools({ ...CHAT, messages: WEATHER, tools: [weather(asked)] });
    assert.match(await runner.finalContent(), /sunny|21/);
    assert.deepEqual(asked, ['Paris']);
    assert.equal((await runner.finalFunctionToolCallResult()), 'Paris: sunny, 21 degrees');
    assert.ok((await runner.totalUsage()).total_tokens > 22);
  },

  async 'runTools, streamed'() {
    const asked = [];
    const runner = openai().chat.completions.runTools({ ...CHAT, messages: WEATHER, tools: [weather(asked)], stream: true });
    assert.ok((await all(runner)).length > 4);
    assert.match(await runner.finalContent(), /sunny|21/);
    assert.deepEqual(asked, ['Paris']);
    assert.equal((await runner.finalFunctionToolCall()).name, 'get_weather');
  },

  async 'runTools, two calls at once'() {
    for (const stream of [false, true]) {
      const asked = [];
      const runner = openai(SCRIPT).chat.completions.runTools({ ...CHAT, messages: saying('call twice'), tools: [weather(asked)], stream });
      assert.equal(await runner.finalContent(), 'Mild in both.');
      assert.deepEqual(asked, ['Paris', 'Rome']);
    }
  },

  async 'zodResponseFormat'() {
    const asked = { ...CHAT, messages: saying('Where is it warm?'), response_format: zodResponseFormat(place, 'place') };
    const parsed = await openai().chat.completions.parse(asked);
    place.parse(parsed.choices[0].message.parsed);
    const streamed = await openai().chat.completions.stream(asked).finalChatCompletion();
    assert.deepEqual(streamed.choices[0].message.parsed, parsed.choices[0].message.parsed);
  },

  async 'a form that is cut off, or filtered'() {
    const asked = { ...CHAT, messages: saying('Where is it warm?'), response_format: zodResponseFormat(place, 'place') };
    await assert.rejects(openai().chat.completions.parse({ ...asked, max_tokens: 3 }), OpenAI.LengthFinishReasonError ?? { name: 'Error' });
    const filtered = openai(SCRIPT).chat.completions.parse({ ...asked, messages: saying('filter') });
    await assert.rejects(filtered, /content filter/);
  },

  async 'abort of a stream'() {
    const stream = openai().chat.completions.stream({ ...CHAT, messages: saying('Tell me a long story.'), max_tokens: 500 });
    stream.on('content.delta', () => stream.abort());
    await assert.rejects(stream.finalContent(), (error) => error instanceof OpenAI.APIUserAbortError);
    assert.ok(stream.aborted);
    const raw = await openai().chat.completions.create({ ...CHAT, max_tokens: 500, stream: true });
    for await (const _ of raw) raw.controller.abort();
    assert.equal((await openai().chat.completions.create(CHAT)).choices[0].message.content, ANSWER);
  },

  async 'a timeout'() {
    const asked = openai(REAL, { timeout: 1 }).chat.completions.create({ ...CHAT, messages: saying('word '.repeat(1000)) });
    await assert.rejects(asked, (error) => error instanceof OpenAI.APIConnectionTimeoutError);
  },

  async 'classes of errors'() {
    const create = (body, client = openai()) => client.chat.completions.create({ ...CHAT, ...body });
    const unknown = await failing(create({ model: 'nothing' }), OpenAI.NotFoundError, 404, /'nothing' does not exist/);
    assert.deepEqual([unknown.code, unknown.param, unknown.type], ['model_not_found', 'model', 'invalid_request_error']);
    const wrong = await failing(create({ temperature: 'hot' }), OpenAI.BadRequestError, 400, /temperature/);
    assert.deepEqual([wrong.param, wrong.type], ['temperature', 'invalid_request_error']);
    const long = await failing(create({ messages: saying('word '.repeat(6000)) }), OpenAI.BadRequestError, 400, /too long/);
    assert.deepEqual([long.code, long.param], ['context_length_exceeded', 'messages']);
    await failing(create({}, openai(REAL, { apiKey: 'wrong' })), OpenAI.AuthenticationError, 401, /API key/);
    await failing(create({ messages: saying('wait') }, openai(SCRIPT)), OpenAI.RateLimitError, 429, /too many requests/);
    await failing(create({ messages: saying('fail at once') }, openai(SCRIPT)), OpenAI.InternalServerError, 500, /engine failed/);
    await failing(create({ model: 'nothing', stream: true }), OpenAI.NotFoundError, 404, /does not exist/);
  },

  async 'an error in a stream'() {
    const asked = { ...CHAT, messages: saying('fail in the middle') };
    const texts = [];
    const raw = await openai(SCRIPT).chat.completions.create({ ...asked, stream: true });
    await assert.rejects(async () => {
      for await (const chunk of raw) texts.push(chunk.choices[0]?.delta.content ?? '');
    }, (error) => error instanceof OpenAI.APIError && /the engine failed/.test(error.message));
    assert.equal(texts.join(''), 'Half');
    await assert.rejects(openai(SCRIPT).chat.completions.stream(asked).finalMessage(), /the engine failed/);
  },

  async 'it asks again'() {
    const client = openai(SCRIPT, { maxRetries: 2 });
    const answer = await client.chat.completions.create({ ...CHAT, messages: saying('wait once, chat') });
    assert.equal(answer.choices[0].message.content, 'Mild in both.');
  },

  async 'endpoints that are not there'() {
    const client = openai();
    for (const ask of [() => client.files.list(), () => client.batches.list(), () => client.moderations.create({ input: 'a' })]) {
      const error = await failing(ask(), OpenAI.NotFoundError, 404, /./);
      assert.equal(error.type, 'invalid_request_error');
    }
  },

  async 'fields that only OpenAI has a use for'() {
    const answer = await openai().chat.completions.create({
      ...CHAT, store: true, metadata: { a: 'b' }, service_tier: 'auto', user: 'u', safety_identifier: 's', prompt_cache_key: 'p',
      prompt_cache_retention: '24h', verbosity: 'low', reasoning_effort: 'low', modalities: ['text'], seed: 7, n: 1,
      parallel_tool_calls: true, max_completion_tokens: 100, max_tokens: undefined, logit_bias: {}, stop: null,
      tools: [{ type: 'function', function: { name: 'f', strict: true, parameters: { type: 'object', properties: {}, required: [], additionalProperties: false } } }],
    });
    assert.ok(answer.choices[0].message);
  },

  async 'scores'() {
    const { choices: [{ logprobs }] } = await openai().chat.completions.create({ ...CHAT, logprobs: true, top_logprobs: 2 });
    assert.equal(logprobs.content.map((token) => token.token).join(''), ANSWER);
    assert.ok(logprobs.content.every((token) => token.logprob <= 0 && token.top_logprobs.length === 2));
  },

  async 'models'() {
    const { data } = await openai().models.list();
    assert.deepEqual(data.map((model) => model.id), ['lamb']);
    assert.equal((await openai().models.retrieve('lamb')).object, 'model');
    await failing(openai().models.retrieve('nothing'), OpenAI.NotFoundError, 404, /does not exist/);
  },

  async 'completions'() {
    const asked = { model: 'lamb', prompt: 'Once upon a time', max_tokens: 8 };
    const whole = await openai().completions.create(asked);
    assert.equal(whole.choices[0].finish_reason, 'length');
    const chunks = await all(await openai().completions.create({ ...asked, stream: true }));
    assert.equal(chunks.map((chunk) => chunk.choices[0]?.text ?? '').join(''), whole.choices[0].text);
  },

  async 'embeddings'() {
    const asked = { model: 'lamb', input: ['A lamb.', 'A young sheep.'] };
    const coded = await openai().embeddings.create(asked); // the SDK asks for base64 by itself
    const plain = await openai().embeddings.create({ ...asked, encoding_format: 'float' });
    assert.deepEqual(coded.data.map((each) => each.index), [0, 1]);
    coded.data[1].embedding.forEach((value, at) => assert.ok(Math.abs(value - plain.data[1].embedding[at]) < 1e-6));
    const short = await openai().embeddings.create({ ...asked, dimensions: 64 });
    assert.equal(short.data[0].embedding.length, 64);
  },
};

// ---- OpenAI, responses

const ASK = { model: 'lamb', input: 'Hello!', max_output_tokens: 100 };
const WEATHER_TOOL = { type: 'function', name: 'get_weather', description: about, parameters: citySchema, strict: false };

const responses = {
  async 'create, retrieve, delete'() {
    const client = openai();
    const first = await client.responses.create({ ...ASK, input: 'My name is Bob.' });
    assert.match(first._request_id, /^req_/);
    const second = await client.responses.create({ ...ASK, input: 'What is my name?', previous_response_id: first.id });
    assert.match(second.output_text, /Bob/);
    assert.equal((await client.responses.retrieve(second.id)).output_text, second.output_text);
    const items = await all(client.responses.inputItems.list(second.id));
    assert.equal(items.length, 3);
    await client.responses.delete(second.id);
    await failing(client.responses.retrieve(second.id), OpenAI.NotFoundError, 404, /resp_/);
    const count = await client.responses.inputTokens.count({ model: 'lamb', input: 'Hello!' });
    assert.equal(count.input_tokens, 11);
  },

  async 'stream()'() {
    const stream = openai().responses.stream(ASK);
    const texts = [];
    stream.on('response.output_text.delta', ({ delta }) => texts.push(delta));
    const final = await stream.finalResponse();
    assert.equal(final.output_text, ANSWER);
    assert.equal(texts.join(''), ANSWER);
    assert.equal(final.status, 'completed');
    const events = await all(await openai().responses.create({ ...ASK, stream: true }));
    assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, at) => at));
    assert.equal(events[0].type, 'response.created');
    assert.equal(events.at(-1).type, 'response.completed');
  },

  async 'stream() of thoughts, text and a call'() {
    const stream = openai(SCRIPT).responses.stream({
      ...ASK, input: 'think, speak, call', reasoning: { summary: 'auto' },
      tools: [zodResponsesFunction({ name: 'get_weather', description: about, parameters: z.object({ city: z.string() }) })],
    });
    const kinds = (await all(stream)).map((event) => event.type);
    for (const kind of ['response.reasoning_summary_text.delta', 'response.output_text.done', 'response.function_call_arguments.delta']) {
      assert.ok(kinds.includes(kind), kind);
    }
    const { output } = await stream.finalResponse();
    assert.deepEqual(output.map((item) => item.type), ['reasoning', 'message', 'function_call']);
    assert.equal(output[0].summary[0].text, 'Two and two.');
    assert.deepEqual(output[2].parsed_arguments, { city: 'Paris' });
  },

  async 'pings, odd text and calls without arguments'() {
    const stream = (input) => openai(SCRIPT).responses.stream({ ...ASK, input }).finalResponse();
    assert.equal((await stream('odd text')).output_text, ODD);
    assert.equal((await stream('odd text, slowly')).output_text, ODD);
    assert.equal((await stream('call without arguments')).output[0].arguments, '{}');
    assert.equal((await stream('nothing')).output_text, '');
  },

  async 'zodTextFormat'() {
    const asked = { ...ASK, input: 'Where is it warm?', text: { format: zodTextFormat(place, 'place') } };
    const parsed = await openai().responses.parse(asked);
    place.parse(parsed.output_parsed);
    assert.deepEqual((await openai().responses.stream(asked).finalResponse()).output_parsed, parsed.output_parsed);
  },

  async 'cut off'() {
    const cut = await openai().responses.create({ ...ASK, max_output_tokens: 2 });
    assert.deepEqual([cut.status, cut.incomplete_details.reason], ['incomplete', 'max_output_tokens']);
    const filtered = await openai(SCRIPT).responses.create({ ...ASK, input: 'filter' });
    assert.deepEqual([filtered.status, filtered.incomplete_details.reason], ['incomplete', 'content_filter']);
    const streamed = await openai().responses.stream({ ...ASK, max_output_tokens: 2 }).finalResponse();
    assert.equal(streamed.status, 'incomplete');
  },

  async 'a round of tools, kept and not kept'() {
    for (const store of [true, false]) {
      const client = openai();
      const first = await client.responses.create({ ...ASK, input: WEATHER, tools: [WEATHER_TOOL], store });
      const call = first.output.find((item) => item.type === 'function_call');
      const result = { type: 'function_call_output', call_id: call.call_id, output: 'Paris: sunny, 21 degrees' };
      const next = store
        ? { previous_response_id: first.id, input: [result] }
        : { input: [...WEATHER, ...first.output, result], store };
      const second = await client.responses.create({ ...ASK, tools: [WEATHER_TOOL], ...next });
      assert.match(second.output_text, /sunny|21/);
    }
  },

  async 'ResponsesToolRunner'() {
    for (const stream of [false, true]) {
      const asked = [];
      const get_weather = { tool: WEATHER_TOOL, execute: ({ city }) => (asked.push(city), `${city}: sunny, 21 degrees`) };
      const answer = await new ResponsesToolRunner({ functions: [get_weather] }).run(openai(), { ...ASK, input: WEATHER }, { stream });
      assert.deepEqual(asked, ['Paris']);
      assert.match(answer.output_text, /sunny|21/);
    }
  },

  async 'fields that only OpenAI has a use for'() {
    const answer = await openai().responses.create({
      ...ASK, metadata: { a: 'b' }, service_tier: 'auto', user: 'u', safety_identifier: 's', prompt_cache_key: 'p', truncation: 'auto',
      prompt_cache_retention: '24h', text: { verbosity: 'low' }, reasoning: { effort: 'low' }, max_tool_calls: 3, top_logprobs: 2,
      parallel_tool_calls: true, include: ['message.output_text.logprobs', 'web_search_call.action.sources', 'file_search_call.results'],
      tools: [{ type: 'web_search' }, { type: 'code_interpreter', container: { type: 'auto' } }, { type: 'image_generation' }],
    });
    assert.equal(answer.output_text, ANSWER);
    assert.deepEqual(answer.metadata, { a: 'b' });
    const [{ logprobs }] = answer.output.at(-1).content;
    assert.equal(logprobs.map((token) => token.token).join(''), ANSWER);
  },

  async 'a free-form tool'() {
    const first = await openai().responses.create({
      ...ASK, input: 'Hello!', tools: [{ type: 'custom', name: 'patch', description: 'Edits a file.' }], tool_choice: { type: 'custom', name: 'patch' },
      max_output_tokens: 30,
    });
    const [call] = first.output.filter((item) => item.type === 'custom_tool_call');
    assert.equal(call.name, 'patch');
    assert.equal(typeof call.input, 'string');
  },

  async 'abort'() {
    const stream = openai().responses.stream({ ...ASK, input: 'Tell me a long story.', max_output_tokens: 500 });
    stream.on('response.output_text.delta', () => stream.abort());
    await assert.rejects(stream.finalResponse(), (error) => error instanceof OpenAI.APIUserAbortError);
  },

  async 'classes of errors'() {
    const create = (body, client = openai()) => client.responses.create({ ...ASK, ...body });
    const unknown = await failing(create({ model: 'nothing' }), OpenAI.NotFoundError, 404, /'nothing' does not exist/);
    assert.deepEqual([unknown.code, unknown.param], ['model_not_found', 'model']);
    const gone = await failing(create({ previous_response_id: 'resp_gone' }), OpenAI.BadRequestError, 400, /resp_gone/);
    assert.deepEqual([gone.code, gone.param], ['previous_response_not_found', 'previous_response_id']);
    await failing(create({ temperature: 'hot' }), OpenAI.BadRequestError, 400, /temperature/);
    const search = { tools: [{ type: 'web_search' }], tool_choice: 'required' };
    await failing(create(search), OpenAI.BadRequestError, 400, /no tool is offered that can be called here/);
    await failing(create({}, openai(REAL, { apiKey: 'wrong' })), OpenAI.AuthenticationError, 401, /API key/);
    await failing(create({ input: 'wait' }, openai(SCRIPT)), OpenAI.RateLimitError, 429, /too many requests/);
    await failing(create({ input: 'fail at once' }, openai(SCRIPT)), OpenAI.InternalServerError, 500, /engine failed/);
  },

  async 'an error in a stream'() {
    const raw = await openai(SCRIPT).responses.create({ ...ASK, input: 'fail in the middle', stream: true });
    const texts = [];
    await assert.rejects(async () => {
      for await (const event of raw) if (event.type === 'response.output_text.delta') texts.push(event.delta);
    }, (error) => error instanceof OpenAI.APIError && /the engine failed/.test(error.message));
    assert.equal(texts.join(''), 'Half');
    await assert.rejects(openai(SCRIPT).responses.stream({ ...ASK, input: 'fail in the middle' }).finalResponse(), /the engine failed/);
  },
};

// ---- Anthropic

const TURN = { model: 'lamb', messages: HELLO, max_tokens: 100 };
const GET_WEATHER = { name: 'get_weather', description: about, input_schema: citySchema };

const messages = {
  async 'create'() {
    const { data, request_id } = await anthropic().messages.create(TURN).withResponse();
    assert.deepEqual(data.content.map((block) => [block.type, block.text]), [['text', ANSWER]]);
    assert.equal(data.stop_reason, 'end_turn');
    assert.equal(data._request_id, request_id);
    assert.match(request_id, /^req_/);
    assert.equal(data.usage.input_tokens + data.usage.cache_read_input_tokens, 11);
  },

  async 'stream()'() {
    const stream = anthropic().messages.stream(TURN);
    const texts = [];
    const blocks = [];
    stream.on('text', (text) => texts.push(text)).on('contentBlock', (block) => blocks.push(block.type));
    const events = (await all(stream)).map((event) => event.type);
    const message = await stream.finalMessage();
    assert.equal(await stream.finalText(), ANSWER);
    assert.equal(texts.join(''), ANSWER);
    assert.deepEqual(blocks, ['text']);
    assert.equal(message.stop_reason, 'end_turn');
    assert.equal(message.usage.output_tokens, 11);
    assert.deepEqual(events.filter((kind, at) => kind !== events[at - 1] && kind !== 'ping'), [
      'message_start', 'content_block_start', 'content_block_delta', 'content_block_stop', 'message_delta', 'message_stop',
    ]);
    assert.match(stream.request_id, /^req_/);
  },

  async 'stream() of thoughts, text and a call'() {
    const stream = anthropic(SCRIPT).messages.stream({
      ...TURN, messages: saying('think, speak, call'), tools: [GET_WEATHER], max_tokens: 2000,
      thinking: { type: 'enabled', budget_tokens: 1024 },
    });
    const thoughts = [];
    const pieces = [];
    let signature = '';
    stream.on('thinking', (text) => thoughts.push(text)).on('inputJson', (piece) => pieces.push(piece)).on('signature', (text) => (signature = text));
    const message = await stream.finalMessage();
    assert.deepEqual(message.content.map((block) => block.type), ['thinking', 'text', 'tool_use']);
    assert.equal(thoughts.join(''), 'Two and two.');
    assert.equal(message.content[0].signature, signature);
    assert.ok(signature);
    assert.deepEqual(JSON.parse(pieces.join('')), { city: 'Paris' });
    assert.deepEqual(message.content[2].input, { city: 'Paris' });
    assert.equal(message.stop_reason, 'tool_use');
  },

  async 'pings, odd text and calls without arguments'() {
    const stream = (content) => anthropic(SCRIPT).messages.stream({ ...TURN, messages: saying(content) }).finalMessage();
    assert.equal((await stream('odd text')).content[0].text, ODD);
    assert.equal((await stream('odd text, slowly')).content[0].text, ODD);
    assert.deepEqual((await stream('call without arguments')).content[0].input, {});
    assert.equal((await stream('nothing')).stop_reason, 'end_turn');
  },

  async 'a call back and forth'() {
    const asked = { ...TURN, messages: WEATHER, tools: [GET_WEATHER] };
    const first = await anthropic().messages.create(asked);
    const [call] = first.content.filter((block) => block.type === 'tool_use');
    assert.deepEqual([first.stop_reason, call.input], ['tool_use', { city: 'Paris' }]);
    const result = { type: 'tool_result', tool_use_id: call.id, content: 'Paris: sunny, 21 degrees' };
    const second = await anthropic().messages.create({
      ...asked, messages: [...WEATHER, { role: 'assistant', content: first.content }, { role: 'user', content: [result] }],
    });
    assert.match(second.content[0].text, /sunny|21/);
  },

  async 'toolRunner'() {
    for (const stream of [false, true]) {
      for (const make of [
        (run) => betaZodTool({ name: 'get_weather', description: about, inputSchema: z.object({ city: z.string() }), run }),
        (run) => betaTool({ name: 'get_weather', description: about, inputSchema: citySchema, run }),
      ]) {
        const asked = [];
        const tool = make(({ city }) => (asked.push(city), `${city}: sunny, 21 degrees`));
        const runner = anthropic().beta.messages.toolRunner({ ...TURN, messages: WEATHER, tools: [tool], stream });
        const message = await runner.runUntilDone();
        assert.match(message.content.map((block) => block.text ?? '').join(''), /sunny|21/);
        assert.deepEqual(asked, ['Paris']);
      }
    }
  },

  async 'toolRunner, two calls at once'() {
    const asked = [];
    const tool = betaTool({ name: 'get_weather', description: about, inputSchema: citySchema, run: ({ city }) => (asked.push(city), 'mild') });
    const runner = anthropic(SCRIPT).beta.messages.toolRunner({ ...TURN, messages: saying('call twice'), tools: [tool] });
    assert.equal((await runner.runUntilDone()).content[0].text, 'Mild in both.');
    assert.deepEqual(asked, ['Paris', 'Rome']);
  },

  async 'zodOutputFormat'() {
    const asked = { ...TURN, messages: saying('Where is it warm?'), output_config: { format: zodOutputFormat(place) } };
    const parsed = await anthropic().messages.parse(asked);
    place.parse(parsed.parsed_output);
    assert.deepEqual((await anthropic().messages.stream(asked).finalMessage()).parsed_output, parsed.parsed_output);
  },

  async 'reasons to stop'() {
    assert.equal((await anthropic().messages.create({ ...TURN, max_tokens: 2 })).stop_reason, 'max_tokens');
    const stopped = await anthropic().messages.create({ ...TURN, stop_sequences: ['help'] });
    assert.deepEqual([stopped.stop_reason, stopped.stop_sequence], ['stop_sequence', 'help']);
    assert.equal((await anthropic(SCRIPT).messages.create({ ...TURN, messages: saying('filter') })).stop_reason, 'refusal');
  },

  async 'the beta messages, with fields that only Anthropic has a use for'() {
    const answer = await anthropic().beta.messages.create({
      ...TURN, betas: ['context-management-2025-06-27', 'interleaved-thinking-2025-05-14'], metadata: { user_id: 'u' }, service_tier: 'auto',
      system: [{ type: 'text', text: 'You are a helpful assistant.', cache_control: { type: 'ephemeral', ttl: '1h' } }],
      tools: [
        { ...GET_WEATHER, cache_control: { type: 'ephemeral' }, strict: true }, { type: 'bash_20250124', name: 'bash' },
        { type: 'text_editor_20250728', name: 'str_replace_based_edit_tool' }, { type: 'web_search_20250305', name: 'web_search', max_uses: 1 },
        { type: 'memory_20250818', name: 'memory' },
      ],
      tool_choice: { type: 'auto', disable_parallel_tool_use: true }, context_management: { edits: [{ type: 'clear_tool_uses_20250919' }] },
      output_config: { effort: 'low' }, top_k: 5, temperature: 0,
    });
    assert.equal(answer.type, 'message');
    assert.ok((await anthropic().beta.messages.countTokens({ model: 'lamb', messages: HELLO, tools: [GET_WEATHER] })).input_tokens > 50);
  },

  async 'endpoints that are not there'() {
    for (const ask of [() => anthropic().messages.batches.list(), () => anthropic().beta.files.list()]) {
      const error = await failing(ask(), Anthropic.NotFoundError, 404, /./);
      assert.equal(error.type, 'not_found_error');
    }
  },

  async 'countTokens and models'() {
    assert.equal((await anthropic().messages.countTokens({ model: 'lamb', messages: HELLO })).input_tokens, 11);
    const models = await all(anthropic().models.list());
    const [{ type, display_name, created_at, id }] = models; // Claude Code drops names that do not begin with claude
    assert.deepEqual([models.length, type, display_name, id], [1, 'model', 'lamb', 'claude-local-lamb']);
    assert.ok(Date.parse(created_at) > 0);
    assert.equal((await anthropic().models.retrieve('lamb')).id, id);
  },

  async 'abort'() {
    const stream = anthropic().messages.stream({ ...TURN, messages: saying('Tell me a long story.'), max_tokens: 500 });
    stream.on('text', () => stream.abort());
    await assert.rejects(stream.finalMessage(), (error) => error instanceof Anthropic.APIUserAbortError);
    assert.ok(stream.aborted);
  },

  async 'classes of errors'() {
    const create = (body, client = anthropic()) => client.messages.create({ ...TURN, ...body });
    const unknown = await failing(create({ model: 'nothing' }), Anthropic.NotFoundError, 404, /'nothing' does not exist/);
    assert.equal(unknown.error.error.type, 'not_found_error');
    assert.equal(unknown.error.request_id, unknown.requestID);
    assert.equal(unknown.type, 'not_found_error');
    await failing(create({ temperature: 'hot' }), Anthropic.BadRequestError, 400, /temperature/);
    await failing(create({ messages: saying('word '.repeat(6000)) }), Anthropic.BadRequestError, 400, /prompt is too long/);
    await failing(create({}, anthropic(REAL, { apiKey: 'wrong' })), Anthropic.AuthenticationError, 401, /API key/);
    await failing(create({ messages: saying('wait') }, anthropic(SCRIPT)), Anthropic.RateLimitError, 429, /too many requests/);
    await failing(create({ messages: saying('fail at once') }, anthropic(SCRIPT)), Anthropic.InternalServerError, 500, /engine failed/);
    await failing(create({ model: 'nothing', stream: true }), Anthropic.NotFoundError, 404, /does not exist/);
    await failing(anthropic().models.retrieve('nothing'), Anthropic.NotFoundError, 404, /does not exist/);
  },

  async 'an error in a stream'() {
    const stream = anthropic(SCRIPT).messages.stream({ ...TURN, messages: saying('fail in the middle') });
    const texts = [];
    stream.on('text', (text) => texts.push(text));
    await assert.rejects(stream.finalMessage(), (error) => error instanceof Anthropic.APIError && /the engine failed/.test(error.message));
    assert.equal(texts.join(''), 'Half');
  },

  async 'it asks again'() {
    const answer = await anthropic(SCRIPT, { maxRetries: 2 }).messages.create({ ...TURN, messages: saying('wait once, messages') });
    assert.equal(answer.content[0].text, 'Mild in both.');
  },
};

const tables = { 'openai chat': chat, 'openai responses': responses, anthropic: messages };
await run(
  { '': null },
  Object.fromEntries(Object.entries(tables).flatMap(([name, table]) => Object.entries(table).map(([check, body]) => [`${name}: ${check}`, body]))),
);
