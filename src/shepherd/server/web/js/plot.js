/** Small plots of figures by day: stacked bars with an axis and a limit. The pointer shows a day's figures; the table has all. */
import { html } from "htm/preact";

/** Steps of an axis are one of these, times a power of ten. */
const STEPS = [1, 2, 2.5, 5, 10];
/** At most so many days have their names under them. */
const NAMES = 6;

const DAY = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", timeZone: "UTC" });
const LONG = new Intl.DateTimeFormat("en", { weekday: "short", day: "numeric", month: "short", timeZone: "UTC" });

/** @param {string} day as 2026-11-28 @param {Intl.DateTimeFormat} [format] */
const written = (day, format = DAY) => format.format(new Date(`${day}T00:00:00Z`));

/** The values of an axis from 0 to `most` or a little more. @param {number} most @returns {number[]} */
function ticksOf(most) {
  if (!(most > 0)) return [0, 1];
  const rough = most / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * (STEPS.find((each) => each * power >= rough * 0.999) ?? 10);
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, at) => at * step);
}

/**
 * @typedef {{label: string, kind: string, values: number[]}} Series `kind`: its style, as of its key in the legend
 * @param {{label: string, days: string[], series: Series[], format: (value: number) => string, limit?: number | null,
 *   axis?: (value: number) => string}} props `limit`: a line over the bars; `axis`: the same as `format`, but short
 */
export function Plot({ label, days, series, format, axis = format, limit }) {
  const sums = days.map((_, day) => series.reduce((sum, each) => sum + each.values[day], 0));
  const ticks = ticksOf(Math.max(...sums, limit ?? 0));
  const most = ticks[ticks.length - 1];
  const every = Math.ceil(days.length / NAMES);
  /** @param {number} value */
  const up = (value) => ({ "--up": value / most });
  /** @param {string} day @param {number} n */
  const column = (day, n) => html`<div key=${day} class="plot-day" data-side=${n * 2 < days.length ? "right" : "left"}>
    ${series.map(({ kind, values }) => html`<i class=${`key ${kind}`} style=${up(values[n])} />`)}
    ${(days.length - 1 - n) % every === 0 && html`<span class="plot-name">${written(day)}</span>`}
    <div class="plot-tip">
      <b>${written(day, LONG)}</b>
      ${series.map((each) => html`<span><i class=${`key ${each.kind}`} />${each.label}<em>${format(each.values[n])}</em></span>`)}
    </div>
  </div>`;
  return html`<div class="plot">
    <div class="plot-box" aria-hidden="true">
      ${ticks.map((tick) => html`<span key=${tick} class="plot-tick" style=${up(tick)}><b>${axis(tick)}</b></span>`)}
      ${days.map(column)}
      ${limit != null && html`<span class="plot-limit" style=${up(limit)}>budget ${axis(limit)}</span>`}
    </div>
    <details>
      <summary>As a table</summary>
      <table>
        <caption class="hidden">${label}, day by day</caption>
        <thead>
          <tr><th scope="col">Day</th>${series.map((each) => html`<th scope="col">${each.label}</th>`)}</tr>
        </thead>
        <tbody>
          ${days.map(
            (day, n) => html`<tr>
              <th scope="row">${written(day, LONG)}</th>
              ${series.map((each) => html`<td class="figures">${format(each.values[n])}</td>`)}
            </tr>`,
          )}
        </tbody>
      </table>
    </details>
  </div>`;
}
