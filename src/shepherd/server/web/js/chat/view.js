import { html } from "htm/preact";

/** @param {any} props */
export const ChatView = (props) => html`<section class="panel"><h1>Chat</h1></section>`;
