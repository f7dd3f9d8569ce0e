// One stream of events for all tabs, because a browser opens few connections to a host. It runs in a shared worker, or
// in the page itself if the browser has none. After a lost connection it continues exactly where it was.
"use strict";

class Stream {
  constructor(base) {
    this.base = base;
    this.readers = new Map(); // reader -> (name of a session, or * for their list -> position)
    this.state = "reconnecting";
    this.stopping = null;
    this.wake = null;
    this.isRunning = false;
  }

  add(reader, places) {
    this.readers.set(reader, new Map(Object.entries(places)));
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

  // The places from which to read: for each name the earliest of its readers.
  places() {
    const places = new Map();
    for (const [name, position] of [...this.readers.values()].flatMap((each) => [...each])) {
      places.set(name, Math.min(places.get(name) ?? position, position));
    }
    return places;
  }

  async run() {
    this.isRunning = true;
    while (this.readers.size) {
      const stopping = (this.stopping = new AbortController());
      await this.read(stopping).catch(() => {});
      if (stopping.signal.aborted && !stopping.isSilent) continue; // another reader has come or gone
      this.tell("reconnecting");
      await new Promise((resolve) => {
        this.wake = resolve;
        setTimeout(resolve, 1000);
      });
    }
    this.isRunning = false;
  }

  async read(stopping) {
    const places = [...this.places()].map(([name, position]) => `${encodeURIComponent(name)}:${position}`);
    let timer = null;
    const alive = () => { // the server sends at least a sign of life every 15 s
      clearTimeout(timer);
      timer = setTimeout(() => { stopping.isSilent = true; stopping.abort(); }, 40000);
    };
    alive();
    try {
      const response = await fetch(`${this.base}parts/events?sessions=${places.join(",")}`, { signal: stopping.signal });
      if (response.status === 401) for (const reader of this.readers.keys()) reader({ isRefused: true });
      if (!response.ok) return;
      this.tell("connected");
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
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
    for (const [reader, places] of this.readers) {
      const position = places.get(event.session);
      if (position === undefined || (event.event !== "reset" && event.id <= position)) continue;
      places.set(event.session, event.id);
      reader({ session: event.session, event: event.event, data: event.data, position: event.id });
    }
  }
}

if (typeof SharedWorkerGlobalScope !== "undefined" && self instanceof SharedWorkerGlobalScope) {
  const stream = new Stream(self.location.pathname.replace(/static\/stream\.js$/, ""));
  self.onconnect = (connected) => {
    const port = connected.ports[0];
    const reader = (told) => port.postMessage(told);
    port.onmessage = ({ data }) => {
      if (data.places) stream.add(reader, data.places);
      else stream.remove(reader);
    };
  };
}
