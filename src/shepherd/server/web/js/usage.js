/** How much each model and provider was used, today and day by day, and what is left of the budgets of today. */
import { html } from "htm/preact";
import { useMemo, useState } from "preact/hooks";
import { get } from "./api.js";
import { Problem, useLoaded } from "./loaded.js";
import { Plot } from "./plot.js";
import { formatCount } from "./ui.js";

/**
 * @typedef {{day: string, name: string, is_provider: boolean, requests: number, input: number, cached: number,
 *   output: number, money: number}} DayOfUse
 * @typedef {{requests: number, input: number, cached: number, output: number, money: number}} Sums
 * @typedef {{today: {input: number, cached: number, output: number, money: number}, budget_tokens: number | null,
 *   budget_money: number | null}} Budget
 */

/** Days that are shown together. */
const SPANS = [1, 7, 30];
const KINDS = /** @type {const} */ ({ input: "computed", cached: "from the cache", output: "generated" });
const NOTHING = { requests: 0, input: 0, cached: 0, output: 0, money: 0 };
const FIELDS = /** @type {(keyof Sums)[]} */ (Object.keys(NOTHING));
const short = (/** @type {number} */ n) => formatCount(n, { short: true });
/** Without a currency: the configuration has none. @param {number} n */
const money = (n) => (n >= 1 || n === 0 ? n.toFixed(2) : n.toPrecision(2));

/** @param {DayOfUse[]} rows @returns {Sums} */
function sumOf(rows) {
  const sums = { ...NOTHING };
  for (const row of rows) for (const field of FIELDS) sums[field] += row[field];
  return sums;
}

/** The last days, today last. @param {string} today @param {number} n */
function lastDays(today, n) {
  const end = Date.parse(`${today}T00:00:00Z`);
  return Array.from({ length: n }, (_, at) => new Date(end - (n - 1 - at) * 864e5).toISOString().slice(0, 10));
}

/** Tokens of prompts as one bar: computed, and from the cache. @param {{sums: Sums}} props */
function Share({ sums }) {
  const all = sums.input + sums.cached;
  if (!all) return null;
  const part = Math.round((100 * sums.cached) / all);
  return html`<div class="share">
    <div class="share-bar" style=${{ "--share": sums.cached / all }}><i class="cached" /></div>
    <span class="small soft">${part} % of the tokens of prompts came from the cache</span>
  </div>`;
}

/** @param {{sums: Sums, priced: boolean}} props */
const Figures = ({ sums, priced }) => html`<dl class="figures-row figures">
  <div><dt>Answers</dt><dd>${formatCount(sums.requests)}</dd></div>
  ${Object.entries(KINDS).map(
    ([kind, label]) => html`<div key=${kind}>
      <dt><i class=${`key ${kind}`} />Tokens ${label}</dt>
      <dd title=${formatCount(sums[/** @type {keyof Sums} */ (kind)])}>${short(sums[/** @type {keyof Sums} */ (kind)])}</dd>
    </div>`,
  )}
  ${priced && html`<div><dt>Cost</dt><dd>${money(sums.money)}</dd></div>`}
</dl>`;

/** @param {{label: string, used: number, limit: number, format: (n: number) => string}} props */
function Limit({ label, used, limit, format }) {
  const isSpent = used >= limit;
  const text = `${label}: ${format(used)} of ${format(limit)}${isSpent ? ", spent until midnight" : ""}`;
  return html`<div class="limit" data-state=${isSpent ? "spent" : used > 0.8 * limit ? "near" : "fine"}>
    <span class="small">${text}</span>
    <progress aria-label=${text} max="1" value=${limit > 0 ? Math.min(1, used / limit) : 1} />
  </div>`;
}

/** @param {{rows: DayOfUse[], days: string[], budget?: Budget}} props of one model or provider */
function Used({ rows, days, budget }) {
  const { name, is_provider } = rows[0];
  const sums = sumOf(rows);
  const byDay = new Map(rows.map((row) => [row.day, row]));
  const priced = sums.money > 0 || budget?.budget_money != null;
  const { budget_tokens = null, budget_money = null, today = NOTHING } = budget ?? {};
  const spent = today.input + today.cached + today.output;
  /** @param {[string, string][]} kinds */
  const series = (kinds) =>
    kinds.map(([kind, label]) => {
      const field = /** @type {keyof Sums} */ (kind);
      return { kind, label, values: days.map((day) => byDay.get(day)?.[field] ?? 0) };
    });
  return html`<section class="card used" aria-label=${name}>
    <header class="row">
      <h2 class="grow">${name}</h2>
      <span class="badge">${is_provider ? "provider" : "this machine"}</span>
    </header>
    <${Figures} sums=${sums} priced=${priced} />
    <${Share} sums=${sums} />
    ${budget_tokens !== null && html`<${Limit} label="Tokens of today's budget" used=${spent} limit=${budget_tokens} format=${formatCount} />`}
    ${budget_money !== null && html`<${Limit} label="Money of today's budget" used=${today.money} limit=${budget_money} format=${money} />`}
    ${days.length > 1 && html`<${Plot} label=${`Tokens of ${name}`} days=${days} series=${series(Object.entries(KINDS))} format=${formatCount} axis=${short} limit=${budget_tokens} />`}
    ${days.length > 1 && priced && html`<${Plot} label=${`Cost of ${name}`} days=${days} series=${series([["money", "cost"]])} format=${money} limit=${budget_money} />`}
  </section>`;
}

export function UsageView() {
  const [n_days, setDays] = useState(7);
  const { value, error } = useLoaded(() => get("v1/usage?days=30"), [], { every_s: 15 });
  const days = useMemo(() => (value ? lastDays(value.today, n_days) : []), [value?.today, n_days]);
  const rows = /** @type {DayOfUse[]} */ (value?.days ?? []).filter((row) => row.day >= (days[0] ?? ""));
  const budgets = /** @type {Record<string, Budget>} */ (value?.providers ?? {});
  // A provider with a budget is there without any use.
  const unused = Object.keys(budgets).map((name) => ({ ...NOTHING, day: "", name, is_provider: true }));
  const used = [...Map.groupBy([...rows, ...unused], ({ is_provider, name }) => `${is_provider} ${name}`)];
  used.sort(([, a], [, b]) => sumOf(b).requests - sumOf(a).requests);
  const all = sumOf(rows);
  return html`<section class="panel usage">
    <header class="panel-head">
      <h1>Usage</h1>
      <fieldset class="choice">
        <legend class="hidden">Time</legend>
        ${SPANS.map(
          (n) => html`<label key=${n}>
            <input type="radio" name="span" checked=${n === n_days} onChange=${() => setDays(n)} /><span>${n === 1 ? "Today" : `${n} days`}</span>
          </label>`,
        )}
      </fieldset>
    </header>
    <${Problem} error=${error} />
    ${value && !used.length && html`<p class="empty">Nothing was used in this time. Answers of the models here and of providers are counted from the first one on.</p>`}
    ${used.length > 1 && html`<section class="card" aria-label="All together"><h2>All together</h2><${Figures} sums=${all} priced=${all.money > 0} /><${Share} sums=${all} /></section>`}
    ${used.map(([key, each]) => html`<${Used} key=${key} rows=${each} days=${days} budget=${each[0].is_provider ? budgets[each[0].name] : undefined} />`)}
    ${used.length > 0 && html`<p class="small faint">Days end at midnight of the server's clock; 62 are kept. Money is by the prices in your configuration.</p>`}
  </section>`;
}
