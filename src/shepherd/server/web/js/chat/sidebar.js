import { html } from "htm/preact";

export const ChatList = () => html`<ul class="list"></ul>`;
