import { html } from "htm/preact";

/** @param {any} props */
export const WindowView = (props) => html`<section class="panel"><h1>Window</h1></section>`;
