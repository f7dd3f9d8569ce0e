// One stream of events for all tabs of a browser, which has few connections to a host. It runs in a shared worker, or
// in the page itself where there are none. It comes back after a lost connection exactly where it was.
"use strict";

class Stream {
  constructor(base) {
    this.base = base;
    this.readers = new Map(); // reader -> {session, position}
    this.state = "reconnecting";
    this.stopping = null;
    this.wake = null;
    this.isRunning = false;
  }

  add(reader, session, position) {
    this.readers.set(reader, { session, position });
    reader({ connection: this.state });
    this.restart();
  }

  remove(reader) {
    if (this.readers.delete(reader)) this.restart();
  }

  restart() {
    if (this.stopping) this.stopping.abort();
    if (this.wake) this.wake();
    if (!this.isRunning) this.run();
  }

  tell(state) {
    this.state = state;
    for (const reader of this.readers.keys()) reader({ connection: state });
  }

  // The places from which to read: for each session the earliest of its readers.
  places() {
    const places = new Map();
    for (const { session, position } of this.readers.values()) {
      const known = places.get(session);
      places.set(session, known === undefined ? position : Math.min(known, position));
    }
    return places;
  }

  async run() {
    this.isRunning = true;
    while (this.readers.size) {
      const stopping = (this.stopping = new AbortController());
      const failed = await this.read(stopping).catch(() => true);
      if (stopping.signal.aborted && !stopping.isSilent) continue; // another reader has come or gone
      if (failed !== "over") this.tell("reconnecting");
      await new Promise((resolve) => {
        this.wake = resolve;
        setTimeout(resolve, failed === "over" ? 5000 : 1000);
      });
    }
    this.isRunning = false;
  }

  async read(stopping) {
    const places = [...this.places()].map(([session, position]) => `${encodeURIComponent(session)}:${position}`);
    let timer = null;
    const alive = () => { // the server says something every 15 s
      clearTimeout(timer);
      timer = setTimeout(() => { stopping.isSilent = true; stopping.abort(); }, 40000);
    };
    alive();
    try {
      const response = await fetch(`${this.base}parts/events?sessions=${places.join(",")}`, { signal: stopping.signal });
      if (response.status === 404) for (const reader of this.readers.keys()) reader({ gone: true });
      if (!response.ok) return true;
      this.tell("connected");
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return true;
        alive();
        const frames = (rest + value).split("\n\n");
        rest = frames.pop();
        for (const frame of frames) if (frame.startsWith("data: ")) this.give(JSON.parse(frame.slice(6)));
      }
    } finally {
      clearTimeout(timer);
    }
  }

  give(event) {
    for (const [reader, place] of this.readers) {
      if (place.session !== event.session) continue;
      if (event.event !== "reset" && event.id <= place.position) continue;
      place.position = event.id;
      reader({ event: event.event, data: event.data, position: event.id });
    }
  }
}

if (typeof SharedWorkerGlobalScope !== "undefined" && self instanceof SharedWorkerGlobalScope) {
  const stream = new Stream(self.location.pathname.replace(/static\/stream\.js$/, ""));
  self.onconnect = (connected) => {
    const port = connected.ports[0];
    const reader = (told) => port.postMessage(told);
    port.onmessage = ({ data }) => {
      if (data.session) stream.add(reader, data.session, data.position);
      else stream.remove(reader);
    };
  };
}
