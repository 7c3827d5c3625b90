// Follows /api/events/stream for as long as it is wanted: by fetch and not EventSource, because
// only a header can carry a token. After a lost connection it comes back with the last id it saw.

import { ask, refusal } from "./api.js";

const FIRST_PAUSE_MS = 300;
const MOST_PAUSE_MS = 5000;
const STALE_MS = 60000;
const SILENCE_MS = 30000; // the server says something every 10 s

export class EventStream {
  // onEvents(entries), onState("live" | "lost"), onEnd(): the view is to be loaded anew.
  constructor(query, after, { onEvents, onState, onEnd }) {
    this.query = query;
    this.lastId = String(after);
    this.on = { onEvents, onState, onEnd };
    this.lostAt = null;
    this.stopping = new AbortController();
    this.run();
  }

  stop() {
    this.stopping.abort();
  }

  async run() {
    let pause = FIRST_PAUSE_MS;
    while (!this.stopping.signal.aborted) {
      try {
        await this.follow(() => (pause = FIRST_PAUSE_MS));
      } catch (error) {
        if (this.stopping.signal.aborted) return;
        if (error.status >= 400 && error.status < 500 && error.status !== 429) {
          this.on.onEnd();
          return;
        }
      }
      if (this.stopping.signal.aborted) return;
      this.lostAt ??= Date.now();
      this.on.onState("lost");
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(2 * pause, MOST_PAUSE_MS);
    }
  }

  async follow(connected) {
    const silence = new AbortController();
    const signal = AbortSignal.any([this.stopping.signal, silence.signal]);
    let timer = setTimeout(() => silence.abort(), SILENCE_MS);
    try {
      const answer = await ask(`/api/events/stream?${this.query}`, {
        headers: { "last-event-id": this.lastId, accept: "text/event-stream" },
        signal,
      });
      if (!answer.ok) throw refusal(answer.status, await answer.text());
      if (this.lostAt && Date.now() - this.lostAt > STALE_MS) {
        // What came meanwhile may be a lot: who wants it scrolls back to it.
        this.stop();
        this.on.onEnd();
        return;
      }
      connected();
      this.lostAt = null;
      this.on.onState("live");
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), SILENCE_MS);
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop(); // what is cut off comes again after a reconnect
        this.take(blocks);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  take(blocks) {
    const entries = [];
    for (const block of blocks) {
      let id = null;
      let data = "";
      let kind = "message";
      for (const line of block.split("\n")) {
        if (line.startsWith("id: ")) id = line.slice(4);
        else if (line.startsWith("data: ")) data += line.slice(6);
        else if (line.startsWith("event: ")) kind = line.slice(7);
      }
      if (kind === "error") throw refusal(409, data);
      if (data) entries.push(JSON.parse(data));
      if (id !== null) this.lastId = id;
    }
    if (entries.length) this.on.onEvents(entries);
  }
}
