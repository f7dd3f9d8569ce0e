// The page shows what the server has rendered, sends the user's input, and replaces the parts that change.
// Text from models and tools is inserted only as text, or in HTML that the server has escaped.
"use strict";

const $ = (id) => document.getElementById(id);
const base = document.body.dataset.base;
const main = $("main");
const session = main.dataset.session;
const api = (path) => `${base}api/v1/${path}`;
const here = session && `sessions/${encodeURIComponent(session)}`;

// -- every page -----------------------------------------------------------------------------------------------

function store(name, value) {
  try {
    if (value === undefined) return localStorage.getItem(name);
    if (value) localStorage.setItem(name, value);
    else localStorage.removeItem(name);
  } catch { /* storage is off: nothing is remembered */ }
  return null;
}

const chosen = $(store("swink-theme") || "theme-auto");
if (chosen) chosen.checked = true;
for (const radio of document.querySelectorAll(".theme input")) {
  radio.addEventListener("change", () => store("swink-theme", radio.id));
}

function alarm(text) {
  const alert = $("alert");
  if (!alert) return;
  alert.textContent = text;
  $("dismiss").hidden = !text;
}
$("dismiss")?.addEventListener("click", () => alarm(""));

// Sends a request and returns the server's answer; shows an error and returns null if the request fails.
async function ask(method, path, body) {
  const isRaw = body instanceof Blob;
  const options = { method, headers: {} };
  if (body !== undefined) {
    options.body = isRaw ? body : JSON.stringify(body);
    options.headers["content-type"] = isRaw ? body.type || "application/octet-stream" : "application/json";
  }
  let response;
  try {
    response = await fetch(api(path), options);
  } catch {
    alarm("The server cannot be reached.");
    return null;
  }
  const text = await response.text();
  let value = {};
  try { value = text ? JSON.parse(text) : {}; } catch { /* not JSON: the status is enough */ }
  if (response.ok) return value;
  alarm(value.detail || `The server answered ${response.status}.`);
  return null;
}

// The server writes times in UTC; the page shows local time.
const when = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
function localize(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (!Number.isNaN(moment.getTime())) { time.title = time.textContent; time.textContent = when.format(moment); }
  }
  return root;
}
localize(document);
const fragment = (html) => localize(document.createRange().createContextualFragment(html));

const listeners = []; // of the stream
const places = {}; // the names that the stream reads, and the position of each

// -- the list of sessions -------------------------------------------------------------------------------------

const list = $("sessions");
if (list) {
  const menu = $("menu");
  let opener = null;
  const row = () => opener.closest("li");

  const search = $("search");
  let due = 0;
  let asked = 0;
  let isStale = false;
  const load = async () => {
    const number = ++asked;
    const query = new URLSearchParams({ query: search.value, current: session || "" });
    const response = await fetch(`${base}parts/sessions?${query}`).catch(() => null);
    if (!response || !response.ok || number !== asked) return;
    const html = await response.text();
    if (opener) isStale = true; // a menu is open: the list changes when it is closed
    else list.replaceChildren(fragment(html));
  };
  search.addEventListener("input", () => { clearTimeout(due); due = setTimeout(load, 150); });
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") { clearTimeout(due); load(); } });

  $("new").addEventListener("click", async () => {
    const made = await ask("POST", "sessions", {});
    if (made) location.href = `${base}sessions/${made.id}`;
  });

  const side = menu.parentElement;
  function close(isFocused = true) {
    if (!opener) return;
    menu.hidden = true;
    side.append(menu);
    opener.setAttribute("aria-expanded", "false");
    if (isFocused) opener.focus();
    opener = null;
    if (isStale) { isStale = false; load(); }
  }
  function open(button) {
    close(false);
    opener = button;
    button.setAttribute("aria-expanded", "true");
    const id = row().dataset.session;
    menu.querySelector("[data-do=export]").href = api(`sessions/${encodeURIComponent(id)}/export?format=html`);
    menu.setAttribute("aria-label", button.getAttribute("aria-label"));
    row().append(menu);
    menu.hidden = false;
    menu.firstElementChild.focus();
  }
  list.addEventListener("click", async (event) => {
    const dots = event.target.closest(".dots");
    if (dots) return dots === opener ? close() : open(dots);
    const more = event.target.closest("[data-more]");
    if (more) {
      const query = new URLSearchParams({ before: more.dataset.more, current: session || "" });
      const response = await fetch(`${base}parts/sessions?${query}`).catch(() => null);
      if (response && response.ok) more.closest("li").replaceWith(fragment(await response.text()));
      else load(); // the session after which the list continues was deleted
    }
  });
  document.addEventListener("click", (event) => {
    if (opener && !menu.contains(event.target) && !opener.contains(event.target)) close(false);
  });
  menu.addEventListener("keydown", (event) => {
    const items = [...menu.children];
    const at = items.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 + items.length, Home: 0, End: items.length - 1 }[event.key];
    if (to !== undefined) { event.preventDefault(); items[to % items.length].focus(); }
    if (event.key === "Escape" || event.key === "Tab") { event.preventDefault(); event.stopPropagation(); close(); }
  });
  menu.addEventListener("click", async (event) => {
    const what = event.target.closest("[data-do]")?.dataset.do;
    if (!what || !opener) return;
    const { session: id, title } = row().dataset;
    const path = `sessions/${encodeURIComponent(id)}`;
    const button = opener;
    close();
    if (what === "fork") {
      const made = await ask("POST", `${path}/fork`, {});
      if (made) location.href = `${base}sessions/${made.id}`;
    } else if (what === "rename") {
      const field = $("rename").querySelector("input");
      field.value = title;
      if (await answerOf($("rename"), field) && await ask("PATCH", path, { title: field.value })) retitle(id, field.value);
      button.focus();
    } else if (what === "delete") {
      $("delete").querySelector(".what").textContent = title;
      if (await answerOf($("delete")) && await ask("DELETE", path)) {
        if (id === session) location.href = base;
        else drop(id);
      }
    }
  });

  // -- changes of the list, also by other tabs

  function drop(id) {
    rowOf(id)?.remove();
    if (!list.querySelector("[data-session]")) load();
  }
  function put(id, html) {
    const fresh = fragment(html).firstElementChild;
    const known = rowOf(id);
    const isSearched = Boolean(search.value.trim());
    if (known) { // replace only its parts, so that a menu or the focus in it stays
      retitle(id, fresh.dataset.title);
      if (isSearched) known.querySelector(".badge").replaceWith(fresh.querySelector(".badge"));
      else known.querySelector(":scope > .quiet").replaceWith(fresh.querySelector(":scope > .quiet"));
    }
    if (isSearched || (known && (known === list.firstElementChild || list.contains(document.activeElement)))) return;
    list.querySelector(".empty")?.remove();
    list.prepend(known || fresh);
  }
  const on = {
    row: ({ session: id, html }) => put(id, html),
    state: ({ session: id, state }) => {
      const badge = rowOf(id)?.querySelector(".badge");
      if (!badge) return;
      badge.textContent = state;
      badge.className = `badge ${state}`;
      badge.hidden = state === "idle";
    },
    retitled: ({ session: id, title }) => (title ? retitle(id, title) : load()),
    gone: ({ session: id }) => drop(id),
    reset: load,
    bye: () => alarm("The server was stopped."),
  };
  places["*"] = Number(list.dataset.position);
  listeners.push((told) => { if (told.session === "*") on[told.event]?.(told.data); });
}

function rowOf(id) {
  return [...document.querySelectorAll("#sessions > li")].find((each) => each.dataset.session === id);
}

function retitle(id, title) {
  const item = rowOf(id);
  if (item) {
    item.dataset.title = title;
    item.querySelector(".what").textContent = title;
    item.querySelector(".dots").setAttribute("aria-label", `Actions for ${title}`);
  }
  if (id === session) { $("title").textContent = title; document.title = title; }
}

// Shows a dialog; resolves to whether it was confirmed.
function answerOf(dialog, field) {
  dialog.returnValue = "";
  dialog.showModal();
  if (field) field.select();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(Boolean(dialog.returnValue)), { once: true }));
}

// -- a session ------------------------------------------------------------------------------------------------

if (session) {
  const log = $("log");
  const messages = $("messages");
  const message = $("message");
  const questions = $("questions");
  const commands = JSON.parse(main.dataset.commands);

  // The newest message stays visible, unless the user has scrolled up.
  let isAtEnd = true;
  const scrollDown = () => { if (isAtEnd) log.scrollTop = log.scrollHeight; };
  log.addEventListener("scroll", () => {
    isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    $("newest").hidden = isAtEnd;
    if (log.scrollTop < 300 && log.scrollHeight > log.clientHeight) earlier();
  }, { passive: true });
  $("newest").addEventListener("click", () => { isAtEnd = true; scrollDown(); message.focus(); });
  new ResizeObserver(scrollDown).observe(messages);
  new ResizeObserver(scrollDown).observe(log);
  scrollDown();

  let isLoading = false;
  async function earlier() {
    const button = $("earlier");
    if (isLoading || button.hidden) return;
    isLoading = true;
    const response = await fetch(`${base}parts/${here}/earlier?before=${button.dataset.before}`).catch(() => null);
    if (response && response.ok) {
      const html = fragment(await response.text());
      const first = Number(response.headers.get("x-first"));
      button.dataset.before = first;
      const below = log.scrollHeight - log.scrollTop;
      messages.prepend(html);
      button.hidden = !first;
      log.scrollTop = log.scrollHeight - below;
    } else {
      alarm("Earlier messages could not be read.");
    }
    isLoading = false;
  }
  $("earlier").addEventListener("click", earlier);

  // -- the composer

  const draft = `swink-draft-${session}`;
  const setText = (text) => { message.value = text; store(draft, text); fit(); };
  const fit = () => { message.style.height = "auto"; message.style.height = `${Math.min(message.scrollHeight + 2, innerHeight * 0.4)}px`; };
  setText(store(draft) || message.value);
  message.addEventListener("input", () => { store(draft, message.value); fit(); });

  const files = $("files");
  const attached = [];
  function showAttached() {
    $("attached").hidden = !attached.length;
    $("attached").replaceChildren(...attached.map((file, number) => {
      const item = document.createElement("li");
      const remove = document.createElement("button");
      remove.type = "button";
      remove.textContent = "×";
      remove.setAttribute("aria-label", `Remove ${file.name}`);
      remove.addEventListener("click", () => { attached.splice(number, 1); showAttached(); });
      item.append(file.name, " ", remove);
      return item;
    }));
  }
  const attach = (more) => { attached.push(...more); showAttached(); };
  files.addEventListener("change", () => { attach(files.files); files.value = ""; });
  message.addEventListener("paste", (event) => {
    const { files: pasted } = event.clipboardData; // office programs copy a table also as a picture
    if (pasted.length && !event.clipboardData.getData("text/plain")) { event.preventDefault(); attach(pasted); }
  });
  for (const type of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(type, (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault(); // or else the browser leaves the page and shows the file
      main.classList.toggle("is-dropping", type === "dragover");
      if (type === "drop") { attach(event.dataTransfer.files); message.focus(); }
    });
  }

  let isSending = false;
  let back = ""; // the text that was given back meanwhile
  let isOld = false; // whether to reload the page once its message is sent
  async function send(kind) {
    const text = message.value;
    if (isSending || (!text.trim() && !attached.length)) return;
    isSending = true;
    back = "";
    alarm("");
    const isCommand = !attached.length && commands.includes(text.trim().split(/\s/, 1)[0]);
    try {
      const ids = [];
      for (const file of attached) {
        const made = await ask("POST", `${here}/uploads`, file);
        if (!made) return;
        ids.push(made.id);
      }
      const body = ids.length ? { text, attachments: ids } : { text };
      const sent = isCommand
        ? await ask("POST", `${here}/command`, { line: text.trim() })
        : await ask("POST", `${here}/${kind}`, body);
      if (!sent) return;
      if (message.value === text) setText(back); // a run that failed at once has given it back
      attached.length = 0;
      showAttached();
      isAtEnd = true;
      scrollDown();
    } finally {
      isSending = false;
      if (isOld) location.reload();
    }
  }
  const isIdle = () => main.dataset.state === "idle";
  $("composer").addEventListener("submit", (event) => { event.preventDefault(); send(isIdle() ? "prompt" : "steer"); });
  $("steer").addEventListener("click", () => send("steer"));
  $("queue-it").addEventListener("click", () => send("follow-up"));
  message.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send(isIdle() ? "prompt" : "steer");
  });

  let stopping = 0;
  async function stop() {
    stopping += 1;
    const stopped = await ask("POST", `${here}/abort`, {});
    const texts = stopped ? [...stopped.returned, message.value.trim()] : [];
    if (texts.length > 1) setText(texts.filter(Boolean).join("\n\n")); // keep all typed text
    setTimeout(() => { stopping -= 1; }, 1000);
  }
  $("stop").addEventListener("click", stop);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.isComposing || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (!isIdle() || questions.firstElementChild) stop();
  });

  const model = $("model");
  const changing = new Map(); // controls that the user has just changed: an older state must not change them back
  async function change(element, body) {
    const number = (changing.get(element) || 0) + 1;
    changing.set(element, number);
    element.disabled = true;
    const changed = await ask("PATCH", here, body);
    element.disabled = false;
    const done = () => { if (changing.get(element) === number) { changing.delete(element); show(last); } };
    if (changed) setTimeout(done, 500); // older states have arrived by then
    else done();
  }
  model.addEventListener("change", () => change(model, { model: model.value }));
  $("thinking").addEventListener("change", (event) => change(event.target, { thinking: event.target.value }));
  $("plan").addEventListener("change", (event) => change(event.target, { plan: event.target.checked }));
  fetch(api("models")).then((response) => (response.ok ? response.json() : { models: [] })).then((found) => {
    const current = model.value;
    for (const each of found.models) {
      const name = each.detail.endsWith("no key") ? `${each.name} (no key)` : each.name;
      if (each.model !== current) model.add(new Option(name, each.model));
    }
  }).catch(() => {});

  // -- the state

  let last = {
    state: main.dataset.state, plan: $("plan").checked, model: model.value, thinking: $("thinking").value,
    queue: [], progress: "", cost: $("cost").textContent, fill: $("context").value,
  };
  const put = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  function show(state) {
    last = state;
    main.dataset.state = state.state;
    put($("run"), state.state);
    put($("cost"), state.cost);
    put($("progress"), state.progress);
    $("context").value = state.fill;
    $("context").title = `${Math.round(state.fill * 100)} % of the context`;
    if (!changing.has($("plan"))) $("plan").checked = state.plan;
    if (!changing.has($("thinking"))) $("thinking").value = state.thinking;
    if (state.model && model.value !== state.model && !changing.has(model)) {
      if (![...model.options].some((option) => option.value === state.model)) model.add(new Option(state.model, state.model));
      model.value = state.model;
    }
    const isResting = state.state === "idle";
    for (const element of [model, $("thinking"), $("plan")]) {
      if (!changing.has(element)) element.disabled = !isResting;
    }
    $("queue").hidden = !state.queue.length;
    $("queue").replaceChildren(...state.queue.map((queued) => {
      const item = document.createElement("li");
      item.textContent = `${queued.kind === "steer" ? "Steers" : "Queued"}: ${queued.text}`;
      return item;
    }));
  }
  show(last);

  // -- questions

  function focusQuestion() {
    const first = questions.firstElementChild;
    if (first && !questions.contains(document.activeElement)) first.focus({ preventScroll: false });
  }
  // What is not seen from its beginning to its end cannot be allowed, and what is not ticked is not accepted.
  const unseen = new WeakMap(); // the edges of each call that were not visible yet
  const seeing = new IntersectionObserver((found) => {
    for (const { target, intersectionRatio } of found) {
      if (intersectionRatio < 0.5) continue;
      const dialog = target.closest("[role=alertdialog]");
      seeing.unobserve(target);
      unseen.get(dialog)?.delete(target);
      if (dialog) offer(dialog);
    }
  }, { threshold: [0, 0.5, 1] });
  function watch(dialog) {
    if (unseen.has(dialog)) return;
    const edges = dialog.querySelectorAll("[data-edge]");
    unseen.set(dialog, new Set(edges));
    for (const edge of edges) seeing.observe(edge);
    offer(dialog);
  }
  const hunksOf = (dialog) => {
    const boxes = [...dialog.querySelectorAll("[name=hunk]")];
    return { boxes, ticked: boxes.filter((box) => box.checked).map((box) => Number(box.value)) };
  };
  function offer(dialog) {
    const isSeen = !unseen.get(dialog).size;
    const isFree = !("answering" in dialog.dataset);
    const { boxes, ticked } = hunksOf(dialog);
    const isPart = ticked.length < boxes.length;
    for (const button of dialog.querySelectorAll("button")) button.disabled = !isFree;
    for (const button of dialog.querySelectorAll("[data-allows]")) {
      button.disabled = !isFree || !isSeen || isPart;
      button.hidden = isPart;
    }
    const part = dialog.querySelector("[data-accept]");
    if (part) {
      part.hidden = !isPart;
      part.disabled = !isFree || !isSeen || !ticked.length;
      part.textContent = `Accept ${ticked.length} of ${boxes.length}`;
    }
    const hint = dialog.querySelector(".unseen");
    if (hint) hint.hidden = isSeen;
  }
  async function answer(dialog, body) {
    dialog.dataset.answering = "";
    offer(dialog);
    dialog.focus(); // a disabled button loses the focus
    const sent = await ask("POST", `${here}/answers`, { question: dialog.dataset.question, ...body });
    if (!sent) { delete dialog.dataset.answering; offer(dialog); }
  }
  questions.addEventListener("change", (event) => {
    const dialog = event.target.closest("[role=alertdialog]");
    if (event.target.name === "hunk" && dialog) offer(dialog);
  });
  questions.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    const dialog = event.target.closest("[role=alertdialog]");
    if (!button || !dialog) return;
    if (button.dataset.choice) answer(dialog, { choice: button.dataset.choice });
    else if ("accept" in button.dataset) {
      answer(dialog, { choice: "once", hunks: hunksOf(dialog).ticked });
    } else if ("because" in button.dataset) {
      const form = dialog.querySelector(".reason");
      form.hidden = !form.hidden;
      button.setAttribute("aria-expanded", String(!form.hidden));
      if (!form.hidden) form.elements.reason.focus();
    }
  });
  questions.addEventListener("submit", (event) => {
    event.preventDefault();
    const dialog = event.target.closest("[role=alertdialog]");
    answer(dialog, { choice: "no", reason: event.target.elements.reason.value });
  });
  for (const dialog of questions.children) watch(dialog);
  focusQuestion();

  // -- events

  const waiting = new Map(); // new text of each block, shown with the next frame
  let isDue = false;
  function flush() {
    isDue = false;
    for (const [element, text] of waiting) element.append(text);
    waiting.clear();
    scrollDown();
  }
  function swap(id, html) {
    flush();
    const made = fragment(html);
    const old = document.getElementById(id);
    if (!old) return messages.append(made);
    const fresh = made.firstElementChild;
    const open = [...old.querySelectorAll("details")].map((each) => each.open);
    [...fresh.querySelectorAll("details")].forEach((each, number) => { each.open = open[number] || false; });
    if (old.tagName === "DETAILS") fresh.open = old.open;
    const isFocused = old.contains(document.activeElement);
    old.replaceWith(made);
    if (isFocused) (fresh.querySelector("summary, a, [tabindex]") || message).focus({ preventScroll: true });
  }
  const on = {
    put: ({ id, html }) => swap(id, html),
    drop: ({ id }) => document.getElementById(id)?.remove(),
    text: ({ id, index, kind, text }) => {
      const article = document.getElementById(id);
      if (!article) return;
      let block = article.querySelector(`:scope > [data-index="${index}"]`);
      if (!block) {
        block = document.createElement("div");
        block.className = `prose plain stream ${kind}`;
        block.dataset.index = index;
        article.append(block);
      }
      waiting.set(block, (waiting.get(block) || "") + text);
      if (!isDue) { isDue = true; setTimeout(flush, 50); }
    },
    state: show,
    ask: ({ id, html }) => {
      if (!document.getElementById(`q-${id}`)) { questions.append(fragment(html)); watch(questions.lastElementChild); }
      focusQuestion();
      scrollDown();
    },
    answered: ({ question }) => {
      const dialog = document.getElementById(`q-${question}`);
      if (!dialog) return;
      const isFocused = dialog.contains(document.activeElement);
      dialog.remove();
      if (questions.firstElementChild) focusQuestion();
      else if (isFocused) message.focus();
    },
    alert: ({ text }) => alarm(text),
    renamed: ({ title }) => retitle(session, title),
    draft: ({ text }) => {
      back = text;
      if (!message.value.trim() && !stopping) setText(text); // `stop` itself puts the texts back
    },
    reset: () => { isOld = true; if (!isSending) location.reload(); },
    deleted: () => { alarm("This session was deleted."); $("composer").inert = true; },
    bye: () => alarm("The server was stopped."),
  };
  let isConnected = false;
  const hear = (told) => {
    if (told.connection) {
      if (isConnected || told.connection === "connected") main.classList.toggle("is-cut", told.connection !== "connected");
      isConnected = told.connection === "connected";
      put($("connection"), told.connection);
    } else if (told.session === session && on[told.event]) {
      main.dataset.position = told.position;
      on[told.event](told.data);
      if (!isDue) scrollDown();
    }
  };

  places[session] = Number(main.dataset.position);
  listeners.push(hear);
}

// -- the stream -----------------------------------------------------------------------------------------------

if (listeners.length) {
  const hear = (told) => {
    if (told.isRefused) {
      alarm("The server was restarted and no longer accepts this page. Open the address that it printed.");
    }
    for (const listener of listeners) listener(told);
  };
  if (typeof SharedWorker === "undefined") {
    new Stream(base).add(hear, places);
  } else {
    const worker = new SharedWorker(`${base}static/stream.js`, { name: "swink" });
    worker.port.onmessage = ({ data }) => hear(data);
    worker.port.postMessage({ places });
    addEventListener("pagehide", () => worker.port.postMessage({}));
    addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  }
}

// -- durable runs: the page is loaded again when its run changes ------------------------------------------------

async function again() {
  const response = await fetch(location.href).catch(() => null);
  if (!response || !response.ok) return;
  const read = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("main");
  const isTyping = main.contains(document.activeElement) && document.activeElement.tagName === "INPUT";
  if (!read || isTyping) return;
  localize(read);
  const open = [...main.querySelectorAll("details")].map((each) => each.open);
  [...read.querySelectorAll("details")].forEach((each, number) => { each.open = open[number] || false; });
  if (read.innerHTML === main.innerHTML) return;
  main.replaceChildren(...read.childNodes);
}
if (main.dataset.again) setInterval(() => { if (!document.hidden) again(); }, Number(main.dataset.again) * 1000);
const run = main.dataset.run;
if (run) {
  const path = `runs/${encodeURIComponent(run)}`;
  let due = 0;
  const soon = () => { clearTimeout(due); due = setTimeout(again, 100); };
  let at = main.dataset.position;
  const follow = async () => { // until the run is over
    while (at !== "end") {
      try {
        const response = await fetch(api(`${path}/events?after=${at}`));
        const reader = response.ok ? response.body.pipeThrough(new TextDecoderStream()).getReader() : null;
        for (let read = await reader?.read(); read && !read.done; read = await reader.read()) {
          const ids = [...read.value.matchAll(/^id: (\S+)$/gm)];
          if (ids.length) { at = ids.at(-1)[1]; soon(); }
        }
      } catch { /* the connection was lost: try again */ }
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  };
  if (!main.dataset.over) follow();
  main.addEventListener("submit", (event) => event.preventDefault());
  main.addEventListener("click", async (event) => {
    const { operate, answer } = event.target.closest("button")?.dataset || {};
    if (operate) {
      const done = await ask("POST", `${path}/${operate}`, {});
      if (done && operate === "retry") return location.reload(); // to follow the run again
    } else if (answer) {
      const call = event.target.closest("[data-call]");
      const { reason, result } = call.querySelector("form").elements;
      const body = { call: call.dataset.call, position: Number(call.dataset.position), choice: answer };
      if (answer === "reject") body.reason = reason ? reason.value : "";
      if (answer === "result") {
        try { body.result = JSON.parse(result.value); } catch { return alarm("The result is not JSON."); }
      }
      await ask("POST", `${path}/answers`, body);
      document.activeElement.blur();
    } else return;
    again();
  });
}
