import { html } from "htm/preact";

/** @param {any} props */
export const MemoryView = (props) => html`<section class="panel"><h1>Memory</h1></section>`;
