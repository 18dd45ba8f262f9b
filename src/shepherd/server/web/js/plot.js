/**
 * Small plots of figures by day: stacked bars with an axis, labels and a limit. Arrows move from day to day and say
 * its figures, as the pointer does; the same figures are in a table under it.
 */
import { html } from "htm/preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";

const HEIGHT = 150;
const TOP = 12;
const LEFT = 46;
const BOTTOM = 20;
/** Steps of an axis are one of these, times a power of ten. */
const STEPS = [1, 2, 2.5, 5, 10];

const DAY = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", timeZone: "UTC" });
const LONG = new Intl.DateTimeFormat("en", { weekday: "short", day: "numeric", month: "short", timeZone: "UTC" });

/** @param {string} day as 2026-11-28 @param {Intl.DateTimeFormat} [format] */
const written = (day, format = DAY) => format.format(new Date(`${day}T00:00:00Z`));

/** The values of an axis from 0 to `most` or a little more. @param {number} most @returns {number[]} */
export function ticksOf(most) {
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
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [width, setWidth] = useState(600);
  const [at, setAt] = useState(/** @type {number | null} */ (null));
  const id = useId();
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.max(200, Math.floor(entry.contentRect.width))));
    if (box.current) watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  const sums = days.map((_, day) => series.reduce((sum, each) => sum + each.values[day], 0));
  const ticks = ticksOf(Math.max(...sums, limit ?? 0));
  const most = ticks[ticks.length - 1];
  const slot = (width - LEFT) / days.length;
  const bar = Math.max(1, Math.min(26, slot * 0.72));
  /** @param {number} value */
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / most);
  /** @param {number} day */
  const x = (day) => LEFT + slot * (day + 0.5);
  /** @param {number} day */
  const told = (day) =>
    `${written(days[day], LONG)}: ${series.map((s) => `${s.label} ${format(s.values[day])}`).join(", ")}`;

  /** @param {KeyboardEvent} event */
  function move(event) {
    const from = at ?? days.length - 1;
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: days.length - 1 }[event.key];
    if (event.key === "Escape") setAt(null);
    if (to === undefined) return;
    event.preventDefault();
    setAt(Math.max(0, Math.min(days.length - 1, to)));
  }
  /** @param {PointerEvent} event */
  const point = (event) => {
    const left = /** @type {HTMLElement} */ (box.current).getBoundingClientRect().left;
    setAt(Math.max(0, Math.min(days.length - 1, Math.floor((event.clientX - left - LEFT) / slot))));
  };
  const every = Math.ceil(days.length / Math.max(1, Math.floor((width - LEFT) / 64)));

  return html`<div class="plot">
    <div
      ref=${box}
      class="plot-box"
      tabindex="0"
      role="slider"
      aria-label=${`${label}, day by day`}
      aria-orientation="horizontal"
      aria-valuemin="1"
      aria-valuemax=${days.length}
      aria-valuenow=${(at ?? days.length - 1) + 1}
      aria-valuetext=${told(at ?? days.length - 1)}
      onKeyDown=${move}
      onFocus=${() => at ?? setAt(days.length - 1)}
      onBlur=${() => setAt(null)}
      onPointerMove=${point}
      onPointerLeave=${() => setAt(null)}
    >
      <svg width=${width} height=${HEIGHT} aria-hidden="true">
        <defs>
          <pattern id=${id} class="plot-stripes" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect width="5" height="5" class="ground" /><rect width="2" height="5" class="stripe" />
          </pattern>
        </defs>
        ${ticks.map(
          (tick) => html`<g class="plot-tick" key=${tick}>
            <line x1=${LEFT} x2=${width} y1=${y(tick)} y2=${y(tick)} />
            <text x=${LEFT - 6} y=${y(tick) + 4} text-anchor="end">${axis(tick)}</text>
          </g>`,
        )}
        ${days.map((day, n) => {
          let under = 0;
          return html`<g key=${day} class=${n === at ? "plot-day here" : "plot-day"}>
            ${n === at && html`<rect class="plot-ground" x=${x(n) - slot / 2} y=${TOP} width=${slot} height=${HEIGHT - TOP - BOTTOM} />`}
            ${series.map((each) => {
              const from = under;
              under += each.values[n];
              const height = y(from) - y(under);
              return (
                height > 0 &&
                html`<rect
                  class=${`plot-bar ${each.kind}`}
                  fill=${each.kind === "cached" ? `url(#${id})` : undefined}
                  x=${x(n) - bar / 2}
                  y=${y(under)}
                  width=${bar}
                  height=${Math.max(1, height)}
                />`
              );
            })}
            ${
              (days.length - 1 - n) % every === 0 &&
              html`<text x=${x(n)} y=${HEIGHT - 5} text-anchor="middle">${written(day)}</text>`
            }
          </g>`;
        })}
        ${
          limit != null &&
          html`<g class="plot-limit">
          <line x1=${LEFT} x2=${width} y1=${y(limit)} y2=${y(limit)} />
          <text x=${width} y=${y(limit) - 3} text-anchor="end">budget ${axis(limit)}</text>
        </g>`
        }
      </svg>
      ${
        at !== null &&
        html`<div class="plot-tip" data-side=${at * 2 > days.length ? "left" : "right"} style=${{ "--at": `${x(at)}px` }} aria-hidden="true">
        <b>${written(days[at], LONG)}</b>
        ${series.map((each) => html`<span><i class=${`key ${each.kind}`} />${each.label}<em>${format(each.values[at])}</em></span>`)}
      </div>`
      }
    </div>
    <details class="plot-table">
      <summary>As a table</summary>
      <table>
        <caption class="hidden">${label}</caption>
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
