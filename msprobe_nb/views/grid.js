// The live table. Rows come from the kernel a page at a time, one binary buffer a column; every
// text is set as text, never as markup.
const ROW = 24, MAX_PIXELS = 8e6, PAGE = 100, KEPT = 60, KEY_PAUSE = 80;

function shown(value, kind) {
  if (Number.isNaN(value)) return "\u2013";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (kind === "integer") return String(value);
  const number = kind === "fraction" ? value * 100 : value;
  const unit = kind === "fraction" ? "%" : "";
  if (number === 0) return "0" + unit;
  const size = Math.abs(number);
  if (size >= 1e-3 && size < 1e7) return String(Number(number.toPrecision(6))) + unit;
  return number.toExponential(3) + unit;
}

class Grid extends Head {
  constructor(model, el) {
    super();
    this.model = model;
    this.pages = new Map();
    this.asked = new Set();
    this.cursor = this.anchor = this.wanted = -1;
    this.widths = new Map(model.get("columns").map((c) => [c.name, c.width]));
    this.build(el);
    this.listeners = {
      "msg:custom": (message, buffers) => this.receive(message, buffers),
      "change:version": () => this.reset(),
      "change:visible": () => this.reset(),
      "change:selected": () => this.paint(),
      "change:reveal": () => this.reveal(),
      "change:faults": () => this.faults(),
      "change:message": () => this.note(),
      "change:choices": () => this.toolbar(),
    };
    for (const [name, listener] of Object.entries(this.listeners)) model.on(name, listener);
    this.top = -1;
    this.observer = new ResizeObserver(() => this.appear());
    this.observer.observe(this.scroll);
    this.toolbar();
    this.header();
    this.note();
    this.draw();
    this.reveal();
  }

  build(el) {
    this.root = make("div", "msnb-grid");
    this.root.dataset.lmSuppressShortcuts = "true";
    this.bar = make("div", "msnb-bar");
    this.scroll = make("div", "msnb-scroll");
    this.scroll.tabIndex = 0;
    this.scroll.style.height = this.model.get("height") + "px";
    this.scroll.setAttribute("role", "grid");
    this.scroll.setAttribute("aria-label", "comparison rows");
    this.head = make("div", "msnb-head");
    this.head.setAttribute("role", "row");
    this.body = make("div", "msnb-body");
    this.foot = make("div", "msnb-note");
    this.scroll.append(this.head, this.body);
    this.root.append(this.bar, this.scroll, this.foot);
    el.append(this.root);
    this.scroll.onscroll = () => {
      if (this.scroll.clientHeight) this.top = this.scroll.scrollTop;
      this.paint();
    };
    this.scroll.onkeydown = (event) => this.key(event);
  }

  destroy() {
    for (const [name, listener] of Object.entries(this.listeners)) this.model.off(name, listener);
    this.observer.disconnect();
    this.root.remove();
    this.closeMenu?.();
    clearTimeout(this.later);
  }

  set(name, value) {
    this.model.set(name, value);
    this.model.save_changes();
  }

  columns() {
    const all = new Map(this.model.get("columns").map((c) => [c.name, c]));
    return this.model.get("visible").map((name) => all.get(name)).filter(Boolean);
  }

  // ---------------------------------------------------------------- rows

  reset() {
    this.pages.clear();
    this.asked.clear();
    this.cursor = this.anchor = this.wanted = -1;
    this.scroll.scrollTop = 0;
    this.header();
    this.toolbar();
    this.paint();
  }

  ask(page) {
    if (this.asked.has(page) || this.pages.has(page)) return;
    this.asked.add(page);
    const names = this.columns().map((c) => c.name), mark = this.model.get("mark");
    if (mark && !names.includes(mark)) names.push(mark);
    this.model.send({
      kind: "rows", id: this.model.get("version"), columns: names,
      start: page * PAGE, stop: Math.min(this.model.get("total"), (page + 1) * PAGE),
    });
  }

  receive(message, buffers) {
    if (message.kind !== "rows" || message.id !== this.model.get("version")) return;
    const copy = (view, Type) => new Type(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
    const page = { labels: copy(buffers[0], Int32Array), columns: new Map() };
    let next = 1;
    message.columns.forEach((name, at) => {
      page.columns.set(name, message.text[at] ?? copy(buffers[next++], Float64Array));
    });
    const number = message.start / PAGE;
    this.pages.set(number, page);
    this.asked.delete(number);
    if (this.pages.size > KEPT) this.pages.delete(this.pages.keys().next().value);
    if (Math.floor(this.wanted / PAGE) === number) this.choose(this.wanted);
    this.paint();
  }

  paint() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  // The browser limits an element's height, so the scroll range of a long table is compressed.
  range() {
    const full = this.model.get("total") * ROW, height = Math.min(full, MAX_PIXELS);
    const room = Math.max(0, this.scroll.clientHeight - this.head.offsetHeight);
    const stretch = height > room ? Math.max(0, full - room) / Math.max(1, height - room) : 1;
    return { height, room, first: (this.scroll.scrollTop * stretch) / ROW, stretch };
  }

  draw() {
    const { height, room, first } = this.range(), total = this.model.get("total");
    this.count();
    this.body.style.height = Math.max(height, total ? 0 : 80) + "px";
    this.scroll.setAttribute("aria-rowcount", total);
    const from = Math.floor(first), to = Math.min(total, from + Math.ceil(room / ROW) + 1);
    for (let page = Math.floor(from / PAGE); page * PAGE < to; page++) this.ask(page);
    const rows = [];
    for (let at = from; at < to; at++) rows.push(this.row(at, first));
    if (!total) rows.push(make("div", "msnb-empty", "No row passes the filters."));
    this.body.replaceChildren(...rows);
  }

  row(at, first) {
    const row = make("div", "msnb-row"), page = this.pages.get(Math.floor(at / PAGE));
    row.setAttribute("role", "row");
    row.setAttribute("aria-rowindex", at + 1);
    row.style.top = this.scroll.scrollTop + (at - first) * ROW + "px";
    if (!page) return row;
    const here = at % PAGE, label = page.labels[here], mark = this.model.get("mark");
    if (mark) row.dataset.mark = page.columns.get(mark)?.[here] ?? "";
    row.setAttribute("aria-selected", this.model.get("selected").includes(label));
    this.columns().forEach((column, place) => {
      const cell = this.cell(column, place), value = page.columns.get(column.name)?.[here];
      cell.setAttribute("role", "gridcell");
      if (column.kind === "text") this.text(cell, column, value ?? "");
      else if (value !== undefined) this.number(cell, column, value);
      row.append(cell);
    });
    row.onclick = (event) => this.select(at, label, event);
    return row;
  }

  text(cell, column, value) {
    if (column.name === this.model.get("mark")) {
      const entry = this.model.get("legend").find((item) => item.value === value);
      cell.append(make("i", symbolClass(value), entry ? entry.symbol + " " : ""));
    }
    cell.append(value);
    cell.title = value;
  }

  number(cell, column, value) {
    cell.classList.add("msnb-num");
    if (Number.isNaN(value)) cell.classList.add("msnb-none");
    else if (!Number.isFinite(value)) cell.classList.add("msnb-odd");
    cell.textContent = shown(value, column.kind);
    cell.title = String(value);
  }

  select(at, label, event) {
    const now = this.model.get("selected"), more = event.ctrlKey || event.metaKey;
    let next = [label];
    if (event.shiftKey && this.anchor >= 0) next = this.between(this.anchor, at);
    else if (more) next = now.includes(label) ? now.filter((x) => x !== label) : [...now, label];
    this.cursor = at;
    if (!event.shiftKey) this.anchor = at;
    this.set("selected", next);
    this.scroll.focus({ preventScroll: true });
    this.paint();
  }

  // The labels of the rows from one place to another, as far as they are here; the last one last.
  between(from, to) {
    const labels = [], step = from <= to ? 1 : -1;
    for (let at = from; at !== to + step; at += step) {
      const page = this.pages.get(Math.floor(at / PAGE));
      if (page) labels.push(page.labels[at % PAGE]);
    }
    return labels;
  }

  // A notebook takes cells that are out of sight off the page, and with them what was scrolled to.
  appear() {
    if (this.scroll.clientHeight) {
      if (this.top < 0) this.reveal();
      else if (this.scroll.scrollTop !== this.top) this.scroll.scrollTop = this.top;
      this.top = this.scroll.scrollTop;
    }
    this.paint();
  }

  // Scroll to a row that was selected elsewhere. An answer to a selection that has changed since
  // (fast arrow keys) is out of date.
  reveal() {
    const [at, , label] = this.model.get("reveal"), now = this.model.get("selected");
    if (at === undefined || at < 0 || (label >= 0 && (now.length !== 1 || now[0] !== label))) return;
    if (label >= 0) this.cursor = this.anchor = at;
    const { room, stretch } = this.range(), top = (at * ROW) / stretch;
    const visible = top >= this.scroll.scrollTop && top + ROW <= this.scroll.scrollTop + room;
    if (!visible) this.scroll.scrollTop = Math.max(0, label < 0 ? top - ROW : top - room / 3);
    this.paint();
  }

  // Select the row at a place as soon as its page is here.
  choose(at) {
    const page = this.pages.get(Math.floor(at / PAGE));
    this.wanted = page ? -1 : at;
    if (!page) return;
    this.model.set("selected", [page.labels[at % PAGE]]);
    clearTimeout(this.later); // the kernel hears of the row on which the keys come to rest
    this.later = setTimeout(() => this.model.save_changes(), KEY_PAUSE);
  }

  key(event) {
    const { room, stretch } = this.range(), lines = Math.max(1, Math.floor(room / ROW) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: lines, PageUp: -lines, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || event.target !== this.scroll) return;
    event.preventDefault();
    event.stopPropagation();
    const last = this.model.get("total") - 1;
    if (last < 0) return;
    this.cursor = this.anchor = Math.min(last, Math.max(0, this.cursor + step));
    this.choose(this.cursor);
    const top = (this.cursor * ROW) / stretch;
    if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    else if (top + ROW > this.scroll.scrollTop + room) this.scroll.scrollTop = top + ROW - room;
    this.paint();
  }
}

function render({ model, el }) {
  const grid = new Grid(model, el);
  return () => grid.destroy();
}

export default { render };
