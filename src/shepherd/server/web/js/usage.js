import { html } from "htm/preact";

/** @param {any} props */
export const UsageView = (props) => html`<section class="panel"><h1>Usage</h1></section>`;
