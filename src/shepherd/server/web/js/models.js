import { html } from "htm/preact";

/** @param {any} props */
export const ModelsView = (props) => html`<section class="panel"><h1>Models</h1></section>`;
